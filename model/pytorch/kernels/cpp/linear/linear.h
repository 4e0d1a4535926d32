// A linear layer: activation(x Wᵀ + b), with weights that were laid out once.
//
// The weights lie in panels of as many columns as a product sums in registers. A panel is multiplied by one block of rows
// of x after the other, from the first-level cache for up to about 400 inputs, else from the second; each block fetches a
// share of the next panel meanwhile, and the lines to which its result will go. So each weight is read from memory once for
// many rows, and for few rows at the speed of the memory.
//
// Besides weights and bias, a row of the result depends only on the same row of x: it has the same bits in every batch.
#pragma once

#include <algorithm>

#include "../activation.h"
#include "../interface.h"
#include "../products.h"
#include "../scratch.h"
#include "../shares.h"

namespace HEADLIGHT_NAMESPACE {

constexpr int64_t PANEL_COLUMNS = BLOCK_VECTORS * LANES;
constexpr int64_t CACHED = 3 << 14;  // words of x that are multiplied by all panels in turn: 192 KB of cache
// Of rows of more words, so few rows are cached that memory is too slow for the weights: then inputs come in parts, whose sums for
// so many panels stay in the cache.
constexpr int64_t MOST_WORDS = 1024, SUMMED_PANELS = 16;

// Products with weights, which may be thousands of numbers long: partial sums keep the rounding error below PyTorch's.
template <class P>
struct Weights : P {
    static constexpr int64_t SUMMED = 128;
    static constexpr bool PREFETCHES = true;
};

// The columns of the result.
inline int64_t width(const Product &all) { return all.linear.gated ? all.linear.outputs / 2 : all.linear.outputs; }

// Write some columns of a row of the result, whose sums begin at `at`; those of values lie `values` behind those of their
// gates. P is the precision, A the activation.
template <class P, class A>
inline void write_sums(const Product &all, int64_t row, int64_t column, const float *at, int64_t values) {
    const int64_t size = width(all);
    const Mask lanes = lanes_below(column, size);
    Floats result = A::apply(add(load_aligned(at), load_some(all.linear.bias + column, lanes)));
    if (all.linear.gated) result = mul(result, add(load_aligned(at + values), load_some(all.linear.bias + size + column, lanes)));
    P::store((typename P::Element *)all.output + row * size + column, result, lanes);
}

// Multiply a block of rows of x, number `block` of those that are multiplied by these panels, for the words `from` to before `to`;
// write the result if these are the last.
template <class P, class A>
inline void multiply_block(const Product &all, int64_t first, int64_t next, int64_t panel, const typename P::Right *weights,
                           float *sums, int64_t from, int64_t to, int64_t block, int64_t blocks) {
    const int64_t words = all.linear.inputs / P::PER_WORD, columns = (all.linear.gated ? 2 : 1) * PANEL_COLUMNS;
    const auto *output = (const typename P::Element *)all.output + panel * PANEL_COLUMNS;
    for (int64_t row = first; to == words && row < next; row++)
        for (int64_t v = 0; v < PANEL_COLUMNS; v += 64 / (int64_t)sizeof *output) fetch_to_write(output + row * width(all) + v);
    // Two blocks fetch as one does where a word has several lines: what the first fetches comes while both multiply.
    const bool pair = blocks == 2 && PANEL_COLUMNS * sizeof(typename P::Right) > 64;
    Vectors<Weights<P>>::add_product((int)(next - first), (const uint32_t *)all.x + first * words, words, weights, 0, columns, sums,
                                     columns, from, to, pair ? 0 : block, pair ? 1 : blocks);
    for (int64_t v = 0; to == words && v < PANEL_COLUMNS; v += LANES)
        for (int64_t row = first; row < next; row++)
            write_sums<P, A>(all, row, panel * PANEL_COLUMNS + v, sums + (row - first) * columns + v, PANEL_COLUMNS);
}

// Multiply some rows of x by one panel, or by one of gates and that of their values, which lie at `weights`.
template <class P, class A>
void multiply_rows(const Product &all, int64_t start, int64_t stop, int64_t panel, const typename P::Right *weights) {
    using V = Vectors<Weights<P>>;
    alignas(64) float sums[V::ROWS * 2 * PANEL_COLUMNS];
    const int64_t count = stop - start, blocks = (count + V::ROWS - 1) / V::ROWS;
    for (int64_t b = 0; b < blocks; b++)  // of nearly equal size
        multiply_block<P, A>(all, start + count * b / blocks, start + count * (b + 1) / blocks, panel, weights, sums, 0,
                             all.linear.inputs / P::PER_WORD, b, blocks);
}

// How x is cut for a product, in words of a row.
template <class P>
struct Cut {
    int64_t words, part, most, chunks;  // of a row, of a part of its inputs, and rows of a chunk at most; how many chunks

