// A linear layer with products of eight-bit integers: activation(x Wᵀ + b), with x rounded row by row while it is read.
//
// A row is multiplied by the columns' `smoothing`, divided by a scale of its own, its largest value / 127, and rounded; a row
// of W has a scale likewise, from when it was laid out (Xiao et al. 2023). The sums of integers are exact, so a row of the
// result has the same bits in every batch, and they are scaled back while they are written.
//
// A precise product also uses what rounding left over, in 254ths: x = s (h + l / 254) and W alike, so that x Wᵀ is about
// hH + (hL + lH) / 254, three products of integers with an error of some 2⁻¹⁵.
//
// VPDPBUSD multiplies four unsigned numbers by four signed ones, so weights are stored with 128 added, and 128 times the sum
// of a row is taken off first.
#pragma once

#include <algorithm>

#include "linear.h"
#include "../scratch.h"

namespace HEADLIGHT_NAMESPACE {

// Not __m512i: of that type, GCC 12 keeps the sums of a product in memory, at half the speed.
using Integers = __v16si;

constexpr int BYTES_PER_WORD = 4;
constexpr int64_t ROUNDED_BYTES = 96 << 10;  // of rows that are multiplied by all panels in turn: they stay in the cache
constexpr int64_t MOST_INPUTS = 1 << 15;     // twice 255 · 127 times as many are less than 2³¹

// Some rows of x as integers, and what is left over of them: row i is dense from i · `inputs` on.
struct Rounded {
    float *scales;
    int32_t *starts, *low_starts;  // of sums of products: less 128 times the sum of the row
    int8_t *rows, *low_rows;

    static size_t bytes(int64_t count, int64_t inputs, bool precise) { return count * ((precise ? 2 : 1) * inputs + 12) + 256; }
    Rounded(char *memory, int64_t count, int64_t inputs)
        : scales((float *)memory),
          starts((int32_t *)memory + count),
          low_starts(starts + count),
          rows((int8_t *)memory + rounded_up(count * 12, 64)),
          low_rows(rows + rounded_up(count * inputs, 64)) {}
};

// Sixteen numbers of a row, smoothed.
template <class P>
Floats smoothed(const typename P::Element *x, const float *smoothing, int64_t j, int64_t size) {
    const Mask lanes = lanes_below(j, size);
    return mul(P::load(x + j, lanes), load_some(smoothing + j, lanes));
}

// Bytes of four vectors of integers from −127 to 127, in order.
inline __m512i packed(const __m512i whole[4]) {
    const __m512i halves = _mm512_packs_epi32(whole[0], whole[1]), others = _mm512_packs_epi32(whole[2], whole[3]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(halves, others));
}

// Store up to 64 integers of a row, and add them to a sum.
inline void store_integers(int8_t *to, const __m512i whole[4], int64_t count, Integers &sum) {
    const __m512i bytes = packed(whole);
    _mm512_mask_storeu_epi8(to, count >= 64 ? ~0ull : (1ull << count) - 1, bytes);
    sum = (Integers)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi8(1), bytes);
}

// Round a row of x. A NaN or an infinity makes its scale one, and with it the row of the result.
template <class P, bool PRECISE>
void round_row(const typename P::Element *x, const float *smoothing, int64_t size, const Rounded &to, int64_t row) {
    __m512i largest = zero_words();  // bits of floats without a sign order as integers, and a NaN is the largest
    for (int64_t j = 0; j < size; j += LANES)
        largest = _mm512_max_epu32(largest, _mm512_castps_si512(abs(smoothed<P>(x, smoothing, j, size))));
    const uint32_t bits = _mm512_reduce_max_epu32(largest);
    float most;
    std::memcpy(&most, &bits, sizeof most);
    to.scales[row] = most / 127;
    const Floats by = broadcast(most > 0 ? 127 / most : 0);
    Integers sum = {}, low_sum = {};
    for (int64_t j = 0; j < size; j += 4 * LANES) {
        __m512i whole[4], low[4];
        for (int v = 0; v < 4; v++) {
            const Floats value = mul(smoothed<P>(x, smoothing, j + v * LANES, size), by);
            whole[v] = words_of(value);
            if (PRECISE) low[v] = words_of(mul(sub(value, _mm512_cvtepi32_ps(whole[v])), broadcast(254)));
        }
        store_integers(to.rows + row * size + j, whole, size - j, sum);
        if (PRECISE) store_integers(to.low_rows + row * size + j, low, size - j, low_sum);
    }
    to.starts[row] = -128 * _mm512_reduce_add_epi32((__m512i)sum);
    if (PRECISE) to.low_starts[row] = -128 * _mm512_reduce_add_epi32((__m512i)low_sum);
}

