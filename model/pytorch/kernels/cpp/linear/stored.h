// A linear layer in float32 with weights as the file of a checkpoint holds them: where it is mapped, they take no memory that
// the system cannot have back.
//
// Each panel is laid out as `linear.h` wants it when its turn comes, while the rows of the next one are fetched, and then
// multiplied by all rows. So results have the same bits as with panels that were laid out once, and the weights are read
// from memory once.
#pragma once

#include "../scratch.h"
#include "linear.h"

namespace HEADLIGHT_NAMESPACE {

// A row of the weights, of float32 or 16-bit numbers.
struct StoredRow {
    const char *numbers = nullptr;
    int32_t type = FLOAT32;

    int64_t size() const { return type == FLOAT32 ? 4 : 2; }  // of a number in bytes

    // A vector of numbers, from i on, as words of float32.
    Words load(int64_t i, Mask lanes) const {
        if (type == FLOAT32) return load_some_words(numbers + i * 4, lanes);
        const auto *halves = (const uint16_t *)numbers + i;
        return as_words(type == FLOAT16 ? load_some_float16(halves, lanes) : load_some_bfloat16(halves, lanes));
    }
};

// Find row o, one of all.
inline StoredRow find_row(const Product &all, int64_t o) {
    const StoredRows *part = all.linear.stored;
    for (; o >= part->count; part++) o -= part->count;
    StoredRow row{(const char *)part->first, part->type};
    row.numbers += o * all.linear.inputs * row.size();
    return row;
}

// Lay out the rows from `first` to below `stop`, as many as a panel has columns; what is beyond is zero.
inline void lay_out_panel(const Product &all, int64_t first, int64_t stop, float *panel) {
    for (int64_t column = 0; column < PANEL_COLUMNS; column += LANES) {
        StoredRow rows[LANES];
        for (int64_t r = 0, o = first + column; r < LANES && o < stop; r++, o++) rows[r] = find_row(all, o);
        for (int64_t i = 0; i < all.linear.inputs; i += LANES) {
            const Mask lanes = lanes_below(i, all.linear.inputs);
            Words words[LANES];
            for (int r = 0; r < LANES; r++) {
                words[r] = rows[r].numbers ? rows[r].load(i, lanes) : zero_words();
                if (rows[r].numbers) fetch(rows[r].numbers + (PANEL_COLUMNS * all.linear.inputs + i) * rows[r].size());
            }
            transpose(words);
            const int64_t some = std::min<int64_t>(LANES, all.linear.inputs - i);
            for (int64_t r = 0; r < some; r++) store_aligned_words(panel + (i + r) * PANEL_COLUMNS + column, words[r]);
        }
    }
}

// All rows and panels.
template <class A>
int multiply_all_stored(const Product &all) {
    const int64_t size = width(all), panels = (size + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const int64_t numbers = PANEL_COLUMNS * all.linear.inputs;
    return on_every_thread([&all, size, panels, numbers] {
        auto *panel = (float *)reserve_scratch((all.linear.gated ? 2 : 1) * numbers * sizeof(float));
        Work work(all.steps);
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < panels; task++) {
            if (!panel) continue;
            const int64_t first = task * PANEL_COLUMNS;
            lay_out_panel(all, first, size, panel);
            if (all.linear.gated) lay_out_panel(all, size + first, all.linear.outputs, panel + numbers);
            multiply_rows<Float32, A>(all, 0, all.tokens, task, (const uint32_t *)panel);
            work.add(all.tokens * numbers);
        }
        return panel ? DONE : NO_MEMORY;
    });
}

// Whether the parts are there, and all rows in them.
inline bool all_stored(const Linear &linear) {
    if (!linear.stored) return false;
    int64_t rows = 0;
    for (int64_t i = 0; i < linear.parts; i++) {
        const StoredRows &part = linear.stored[i];
        if (!part.first || part.count < 1 || part.type < FLOAT32 || part.type > BFLOAT16) return false;
        rows += part.count;
    }
    return rows == linear.outputs;
}

inline int multiply_stored(const Product *all) {
    if (!fits(all) || !all_stored(all->linear)) return BAD_ARGUMENT;
    return with_activation<Float32>(all->linear.activation,
                                    [all](auto activation) { return multiply_all_stored<decltype(activation)>(*all); });
}

}  // namespace HEADLIGHT_NAMESPACE
