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
//
// VPMADDUBSW, where there is no VNNI, sums two such products in sixteen bits. With 63 in the place of 127 two of its sums fit
// there, and every 64 inputs have scales of their own: together they are as near to float32 as eight bits with one scale.
//
// On ARM64 both numbers of a product have a sign, and nothing is added: see int8_arm64.h. With AMX, tiles sum the products
// of VPDPBUSD: see int8_amx.h.
#pragma once

#include "integer_rows.h"
#ifdef __AMX_INT8__
#include "int8_amx.h"
#endif

namespace HEADLIGHT_NAMESPACE {

#ifndef __AMX_INT8__  // else in int8_amx.h
inline int64_t begin_tiles(int64_t) { return 0; }
inline void end_tiles() {}

#ifndef __aarch64__  // else in int8_arm64.h
// Add the products of some words of R rows, `words` apart, with those of a panel, and fetch those of the next one. It and its
// callers are always inlined: sums that are handed over by reference would lie in memory, which takes twice the time.
template <int R, int COUNT>
[[gnu::always_inline]] inline void add_products(Integers (&sums)[R][BLOCK_VECTORS], const uint32_t *rows, int64_t words,
                                                const uint32_t *panel) {
    Words b[BLOCK_VECTORS][COUNT];
    for (int w = 0; w < COUNT; w++) {
        fetch(panel + (w + words) * PANEL_COLUMNS);
        for (int v = 0; v < BLOCK_VECTORS; v++) b[v][w] = load_aligned_words(panel + w * PANEL_COLUMNS + v * LANES);
    }
    for (int r = 0; r < R; r++) {
        Words a[COUNT];
        for (int w = 0; w < COUNT; w++) a[w] = broadcast_word(rows[r * words + w]);
        for (int v = 0; v < BLOCK_VECTORS; v++) sums[r][v] = multiply_bytes(sums[r][v], b[v], a);
    }
}

// The same for all words of group g.
template <int R>
[[gnu::always_inline]] inline void add_group(Integers (&sums)[R][BLOCK_VECTORS], const uint32_t *rows, int64_t words,
                                             const uint32_t *panel, int64_t g) {
    int64_t w = g * (GROUP / BYTES_PER_WORD);
    const int64_t stop = std::min(words, w + GROUP / BYTES_PER_WORD);
    for (; w + TOGETHER <= stop; w += TOGETHER) add_products<R, TOGETHER>(sums, rows + w, words, panel + w * PANEL_COLUMNS);
    if (TOGETHER > 1 && w < stop) add_products<R, 1>(sums, rows + w, words, panel + w * PANEL_COLUMNS);
}
#endif

// Multiply R rounded rows, from `row` on, by a panel, into (R, PANEL_COLUMNS), with their bias. `x` and `panel` are copies, which
// stay in registers: stores of vectors may change what is referred to.
template <bool PRECISE, int R>
void multiply_integers(const Rounded x, int64_t row, int64_t inputs, const Panel panel, float *out) {
    const int64_t words = row_bytes(inputs) / BYTES_PER_WORD, groups = groups_of(inputs), place = x.place(row, inputs, 0);
    const auto *rows = (const uint32_t *)(x.rows + place), *low_rows = (const uint32_t *)(x.low_rows + place);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = row * groups + g;  // the group of the first row
        Integers sums[R][BLOCK_VECTORS], low[R][BLOCK_VECTORS];
        for (int r = 0; r < R; r++)
            for (int v = 0; v < BLOCK_VECTORS; v++) sums[r][v] = (Integers)broadcast_word(x.starts[first + r * groups]);
        add_group(sums, rows, words, panel.weights, g);
        if constexpr (PRECISE) {
            for (int r = 0; r < R; r++)
                for (int v = 0; v < BLOCK_VECTORS; v++)
                    low[r][v] = (Integers)broadcast_word(x.starts[first + r * groups] + x.low_starts[first + r * groups]);
            add_group(low, rows, words, panel.low_weights, g);
            add_group(low, low_rows, words, panel.weights, g);
        }
        for (int v = 0; v < BLOCK_VECTORS; v++) {
            const Mask lanes = lanes_below(v * LANES, panel.columns);
            const Floats scale = load_some(panel.scales + g * panel.outputs + v * LANES, lanes);
            const Floats bias = load_some(panel.bias + v * LANES, lanes);
            for (int r = 0; r < R; r++) {
                Floats sum = floats_of((Words)sums[r][v]);
                if constexpr (PRECISE) sum = fmadd(floats_of((Words)low[r][v]), broadcast(1.0f / LOW_STEPS), sum);
                float *place = out + r * PANEL_COLUMNS + v * LANES;
                const Floats before = g ? load_aligned(place) : bias;
                store_aligned(place, fmadd(sum, mul(scale, broadcast(x.scales[first + r * groups])), before));
            }
        }
    }
}

