// A linear layer in float32 with weights in bfloat16: activation(x Wᵀ + b), with half the bytes to read of W.
//
// As in linear.h, weights lie in panels, here of 16-bit numbers, which become float32 in registers. With AVX2 that takes the
// place of the loads of a product in float32 and occupies other units of the processor than its multiplications. So few rows
// take as much less time as the memory has less to deliver, and many rows no more. Results have the same bits as those in
// float32 of weights that were rounded to bfloat16.
//
// On ARM64 it occupies the units of the multiplications, so a panel is widened once for many rows, into memory that stays in the
// cache.
#pragma once

#include "../scratch.h"
#include "linear.h"

namespace HEADLIGHT_NAMESPACE {

constexpr bool WIDENS_ONCE = MULTIPLIES_BY_LANES;  // for more rows than a block has

// The precision of such products. Of the sixteen columns of a panel, its rows have the first four, the third, the second, and the
// last: the low and the high half of 128 bits become lanes of different vectors.
struct Widened : Float32 {
    using Right = uint16_t;
    static Floats right(const uint16_t *from, int v) {
        constexpr int HALF = BLOCK_VECTORS / 2;
        static_assert(BLOCK_VECTORS == 2 * HALF);
        const Words both = load_aligned_words(from + v % HALF * 2 * LANES);
        return v < HALF ? widen_low_halves(both) : widen_high_halves(both);
    }
};

// Widen a panel of some rows, and fetch the next one.
inline void widen_panel(const uint16_t *panel, int64_t rows, float *to) {
    for (int64_t row = 0; row < rows; row++, panel += PANEL_COLUMNS, to += PANEL_COLUMNS) {
        if (row % (64 / (2 * PANEL_COLUMNS)) == 0) fetch(panel + rows * PANEL_COLUMNS);
        for (int v = 0; v < BLOCK_VECTORS; v++) store_aligned(to + v * LANES, Widened::right(panel, v));
    }
}

// All rows and panels, each of which is widened once for as many rows as stay in the cache.
template <class A>
int multiply_all_widened(const Product &all) {
    const int64_t panels = (width(all) + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t rows = (all.linear.gated ? 2 : 1) * all.linear.inputs, words = rows * PANEL_COLUMNS;  // of a panel
    const int64_t most = std::max<int64_t>(BLOCK_ROWS, CACHED / all.linear.inputs);
    const int64_t chunks = (all.tokens + most - 1) / most;
    return on_every_thread([&all, panels, rows, words, chunks] {
        auto *widened = (float *)reserve_scratch(words * sizeof(float));
        Work work(all.steps);
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < chunks * panels; task++) {
            if (!widened) continue;
            const int64_t chunk = task / panels, panel = task % panels;
            const int64_t start = all.tokens * chunk / chunks, stop = all.tokens * (chunk + 1) / chunks;
            widen_panel((const uint16_t *)all.linear.panels + panel * words, rows, widened);
            multiply_rows<Float32, A>(all, start, stop, panel, (const uint32_t *)widened);
            work.add((stop - start) * words);
        }
        return widened ? DONE : NO_MEMORY;
    });
}

template <bool ONCE = WIDENS_ONCE>
int multiply_widened(const Product *all) {
    if constexpr (ONCE)
        if (all && all->tokens > BLOCK_ROWS) {
            if (!fits(all) || !fits(all->linear.panels, all->linear.inputs, Widened::PER_WORD)) return BAD_ARGUMENT;
            return with_activation<Float32>(all->linear.activation,
                                            [all](auto activation) { return multiply_all_widened<decltype(activation)>(*all); });
        }
    return multiply<Widened>(all);
}

}  // namespace HEADLIGHT_NAMESPACE
