// A linear layer with products in bfloat16: activation(x Wᵀ + b), with x rounded row by row while it is read. It reads and
// writes float32, and has sums in it.
//
// As in linear.h, a panel is multiplied by one block of rows after the other. Partial sums of some inputs stay in registers, as
// in products.h.
#pragma once

#include "../scratch.h"
#include "pairs.h"

namespace HEADLIGHT_NAMESPACE {

constexpr int64_t ROUNDED_ROWS_BYTES = 96 << 10;  // of rows that are multiplied by all panels in turn: they stay in the cache
constexpr int64_t SUMMED_INPUTS = 256;
constexpr int64_t NUMBERS = PAIRED_BYTES / 2;  // of a pair, in the eight bytes of a row or a column

inline int64_t bytes_of_rounded(int64_t inputs) { return rounded_up(inputs, NUMBERS) * 2; }

// Round a row of x to where it lies among others.
inline void round_to_bfloat16(const float *x, int64_t inputs, char *to) {
    for (int64_t j = 0; j < inputs; j += NUMBERS, to += 2 * PAIRED_BYTES) {
        static_assert(NUMBERS == LANES);
        const bfloat16x4_t numbers = vcvt_bf16_f32(load_some(x + j, lanes_below(j, inputs)));
        std::memcpy(to, &numbers, PAIRED_BYTES);
    }
}

// Multiply R rounded rows of so many `bytes` by some panels that follow each other: one, or one of gates and that of their
// values; into `sums` (R, panels, PANEL_COLUMNS).
template <int R>
void multiply_rounded_rows(const char *rows, int64_t bytes, const char *panel, int64_t panels, float *sums) {
    const int64_t count = bytes / PAIRED_BYTES, size = PANEL_COLUMNS * PAIRED_BYTES;  // of what lies together in a panel
    for (int64_t part = 0; part < panels; part++, panel += count * size)
        for (int64_t start = 0; start < count; start += SUMMED_INPUTS / NUMBERS) {
            const int64_t some = std::min(SUMMED_INPUTS / NUMBERS, count - start);
            const char *at = panel + start * size;
            const auto place = [=](int r, int v) { return sums + (r * panels + part) * PANEL_COLUMNS + v * LANES; };
            Floats acc[R][BLOCK_VECTORS];
            for (int r = 0; r < R; r++)
                for (int v = 0; v < BLOCK_VECTORS; v++) acc[r][v] = start ? load_aligned(place(r, v)) : zeros();
            add_paired_products(acc, rows + start * 2 * PAIRED_BYTES, bytes, some, at, at + count * size);
            for (int r = 0; r < R; r++)
                for (int v = 0; v < BLOCK_VECTORS; v++) store_aligned(place(r, v), acc[r][v]);
        }
}

inline void multiply_rounded_rows(int64_t rows, const char *from, int64_t bytes, const char *panel, int64_t panels, float *sums) {
    static_assert(BLOCK_ROWS == 6);
    switch (rows) {
        case 1: return multiply_rounded_rows<1>(from, bytes, panel, panels, sums);
        case 2: return multiply_rounded_rows<2>(from, bytes, panel, panels, sums);
        case 3: return multiply_rounded_rows<3>(from, bytes, panel, panels, sums);
        case 4: return multiply_rounded_rows<4>(from, bytes, panel, panels, sums);
        case 5: return multiply_rounded_rows<5>(from, bytes, panel, panels, sums);
        default: return multiply_rounded_rows<6>(from, bytes, panel, panels, sums);
    }
}

// All rows and panels: each thread rounds the rows that it multiplies.
template <class A>
int multiply_all_in_bfloat16(const Product &all) {
    const int64_t inputs = all.linear.inputs, bytes = bytes_of_rounded(inputs), parts = all.linear.gated ? 2 : 1;
    const int64_t panels = (width(all) + PANEL_COLUMNS - 1) / PANEL_COLUMNS, panel_bytes = parts * bytes * PANEL_COLUMNS;
    const int64_t most = std::max<int64_t>(BLOCK_ROWS, ROUNDED_ROWS_BYTES / bytes);
    const int64_t chunks = (all.tokens + most - 1) / most;
    return on_every_thread([&all, inputs, bytes, parts, panels, panel_bytes, chunks] {
        const int64_t rows = chunks ? (all.tokens + chunks - 1) / chunks : 0;
        char *memory = reserve_scratch(rounded_up(rows, 2) * bytes);
        int64_t held = -1;  // the chunk whose rows are rounded
        Work work(all.steps);
        alignas(64) float sums[BLOCK_ROWS * 2 * PANEL_COLUMNS];
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < chunks * panels; task++) {
            if (!memory) continue;
            const int64_t chunk = task / panels, panel = task % panels;
            const int64_t start = all.tokens * chunk / chunks, count = all.tokens * (chunk + 1) / chunks - start;
            for (int64_t row = 0; chunk != held && row < count; row++)
                round_to_bfloat16((const float *)all.x + (start + row) * inputs, inputs, memory + paired_place(row, bytes));
            held = chunk;
            const auto *weights = (const char *)all.linear.panels + panel * panel_bytes;
            const int64_t pairs = (count + 1) / 2, blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS;
            for (int64_t b = 0; b < blocks; b++) {  // of nearly equal size
                const int64_t first = pairs * b / blocks * 2, next = std::min(count, pairs * (b + 1) / blocks * 2);
                multiply_rounded_rows(next - first, memory + first * bytes, bytes, weights, parts, sums);
                for (int64_t v = 0; v < PANEL_COLUMNS; v += LANES)
                    for (int64_t row = first; row < next; row++)
                        write_sums<Float32, A>(all, start + row, panel * PANEL_COLUMNS + v,
                                               sums + (row - first) * parts * PANEL_COLUMNS + v, PANEL_COLUMNS);
            }
            work.add(count * PANEL_COLUMNS * parts * inputs);
        }
        return memory ? DONE : NO_MEMORY;
    });
}

inline int multiply_in_bfloat16(const Product *all) {
    if (!fits(all) || !fits(all->linear.panels, all->linear.inputs, 1)) return BAD_ARGUMENT;
    return with_activation<Float32>(all->linear.activation,
                                    [all](auto activation) { return multiply_all_in_bfloat16<decltype(activation)>(*all); });
}

}  // namespace HEADLIGHT_NAMESPACE
