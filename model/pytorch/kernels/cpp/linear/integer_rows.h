// Rows rounded to integers of eight bits, and weights likewise: what products of integers read. See int8.h.
#pragma once

#include <algorithm>

#include "linear.h"
#include "../scratch.h"
#ifdef __AMX_INT8__
#include "../tiles.h"
#endif
#ifdef __aarch64__
#include "int8_arm64.h"
#endif

namespace HEADLIGHT_NAMESPACE {

constexpr int BYTES_PER_WORD = 4;
constexpr int64_t ROUNDED_BYTES = 96 << 10;  // of rows that are multiplied by all panels in turn: they stay in the cache
constexpr int64_t MOST_INPUTS = 1 << 15;     // twice 255 · 127 times as many are less than 2³¹

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
constexpr int STEPS = 127;              // numbers are rounded to −STEPS to STEPS
constexpr int64_t GROUP = MOST_INPUTS;  // inputs with a scale of their own
constexpr int TOGETHER = 1;             // words of a row that are multiplied at once
#ifdef __AMX_INT8__
constexpr int INTEGER_ROWS = 2 * TILE_ROWS;  // of a block
#else
constexpr int INTEGER_ROWS = BLOCK_ROWS;
#endif
#else
constexpr int STEPS = 63;  // four products are at most 4 · 127 · 63 < 2¹⁵
constexpr int64_t GROUP = 64;
constexpr int TOGETHER = 2;
constexpr int INTEGER_ROWS = LANES == 8 ? 4 : BLOCK_ROWS;  // with AVX2 the two words of the weights take four of 16 registers
#endif

#ifdef __ARM_FEATURE_DOTPROD
constexpr int ADDED = 0;  // to weights
#else
constexpr int ADDED = STEPS + 1;
#endif

#ifdef __ARM_FEATURE_MATMUL_INT8
constexpr int64_t ROW_STEP = 2;  // rows lie in pairs: see pairs.h
#else
constexpr int64_t ROW_STEP = 1;
#endif
#ifdef __AMX_INT8__
constexpr int64_t PIECE = 64;  // bytes of a row in a tile: of all rows they lie together
#else
constexpr int64_t PIECE = 1;   // rows are not cut
#endif

constexpr int LOW_STEPS = 2 * STEPS;  // in one step

inline int64_t groups_of(int64_t inputs) { return GROUP < MOST_INPUTS ? (inputs + GROUP - 1) / GROUP : 1; }

// The bytes of a row of so many inputs; with AMX only those of weights, since rows of x have whole pieces.
inline int64_t row_bytes(int64_t inputs) { return ROW_STEP == 1 ? inputs : rounded_up(inputs, 8); }

// The first row of one of some blocks of nearly equal size.
inline int64_t start_of(int64_t block, int64_t blocks, int64_t rows) {
    if constexpr (ROW_STEP == 1) return rows * block / blocks;
    return std::min(rows, (rows + ROW_STEP - 1) / ROW_STEP * block / blocks * ROW_STEP);
}

// `count` rows of x as integers, and what is left over of them. The groups of row i begin at i · groups_of(inputs).
struct Rounded {
    float *scales;
    int32_t *starts, *low_starts;  // of sums of products: less ADDED times the sum of the group
    int8_t *rows, *low_rows;
    int64_t count, tile = 0;  // rows, and those of a tile

    static size_t bytes(int64_t count, int64_t inputs, bool precise) {
        return 12 * count * groups_of(inputs) + (precise ? 2 : 1) * bytes(count, inputs) + 256;
    }
    Rounded(char *memory, int64_t count, int64_t inputs)
        : scales((float *)memory),
          starts((int32_t *)memory + count * groups_of(inputs)),
          low_starts(starts + count * groups_of(inputs)),
          rows((int8_t *)memory + rounded_up(count * groups_of(inputs) * 12, 64)),
          low_rows(rows + rounded_up(bytes(count, inputs), 64)),
          count(count) {}

    // Where an input of a row lies, one that begins a vector: dense, or eight by eight after those of the other row of a pair, or
    // piece by piece after those of the rows before.
    int64_t place(int64_t row, int64_t inputs, int64_t j) const {
        if constexpr (PIECE > 1) return row * PIECE + j * count;
        return ROW_STEP == 1 ? row * inputs + j : row / 2 * 2 * row_bytes(inputs) + row % 2 * 8 + 2 * j;
    }

