// Products of pairs of rows by pairs of columns, for processors with ARM64 that have instructions for them: BFMMLA or SMMLA
// multiplies two rows of eight bytes by two columns, and adds the products to a matrix of two rows and two columns.
//
// So eight bytes of a column lie together in a panel, and the rows of a pair take turns after each eight bytes; both are filled up
// with zeros to a multiple of that. The last pair may lack its second row: what lies in its place changes no other row.
#pragma once

#include "linear.h"

namespace HEADLIGHT_NAMESPACE {

constexpr int64_t PAIRED_BYTES = 8;
constexpr int COLUMN_PAIRS = PANEL_COLUMNS / 2;

// For the intrinsics, GCC 12 would run out of registers, as in neon.h.
#ifdef __ARM_FEATURE_MATMUL_INT8
inline Integers multiply_pairs(Integers sums, Words rows, Words columns) {
    asm volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(rows), "w"(columns));
    return sums;
}
#endif
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
inline Floats multiply_pairs(Floats sums, Words rows, Words columns) {
    asm volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sums) : "w"(rows), "w"(columns));
    return sums;
}
#endif

// Where a row lies among rows of so many bytes.
inline int64_t paired_place(int64_t row, int64_t bytes) { return row / 2 * 2 * bytes + row % 2 * PAIRED_BYTES; }

// Multiply R rows, of which the first is that of a pair, by a panel, both of `count` times eight bytes, and add the products to
// `sums`. What follows the panel is fetched from `next` on.
template <class Sum, int R>
inline void add_paired_products(Sum (&sums)[R][BLOCK_VECTORS], const char *rows, int64_t stride, int64_t count, const char *panel,
                                const char *next) {
    constexpr int PAIRS = (R + 1) / 2;
    Sum acc[PAIRS][COLUMN_PAIRS] = {};
    for (int64_t i = 0; i < count; i++, rows += 2 * PAIRED_BYTES) {
        Words a[PAIRS];
        for (int p = 0; p < PAIRS; p++) a[p] = load_words(rows + p * 2 * stride);
        for (int c = 0; c < COLUMN_PAIRS; c++, panel += 2 * PAIRED_BYTES, next += 2 * PAIRED_BYTES) {
            if (c % 4 == 0) fetch(next);
            const Words b = load_aligned_words(panel);
            for (int p = 0; p < PAIRS; p++) acc[p][c] = multiply_pairs(acc[p][c], a[p], b);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < BLOCK_VECTORS; v++) {
            const auto first = (int64x2_t)acc[r / 2][2 * v], second = (int64x2_t)acc[r / 2][2 * v + 1];
            sums[r][v] += (Sum)(r % 2 ? vzip2q_s64(first, second) : vzip1q_s64(first, second));
        }
}

}  // namespace HEADLIGHT_NAMESPACE