template <bool PRECISE>
inline void multiply_integers(int rows, const Rounded &x, int64_t row, int64_t inputs, const Panel &panel, float *out) {
    switch (std::min(rows, INTEGER_ROWS)) {
        case 1: return multiply_integers<PRECISE, 1>(x, row, inputs, panel, out);
        case 2: return multiply_integers<PRECISE, 2>(x, row, inputs, panel, out);
        case 3: return multiply_integers<PRECISE, 3>(x, row, inputs, panel, out);
        case 4: return multiply_integers<PRECISE, 4>(x, row, inputs, panel, out);
        case 5: return multiply_integers<PRECISE, std::min(5, INTEGER_ROWS)>(x, row, inputs, panel, out);
        case 6: return multiply_integers<PRECISE, std::min(6, INTEGER_ROWS)>(x, row, inputs, panel, out);
        case 7: return multiply_integers<PRECISE, std::min(7, INTEGER_ROWS)>(x, row, inputs, panel, out);
        default: return multiply_integers<PRECISE, INTEGER_ROWS>(x, row, inputs, panel, out);
    }
}
#endif

// Multiply some rounded rows, from `row` on, by one panel, or by one of gates and that of their values, and write them from
// `output` on; A is the activation.
template <class P, class A, bool PRECISE>
void multiply_rounded(const Product &all, const Rounded &x, int64_t row, int count, int64_t panel,
                      typename P::Element *output) {
    constexpr int64_t BLOCK = INTEGER_ROWS * PANEL_COLUMNS;
    alignas(64) float results[2 * BLOCK];
    const Linear &linear = all.linear;
    const int64_t size = width(all), parts = linear.gated ? 2 : 1, first = panel * PANEL_COLUMNS;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t place = (panel * parts + part) * PANEL_COLUMNS * (row_bytes(linear.inputs) / BYTES_PER_WORD);
        const int64_t column = part * size + first;
        const Panel weights{(const uint32_t *)linear.panels + place, PRECISE ? (const uint32_t *)linear.low_panels + place : nullptr,
                            linear.bias + column, linear.scales + column, size - first, linear.outputs};
        multiply_integers<PRECISE>(count, x, row, linear.inputs, weights, results + part * BLOCK);
    }
    for (int64_t v = 0; v < PANEL_COLUMNS; v += LANES) {
        const Mask lanes = lanes_below(first + v, size);
        for (int r = 0; r < count; r++) {
            const float *at = results + r * PANEL_COLUMNS + v;
            Floats result = A::apply(load_aligned(at));
            if (linear.gated) result = mul(result, load_aligned(at + BLOCK));
            P::store(output + r * size + first + v, result, lanes);
        }
    }
}

// All rows and panels: each thread rounds the rows that it multiplies.
template <class P, class A, bool PRECISE>
int multiply_all_rounded(const Product &all) {
    const int64_t inputs = all.linear.inputs, panels = (width(all) + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t most = std::max<int64_t>(INTEGER_ROWS, ROUNDED_BYTES / ((PRECISE ? 2 : 1) * inputs));
    const int64_t chunks = (all.tokens + most - 1) / most;
    return on_every_thread([&all, inputs, panels, chunks] {
        const int64_t rows = chunks ? (all.tokens + chunks - 1) / chunks : 0;
        char *memory = reserve_scratch(Rounded::bytes(rows, inputs, PRECISE));
        int64_t held = -1, tile = 0;  // the chunk whose rows are rounded, and the rows of its tiles
        Work work(all.steps);
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < chunks * panels; task++) {
            if (!memory) continue;
            const int64_t chunk = task / panels, panel = task % panels;
            const int64_t start = all.tokens * chunk / chunks, count = all.tokens * (chunk + 1) / chunks - start;
            const int64_t blocks = (count + INTEGER_ROWS - 1) / INTEGER_ROWS;
            Rounded x(memory, rows, inputs);
            if (chunk != held) {
                tile = begin_tiles((count + blocks - 1) / blocks);
                const auto *from = (const typename P::Element *)all.x + start * inputs;
                for (int64_t row = 0; row < count; row++)
                    round_row<P, PRECISE>(from + row * inputs, all.linear.smoothing, inputs, x, row);
                held = chunk;
            }
            x.tile = tile;
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t row = start_of(b, blocks, count), next = start_of(b + 1, blocks, count);
                auto *output = (typename P::Element *)all.output + (start + row) * width(all);
                multiply_rounded<P, A, PRECISE>(all, x, row, (int)(next - row), panel, output);
            }
            work.add(count * PANEL_COLUMNS * inputs);
        }
        if (tile) end_tiles();
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