// Multiply R rounded rows, `words` apart, by one panel, into (R, PANEL_COLUMNS); a sum begins at `starts`.
template <int R>
void multiply_integers(const uint32_t *rows, const int32_t *starts, int64_t words, const uint32_t *panel, int32_t *out) {
    Integers acc[R][BLOCK_VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < BLOCK_VECTORS; v++) acc[r][v] = (Integers)_mm512_set1_epi32(starts[r]);
    for (int64_t w = 0; w < words; w++) {
        fetch(panel + (w + words) * PANEL_COLUMNS);
        __m512i b[BLOCK_VECTORS];
        for (int v = 0; v < BLOCK_VECTORS; v++) b[v] = load_aligned_words(panel + w * PANEL_COLUMNS + v * LANES);
        for (int r = 0; r < R; r++) {
            const __m512i a = broadcast_word(rows[r * words + w]);
            for (int v = 0; v < BLOCK_VECTORS; v++) acc[r][v] = (Integers)_mm512_dpbusd_epi32((__m512i)acc[r][v], b[v], a);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < BLOCK_VECTORS; v++) store_aligned_words(out + r * PANEL_COLUMNS + v * LANES, (__m512i)acc[r][v]);
}

inline void multiply_integers(int rows, const uint32_t *left, const int32_t *starts, int64_t words, const uint32_t *panel,
                              int32_t *out) {
    switch (rows) {
        case 1: return multiply_integers<1>(left, starts, words, panel, out);
        case 2: return multiply_integers<2>(left, starts, words, panel, out);
        case 3: return multiply_integers<3>(left, starts, words, panel, out);
        case 4: return multiply_integers<4>(left, starts, words, panel, out);
        case 5: return multiply_integers<5>(left, starts, words, panel, out);
        case 6: return multiply_integers<6>(left, starts, words, panel, out);
        case 7: return multiply_integers<7>(left, starts, words, panel, out);
        default: return multiply_integers<8>(left, starts, words, panel, out);
    }
}

constexpr int64_t BLOCK_SUMS = BLOCK_ROWS * PANEL_COLUMNS;

// Multiply some rounded rows, from `row` on, by one panel.
template <bool PRECISE>
void sum_integers(const Product &all, const Rounded &x, int64_t row, int count, int64_t panel, int32_t *sums) {
    const int64_t words = all.linear.inputs / BYTES_PER_WORD, place = panel * words * PANEL_COLUMNS;
    const auto *weights = (const uint32_t *)all.linear.panels + place;
    const auto *rows = (const uint32_t *)(x.rows + row * all.linear.inputs);
    multiply_integers(count, rows, x.starts + row, words, weights, sums);
    if constexpr (PRECISE) {
        const auto *low_rows = (const uint32_t *)(x.low_rows + row * all.linear.inputs);
        multiply_integers(count, rows, x.starts + row, words, (const uint32_t *)all.linear.low_panels + place, sums + BLOCK_SUMS);
        multiply_integers(count, low_rows, x.low_starts + row, words, weights, sums + 2 * BLOCK_SUMS);
    }
}

// What the sums of integers of some columns stand for.
template <bool PRECISE>
Floats scaled(const int32_t *at, Floats by, Floats bias) {
    Floats sum = _mm512_cvtepi32_ps(load_aligned_words(at));
    if constexpr (PRECISE) {
        const __m512i low = add_words(load_aligned_words(at + BLOCK_SUMS), load_aligned_words(at + 2 * BLOCK_SUMS));
        sum = fmadd(_mm512_cvtepi32_ps(low), broadcast(1.0f / 254), sum);
    }
    return fmadd(sum, by, bias);
}

// Multiply some rounded rows, from `row` on, by one panel, or by one of gates and that of their values, and write them from
// `output` on; A is the activation.
template <class P, class A, bool PRECISE>
void multiply_rounded(const Product &all, const Rounded &x, int64_t row, int count, int64_t panel,
                      typename P::Element *output) {
    constexpr int64_t SUMS = (PRECISE ? 3 : 1) * BLOCK_SUMS;
    alignas(64) int32_t sums[2 * SUMS];
    const int64_t size = width(all), parts = all.linear.gated ? 2 : 1;
    for (int64_t part = 0; part < parts; part++)
        sum_integers<PRECISE>(all, x, row, count, panel * parts + part, sums + part * SUMS);
    for (int64_t v = 0; v < PANEL_COLUMNS; v += LANES) {
        const int64_t column = panel * PANEL_COLUMNS + v;
        const Mask lanes = lanes_below(column, size);
        const Floats bias = load_some(all.linear.bias + column, lanes), scale = load_some(all.linear.scales + column, lanes);
        for (int r = 0; r < count; r++) {
            const int32_t *at = sums + r * PANEL_COLUMNS + v;
            const Floats of_row = broadcast(x.scales[row + r]);
            Floats result = A::apply(scaled<PRECISE>(at, mul(scale, of_row), bias));
            if (all.linear.gated) {
                const Floats by = mul(load_some(all.linear.scales + size + column, lanes), of_row);
                result = mul(result, scaled<PRECISE>(at + SUMS, by, load_some(all.linear.bias + size + column, lanes)));
            }
            P::store(output + r * size + column, result, lanes);
        }
    }
}

// All rows and panels: each thread rounds the rows that it multiplies.
template <class P, class A, bool PRECISE>
int multiply_all_rounded(const Product &all) {
    static_assert(BLOCK_ROWS == 8);
    const int64_t panels = (width(all) + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t most = std::max<int64_t>(BLOCK_ROWS, ROUNDED_BYTES / ((PRECISE ? 2 : 1) * all.linear.inputs));
    const int64_t chunks = (all.tokens + most - 1) / most;
    return on_every_thread([&all, panels, chunks] {
        const int64_t rows = chunks ? (all.tokens + chunks - 1) / chunks : 0;
        char *memory = reserve_scratch(Rounded::bytes(rows, all.linear.inputs, PRECISE));
        int64_t held = -1;  // the chunk whose rows are rounded
        Work work(all.steps);
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < chunks * panels; task++) {
            if (!memory) continue;
            const int64_t chunk = task / panels, panel = task % panels;
            const int64_t start = all.tokens * chunk / chunks, count = all.tokens * (chunk + 1) / chunks - start;
            const Rounded x(memory, rows, all.linear.inputs);
            if (chunk != held) {
                const auto *from = (const typename P::Element *)all.x + start * all.linear.inputs;
                for (int64_t row = 0; row < count; row++)
                    round_row<P, PRECISE>(from + row * all.linear.inputs, all.linear.smoothing, all.linear.inputs, x, row);
                held = chunk;
            }
            const int64_t blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS;
            for (int64_t b = 0; b < blocks; b++) {  // of nearly equal size
                const int64_t row = count * b / blocks, next = count * (b + 1) / blocks;
                auto *output = (typename P::Element *)all.output + (start + row) * width(all);
                multiply_rounded<P, A, PRECISE>(all, x, row, (int)(next - row), panel, output);
            }
            work.add(count * PANEL_COLUMNS * all.linear.inputs);
        }
        return memory ? DONE : NO_MEMORY;
    });
}

template <class P, class A>
int multiply_all_rounded(const Product &all) {
    return all.linear.precise ? multiply_all_rounded<P, A, true>(all) : multiply_all_rounded<P, A, false>(all);
}

// A product with weights of eight bits where they have scales, else in the precision P.
template <class P>
int multiply_int8(const Product *all) {
    if (!all || !all->linear.scales) return multiply<P>(all);
    const Linear &linear = all->linear;
    if (!fits(all) || !linear.smoothing || linear.inputs > MOST_INPUTS) return BAD_ARGUMENT;
    if (!fits(linear.panels, linear.inputs, BYTES_PER_WORD)) return BAD_ARGUMENT;
    if (linear.precise && !fits(linear.low_panels, linear.inputs, BYTES_PER_WORD)) return BAD_ARGUMENT;
    return with_activation<P>(linear.activation,
                              [all](auto activation) { return multiply_all_rounded<P, decltype(activation)>(*all); });
}

}  // namespace HEADLIGHT_NAMESPACE
