// Products of a block of rows with a whole matrix, with vector instructions: columns are lanes.
#pragma once

#include <algorithm>
#include <type_traits>

#include "words.h"

namespace HEADLIGHT_NAMESPACE {

// What is fetched into the cache during a product, because the next one needs it.
struct Ahead {
    const char *from = nullptr;
    int64_t step = 0;  // bytes
};

// Multiply R rows of `words` words, `left_stride` apart, by (words, columns), for V vectors of columns; rows of `right`
// are `stride` apart, those of `out` `out_stride`.
//
// Partial sums of P::SUMMED words stay in registers and are then added to `out`: the rounding error of a single long
// sum would grow with its length. So words can also come in parts, in order, from the multiple `from` of that on.
//
// If P::PREFETCHES, `ahead.step` bytes from `ahead.from` on are fetched with each word.
template <class P, int R, int V>
inline void multiply(const uint32_t *left, int64_t left_stride, int64_t words, const typename P::Right *right,
                     int64_t stride, float *out, int64_t out_stride, int64_t from, int64_t to, Ahead ahead) {
    for (int64_t start = from; start < to; start += P::SUMMED) {
        const int64_t stop = std::min(start + P::SUMMED, to);
        const typename P::template Rows<R, P::SUMMED> rows(left + start, left_stride, stop - start);
        Floats acc[R][V];
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) acc[r][v] = zeros();
        if constexpr (MULTIPLIES_BY_LANES) {
            add_products<P>(acc, rows, start, stop, words, right, stride);
        } else {
#pragma GCC unroll UNROLLED
            for (int64_t w = start; w < stop; w++) {
                if (P::PREFETCHES) fetch(ahead.from + (w - from) * ahead.step);
                decltype(P::right(right, 0)) b[V];
                for (int v = 0; v < V; v++) b[v] = P::right(right + w * stride, v);
                for (int r = 0; r < R; r++) {
                    const auto a = rows.at(r, w - start);
                    for (int v = 0; v < V; v++) acc[r][v] = P::step(acc[r][v], a, b[v]);
                }
            }
        }
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++) {
                float *place = out + r * out_stride + v * LANES;
                store_aligned(place, start ? add(load_aligned(place), acc[r][v]) : acc[r][v]);
            }
    }
}

// The same for up to BLOCK_VECTORS vectors.
template <class P, int R>
inline void multiply_some(int64_t vectors, const uint32_t *left, int64_t left_stride, int64_t words,
                          const typename P::Right *right, int64_t stride, float *out, int64_t out_stride, int64_t from,
                          int64_t to, Ahead ahead = {}) {
    if (vectors == BLOCK_VECTORS)
        multiply<P, R, BLOCK_VECTORS>(left, left_stride, words, right, stride, out, out_stride, from, to, ahead);
    else if (BLOCK_VECTORS > 3 && vectors == 3)
        multiply<P, R, std::min(3, BLOCK_VECTORS)>(left, left_stride, words, right, stride, out, out_stride, from, to, ahead);
    else if (BLOCK_VECTORS > 2 && vectors == 2)
        multiply<P, R, 2>(left, left_stride, words, right, stride, out, out_stride, from, to, ahead);
    else
        multiply<P, R, 1>(left, left_stride, words, right, stride, out, out_stride, from, to, ahead);
}

// Products with vector instructions, in the precision P: Float32, Bfloat16 or Widened.
template <class P>
struct Vectors : P {
    static constexpr int ROWS = BLOCK_ROWS;              // in a block
    static constexpr int COLUMN_STEP = LANES;            // columns are padded to a multiple of this
    static constexpr int HEAD_STEP = LANES;              // head sizes are multiples of this
    static constexpr int PANEL = BLOCK_VECTORS * LANES;  // columns of a panel

    static void begin() {}
    static void end() {}

    // `left` (rows, words), dense, times the columns from `first` on of a matrix that lies in panels (panels, words,
    // PANEL), into as many columns of `out`.
    static void product(int rows, const uint32_t *left, int64_t words, const typename P::Right *right, int64_t first,
                        int64_t columns, float *out, int64_t out_stride) {
        add_product(rows, left, words, right, first, columns, out, out_stride, 0, words);
    }

    // The same for the words `from` to before `to` alone, added to `out` unless they are the first.
    //
    // As one of so many `blocks` of rows, each with a number, it fetches its share of the columns that follow: the memory delivers
    // these while all of them are multiplied.
    static void add_product(int rows, const uint32_t *left, int64_t words, const typename P::Right *right, int64_t first,
                            int64_t columns, float *out, int64_t out_stride, int64_t from, int64_t to, int64_t block = 0,
                            int64_t blocks = 1) {
        const int64_t step = (PANEL * (int64_t)sizeof *right + blocks - 1) / blocks, share = block * (to - from) * step;
        with_rows(rows, [=](auto count) {
            for (int64_t j = first, end = first + columns; j < end;) {
                const int64_t panel = j / PANEL, within = j % PANEL, some = std::min(PANEL - within, end - j);
                const auto *next = right + (panel * PANEL + columns) * words + from * PANEL;
                multiply_some<P, decltype(count)::value>(some / LANES, left, words, words,
                                                         right + panel * PANEL * words + within, PANEL,
                                                         out + j - first, out_stride, from, to, {(const char *)next + share, step});
                j += some;
            }
        });
    }

    // `left` (rows, words), its rows `left_stride` apart, times `right` (words, columns), dense, into `out`, likewise.
    static void mix(int rows, const uint32_t *left, int64_t left_stride, int64_t words, const typename P::Right *right,
                    int64_t columns, float *out) {
        with_rows(rows, [=](auto count) {
            for (int64_t j = 0; j < columns; j += PANEL)
                multiply_some<P, decltype(count)::value>(std::min<int64_t>(PANEL, columns - j) / LANES, left, left_stride,
                                                         words, right + j, columns, out + j, columns, 0, words);
        });
    }

   private:
    // Call a function with the number of rows as a type, so that it is compiled for each.
    template <class F>
    static void with_rows(int rows, F f) {
        switch (rows) {
            case 1: return f(std::integral_constant<int, 1>());
            case 2: return f(std::integral_constant<int, 2>());
            case 3: return f(std::integral_constant<int, 3>());
            case 4: return f(std::integral_constant<int, 4>());
            case 5: return f(std::integral_constant<int, std::min(5, ROWS)>());
            case 6: return f(std::integral_constant<int, std::min(6, ROWS)>());
            case 7: return f(std::integral_constant<int, std::min(7, ROWS)>());
            default: return f(std::integral_constant<int, ROWS>());
        }
    }
};

}  // namespace HEADLIGHT_NAMESPACE
