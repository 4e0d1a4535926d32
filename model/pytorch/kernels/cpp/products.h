// Products of a block of rows with a whole matrix, with vector instructions: words are broadcast, columns are lanes.
#pragma once

#include <algorithm>

#include "words.h"

namespace HEADLIGHT_NAMESPACE {

// Multiply R rows of `words` words, `left_stride` apart, by (words, columns), for V vectors of columns; rows of `right`
// and `out` are `stride` apart.
//
// Partial sums of P::SUMMED words stay in registers and are then added to `out`: the rounding error of a single long
// sum would grow with its length.
template <class P, int R, int V>
inline void multiply(const uint32_t *left, int64_t left_stride, int64_t words, const uint32_t *right, int64_t stride,
                     float *out) {
    for (int64_t start = 0; start < words; start += P::SUMMED) {
        const int64_t stop = std::min(start + P::SUMMED, words);
        Floats acc[R][V];
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) acc[r][v] = zeros();
        for (int64_t w = start; w < stop; w++) {
            if (P::FAR) fetch(right + (w + words) * stride);
            Words b[V];
            for (int v = 0; v < V; v++) b[v] = load_aligned_words(right + w * stride + v * LANES);
            for (int r = 0; r < R; r++) {
                const Words a = broadcast_word(left[r * left_stride + w]);
                for (int v = 0; v < V; v++) acc[r][v] = P::step(acc[r][v], a, b[v]);
            }
        }
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) {
                float *place = out + r * stride + v * LANES;
                store_aligned(place, start ? add(load_aligned(place), acc[r][v]) : acc[r][v]);
            }
    }
}

// The same for all columns, BLOCK_VECTORS vectors at a time.
template <class P, int R>
inline void multiply_columns(const uint32_t *left, int64_t left_stride, int64_t words, const uint32_t *right,
                             int64_t columns, int64_t stride, float *out) {
    constexpr int64_t STEP = BLOCK_VECTORS * LANES;
    int64_t j = 0;
    for (; j + STEP <= columns; j += STEP)
        multiply<P, R, BLOCK_VECTORS>(left, left_stride, words, right + j, stride, out + j);
    if (BLOCK_VECTORS > 2 && columns - j == 2 * LANES)
        multiply<P, R, 2>(left, left_stride, words, right + j, stride, out + j);
    else if (columns - j == LANES)
        multiply<P, R, 1>(left, left_stride, words, right + j, stride, out + j);
}

// Products with vector instructions, in the precision P: Float32 or Bfloat16.
template <class P>
struct Vectors : P {
    static constexpr int ROWS = BLOCK_ROWS;    // in a block
    static constexpr int COLUMN_STEP = LANES;  // columns are padded to a multiple of this
    static constexpr int HEAD_STEP = LANES;    // head sizes are multiples of this

    static void begin() {}
    static void end() {}

    // `left` (rows, words) times `right` (words, columns): `out` (rows, columns), all dense.
    static void product(int rows, const uint32_t *left, int64_t words, const uint32_t *right, int64_t columns,
                        float *out) {
        part(rows, left, words, words, right, columns, columns, out);
    }

    // The same for parts of matrices, whose rows are `left_stride` and `stride` apart.
    static void part(int rows, const uint32_t *left, int64_t left_stride, int64_t words, const uint32_t *right,
                     int64_t columns, int64_t stride, float *out) {
        switch (rows) {
            case 1: return multiply_columns<P, 1>(left, left_stride, words, right, columns, stride, out);
            case 2: return multiply_columns<P, 2>(left, left_stride, words, right, columns, stride, out);
            case 3: return multiply_columns<P, 3>(left, left_stride, words, right, columns, stride, out);
            case 4: return multiply_columns<P, 4>(left, left_stride, words, right, columns, stride, out);
            case 5: return multiply_columns<P, 5>(left, left_stride, words, right, columns, stride, out);
            case 6: return multiply_columns<P, std::min(6, ROWS)>(left, left_stride, words, right, columns, stride, out);
            case 7: return multiply_columns<P, std::min(7, ROWS)>(left, left_stride, words, right, columns, stride, out);
            default: return multiply_columns<P, ROWS>(left, left_stride, words, right, columns, stride, out);
        }
    }
};

}  // namespace HEADLIGHT_NAMESPACE
