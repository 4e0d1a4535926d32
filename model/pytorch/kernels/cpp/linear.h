// A linear layer: activation(x Wᵀ + b), with weights that were laid out once.
//
// The weights lie in panels of as many columns as a product sums in registers. A panel is multiplied by one block of rows
// of x after the other, from the first-level cache for up to about 400 inputs, else from the second; meanwhile the next
// panel is fetched. So each weight is read from memory once for many rows, and for few rows at the speed of the memory.
//
// Besides weights and bias, a row of the result depends only on the same row of x: it has the same bits in every batch.
#pragma once

#include <algorithm>

#include "activation.h"
#include "interface.h"
#include "products.h"

namespace HEADLIGHT_NAMESPACE {

constexpr int64_t PANEL_COLUMNS = BLOCK_VECTORS * LANES;
constexpr int64_t CACHED = 3 << 14;  // numbers of x that are multiplied by all panels in turn: 192 KB of cache

// Products with weights, which may be thousands of numbers long: partial sums keep the rounding error below PyTorch's.
struct Weights : Float32 {
    static constexpr int64_t SUMMED = 128;
    static constexpr bool FAR = true;
};

// Multiply some rows of x by one panel; A is the activation.
template <class A>
void multiply_rows(const Product &all, int64_t start, int64_t stop, int64_t panel) {
    using P = Vectors<Weights>;
    alignas(64) float sums[P::ROWS * PANEL_COLUMNS];
    const auto *weights = (const uint32_t *)(all.panels + panel * all.inputs * PANEL_COLUMNS);
    const int64_t blocks = (stop - start + P::ROWS - 1) / P::ROWS;
    for (int64_t b = 0; b < blocks; b++) {  // of nearly equal size
        const int64_t first = start + (stop - start) * b / blocks, next = start + (stop - start) * (b + 1) / blocks;
        P::product((int)(next - first), (const uint32_t *)(all.x + first * all.inputs), all.inputs, weights,
                   PANEL_COLUMNS, sums);
        for (int64_t v = 0; v < PANEL_COLUMNS; v += LANES) {
            const int64_t column = panel * PANEL_COLUMNS + v;
            const Mask lanes = lanes_below(column, all.outputs);
            const Floats bias = load_some(all.bias + column, lanes);
            for (int64_t row = first; row < next; row++) {
                const Floats sum = load_aligned(sums + (row - first) * PANEL_COLUMNS + v);
                store_some(all.output + row * all.outputs + column, A::apply(add(sum, bias)), lanes);
            }
        }
    }
}

// All rows and panels, on as many threads as OpenMP gives the caller.
template <class A>
void multiply_all(const Product &all) {
    const int64_t panels = (all.outputs + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t most = std::max<int64_t>(BLOCK_ROWS, CACHED / all.inputs);
    const int64_t chunks = (all.tokens + most - 1) / most;
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < chunks * panels; task++) {
        const int64_t chunk = task / panels;
        multiply_rows<A>(all, all.tokens * chunk / chunks, all.tokens * (chunk + 1) / chunks, task % panels);
    }
}

inline int multiply(const Product *all) {
    if (!all || !all->panels || !all->bias || (all->tokens && !(all->x && all->output))) return BAD_ARGUMENT;
    if (all->tokens < 0 || all->inputs < 1 || all->outputs < 1 || (uintptr_t)all->panels % 64) return BAD_ARGUMENT;
    switch (all->activation) {
        case NONE: return multiply_all<Identity>(*all), DONE;
        case RELU: return multiply_all<Relu>(*all), DONE;
        case GELU: return multiply_all<Gated<Gelu>>(*all), DONE;
        case GELU_TANH: return multiply_all<Gated<GeluTanh>>(*all), DONE;
        case SILU: return multiply_all<Gated<Silu>>(*all), DONE;
        default: return BAD_ARGUMENT;
    }
}

}  // namespace HEADLIGHT_NAMESPACE
