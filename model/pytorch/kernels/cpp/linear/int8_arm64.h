// Products of eight-bit integers on ARM64: both numbers have a sign.
//
// SDOT multiplies the four bytes of a word of one row by those of four columns, as FMLA does one number: its loops are those of
// neon.h. SMMLA multiplies two rows of eight bytes by two columns: see pairs.h.
#pragma once

#ifdef __ARM_FEATURE_MATMUL_INT8
#include "pairs.h"
#else
#include "linear.h"
#endif

namespace HEADLIGHT_NAMESPACE {

#ifdef __ARM_FEATURE_MATMUL_INT8

// Store up to sixteen bytes of a row of a pair.
inline void store_paired(int8_t *to, Words bytes, int64_t count) {
    const auto both = vreinterpretq_u8_u32(bytes);
    vst1_u8((uint8_t *)to, vget_low_u8(both));
    if (count > PAIRED_BYTES) vst1_u8((uint8_t *)to + 2 * PAIRED_BYTES, vget_high_u8(both));
}

// Add the products of R rows of `words` words with those of a panel, and fetch the next one.
template <int R>
[[gnu::always_inline]] inline void add_group(Integers (&sums)[R][BLOCK_VECTORS], const uint32_t *rows, int64_t words,
                                             const uint32_t *panel, int64_t) {
    const int64_t bytes = words * 4;
    add_paired_products(sums, (const char *)rows, bytes, bytes / PAIRED_BYTES, (const char *)panel,
                        (const char *)(panel + words * PANEL_COLUMNS));
}

#else

// The step of a product, as those of words.h.
struct Bytes {
    using Right = uint32_t;
    static constexpr bool PREFETCHES = true;
    static Words right(const uint32_t *from, int v) { return load_aligned_words(from + v * LANES); }
};

// Add the products of R rows of `words` words with those of a panel, and fetch the next one.
template <int R>
[[gnu::always_inline]] inline void add_group(Integers (&sums)[R][BLOCK_VECTORS], const uint32_t *rows, int64_t words,
                                             const uint32_t *panel, int64_t) {
    Integers acc[R][BLOCK_VECTORS];  // a copy, which GCC 12 keeps in registers
    std::memcpy(acc, sums, sizeof acc);
    add_products<Bytes>(acc, WordRows(rows, words, words), 0, words, words, panel, PANEL_COLUMNS);
    std::memcpy(sums, acc, sizeof acc);
}

#endif

}  // namespace HEADLIGHT_NAMESPACE