    explicit Cut(const Product &all) : words(all.linear.inputs / P::PER_WORD), part(words) {
        if (all.tokens * words > CACHED && words > MOST_WORDS) {
            const int64_t parts = (words + MOST_WORDS - 1) / MOST_WORDS;
            part = rounded_up((words + parts - 1) / parts, Weights<P>::SUMMED);
        }
        most = std::max<int64_t>(BLOCK_ROWS, CACHED / part);
        chunks = (all.tokens + most - 1) / most;
    }
};

// Multiply some rows of x by some panels, to one part of the inputs after the other; `sums` has room for all.
template <class P, class A>
void multiply_in_parts(const Product &all, const Cut<P> &cut, int64_t start, int64_t stop, int64_t first, int64_t last, float *sums) {
    using V = Vectors<Weights<P>>;
    const int64_t columns = (all.linear.gated ? 2 : 1) * PANEL_COLUMNS, panel_words = columns * cut.words, count = stop - start;
    const int64_t blocks = (count + V::ROWS - 1) / V::ROWS;
    for (int64_t from = 0; from < cut.words; from += cut.part) {
        const int64_t to = std::min(from + cut.part, cut.words);
        for (int64_t panel = first; panel < last; panel++) {
            const auto *weights = (const typename P::Right *)all.linear.panels + panel * panel_words;
            float *of_panel = sums + (panel - first) * count * columns;
            for (int64_t b = 0; b < blocks; b++) {  // of nearly equal size
                const int64_t row = count * b / blocks, next = count * (b + 1) / blocks;
                multiply_block<P, A>(all, start + row, start + next, panel, weights, of_panel + row * columns, from, to, b, blocks);
            }
        }
    }
}

// All rows and panels, where inputs come in parts.
template <class P, class A>
int multiply_all_in_parts(const Product &all, const Cut<P> &cut, int64_t panels) {
    return on_every_thread([&all, &cut, panels] {
        const int64_t columns = (all.linear.gated ? 2 : 1) * PANEL_COLUMNS, tasks = cut.chunks * panels;
        auto *sums = (float *)reserve_scratch(std::min(SUMMED_PANELS, panels) * cut.most * columns * 4);
        if (!sums) return NO_MEMORY;
        Work work(all.steps);
        const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads(), end = tasks * (thread + 1) / threads;
        for (int64_t task = tasks * thread / threads; task < end;) {
            const int64_t chunk = task / panels, first = task % panels;
            const int64_t last = std::min({first + SUMMED_PANELS, panels, first + end - task});
            const int64_t start = all.tokens * chunk / cut.chunks, stop = all.tokens * (chunk + 1) / cut.chunks;
            multiply_in_parts<P, A>(all, cut, start, stop, first, last, sums);
            work.add((stop - start) * (last - first) * columns * all.linear.inputs);
            task += last - first;
        }
        return DONE;
    });
}

// All rows and panels.
template <class P, class A>
int multiply_all(const Product &all) {
    const int64_t panels = (width(all) + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    const Cut<P> cut(all);
    const int64_t chunks = cut.chunks;
    const int64_t words = (all.linear.gated ? 2 : 1) * PANEL_COLUMNS * cut.words;  // of a panel
    if (cut.part < cut.words) return multiply_all_in_parts<P, A>(all, cut, panels);
    return on_every_thread([&all, panels, chunks, words] {
        Work work(all.steps);
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < chunks * panels; task++) {
            const int64_t chunk = task / panels, panel = task % panels;
            const int64_t start = all.tokens * chunk / chunks, stop = all.tokens * (chunk + 1) / chunks;
            multiply_rows<P, A>(all, start, stop, panel, (const typename P::Right *)all.linear.panels + panel * words);
            work.add((stop - start) * words * P::PER_WORD);
        }
        return DONE;
    });
}

// Whether the arguments of any product go together.
inline bool fits(const Product *all) {
    if (!all || all->tokens < 0 || (all->tokens && !(all->x && all->output))) return false;
    const Linear &linear = all->linear;
    return linear.bias && linear.inputs > 0 && linear.outputs > 0 && !(linear.gated && linear.outputs % 2);
}

// Whether there are panels of words of `per_word` inputs.
inline bool fits(const void *panels, int64_t inputs, int64_t per_word) {
    return panels && (uintptr_t)panels % 64 == 0 && inputs % per_word == 0;
}

template <class P>
int multiply(const Product *all) {
    if (!fits(all) || !fits(all->linear.panels, all->linear.inputs, P::PER_WORD)) return BAD_ARGUMENT;
    return with_activation<P>(all->linear.activation,
                              [all](auto activation) { return multiply_all<P, decltype(activation)>(*all); });
}

}  // namespace HEADLIGHT_NAMESPACE