   private:
    // Of rows; of a tile the last two may not be there.
    static size_t bytes(int64_t count, int64_t inputs) {
        return rounded_up(count, ROW_STEP) * rounded_up(row_bytes(inputs), PIECE) + 2 * PIECE;
    }
};

// A vector of numbers of a row, smoothed.
template <class P>
Floats smoothed(const typename P::Element *x, const float *smoothing, int64_t j, int64_t size) {
    const Mask lanes = lanes_below(j, size);
    return mul(P::load(x + j, lanes), load_some(smoothing + j, lanes));
}

// Store up to four vectors of integers of a row, and add them to a sum.
[[gnu::always_inline]] inline void store_integers(int8_t *to, const Words whole[4], int64_t count, Integers &sum) {
    const Words ones[1] = {broadcast_word(0x01010101)}, bytes[1] = {bytes_of(whole)};
#ifdef __ARM_FEATURE_MATMUL_INT8
    store_paired(to, bytes[0], count);
#else
    store_some_words(to, bytes[0], lanes_below(0, count / BYTES_PER_WORD));
#endif
    sum = multiply_bytes(sum, ones, bytes);
}

// Round a group of `count` inputs of a row of x, of which `numbers` returns the vector at one of them, smoothed. A NaN or an
// infinity makes its scale one, and with it the row of the result.
template <bool PRECISE, class Numbers>
inline void round_group(int64_t count, Numbers numbers, const Rounded &to, int64_t group, int64_t row, int64_t inputs, int64_t j) {
    Words largest = zero_words();  // bits of floats without a sign order as integers, and a NaN is the largest
    for (int64_t i = 0; i < count; i += LANES) largest = max_words(largest, as_words(abs(numbers(i))));
    const int32_t bits = max_of_words(largest);
    float most;
    std::memcpy(&most, &bits, sizeof most);
    to.scales[group] = most / STEPS;
    const Floats by = broadcast(most > 0 ? STEPS / most : 0);
    Integers sum = {}, low_sum = {};
    for (int64_t i = 0; i < count; i += 4 * LANES) {
        Words whole[4], low[4];
        for (int v = 0; v < 4; v++) {
            const Floats value = mul(numbers(i + v * LANES), by);
            whole[v] = words_of(value);
            if (PRECISE) low[v] = words_of(mul(sub(value, floats_of(whole[v])), broadcast(LOW_STEPS)));
        }
        const int64_t place = to.place(row, inputs, j + i);
        store_integers(to.rows + place, whole, count - i, sum);
        if (PRECISE) store_integers(to.low_rows + place, low, count - i, low_sum);
    }
    to.starts[group] = -ADDED * sum_of_words((Words)sum);
    if (PRECISE) to.low_starts[group] = -ADDED * sum_of_words((Words)low_sum);
}

// Round a row of x.
template <class P, bool PRECISE>
void round_row(const typename P::Element *x, const float *smoothing, int64_t size, const Rounded &to, int64_t row) {
    int64_t j = 0, group = row * groups_of(size);
    if constexpr (GROUP <= 8 * LANES)  // a whole one stays in registers
        for (; j + GROUP <= size; j += GROUP, group++) {
            Floats held[GROUP / LANES];
            for (int v = 0; v < GROUP / LANES; v++)
                held[v] = mul(P::load(x + j + v * LANES, ALL_LANES), load_some(smoothing + j + v * LANES, ALL_LANES));
            round_group<PRECISE>(GROUP, [&held](int64_t i) { return held[i / LANES]; }, to, group, row, size, j);
        }
    if (j < size)
        round_group<PRECISE>(size - j, [=](int64_t i) { return smoothed<P>(x, smoothing, j + i, size); }, to, group, row, size, j);
}

// A panel of weights, and what is left over of them, null unless a product is precise.
struct Panel {
    const uint32_t *weights, *low_weights;
    const float *bias, *scales;  // of its columns; those of the next group are `outputs` further
    int64_t columns, outputs;    // the columns that are there, and all of the product
};

}  // namespace HEADLIGHT_NAMESPACE
