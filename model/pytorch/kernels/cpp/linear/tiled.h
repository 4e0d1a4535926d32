// A linear layer in bfloat16 with AMX: activation(x Wᵀ + b), with sums in tiles.
//
// As in linear.h, the weights lie in panels, each of which is multiplied by one block of rows of x after the other. A block
// is one or two tiles of rows and a panel two tiles of columns, so that four loads give four products. Each thread first
// copies the rows that it multiplies: tiles are loaded twice as fast where their rows lie one after the other.
//
// While tiles multiply a block, vectors round and write the sums of the one before, a few rows after each pair of products.
#pragma once

#include "linear.h"
#include "../scratch.h"
#include "../tiles.h"

namespace HEADLIGHT_NAMESPACE {

constexpr int64_t TILED_COLUMNS = 2 * TILE_WORDS;
// Rows of x that are multiplied by all panels in turn, and their bytes: they stay in the second-level cache.
constexpr int64_t MOST_ROWS = 256, COPIED_BYTES = 3 << 18;

// How some rows are cut into blocks, all of the same size, so that tiles are configured once: the last block begins early
// enough, and so does the second tile of a block. Rows that are computed twice have the same bits both times.
struct Blocks {
    int64_t count, size, tile;  // blocks, and the rows of a block and of each of its tiles

    explicit Blocks(int64_t rows)
        : count((rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS)),
          size((rows + count - 1) / count),
          tile(size > TILE_ROWS ? (size + 1) / 2 : size) {}

    int64_t second() const { return size - tile; }  // the first row of the second tile
    int64_t first(int64_t block, int64_t rows) const { return std::min(block * size, rows - size); }
};

// The product as one thread computes it, with activation A.
template <class A>
class Tiled {
   public:
    // `memory` has room for `bytes(rows)`: as many rows as are multiplied at a time, at most.
    Tiled(const Product &all, char *memory)
        : all_(all), words_(all.linear.inputs / Bfloat16::PER_WORD), parts_(all.linear.gated ? 2 : 1), copies_((uint32_t *)memory) {}

    ~Tiled() {
        if (configured_) tile_release();
    }

    static int64_t bytes(int64_t rows, int64_t inputs) {
        const int64_t most = rows + 2 * TILE_ROWS;  // a block may begin early
        return most * rounded_up(inputs / Bfloat16::PER_WORD, TILE_WORDS) * 4;
    }

    // Multiply the rows from `start` to below `stop` from now on.
    void take(int64_t start, int64_t stop) {
        if (start == start_ && stop == stop_) return;
        start_ = start, stop_ = stop;
        const Blocks blocks(stop - start);
        if (blocks.tile != configured_) configure(blocks.tile);
        for (int64_t b = 0; b < blocks.count; b++) {
            const auto *from = (const uint32_t *)all_.x + (start + blocks.first(b, stop - start)) * words_;
            uint32_t *to = copy(b, blocks);
            for (int64_t w = 0; w < words_; w += TILE_WORDS)
                for (int64_t row = 0; row < blocks.size; row++, to += TILE_WORDS)
                    store_aligned_words(to, load_some_words(from + row * words_ + w, lanes_below(w, words_)));
        }
    }

    // Multiply them by one panel, or by one of gates and that of their values.
    void multiply(int64_t panel) {
        const Blocks blocks(stop_ - start_);
        for (int64_t b = 0; b < blocks.count; b++) {
            if (blocks.count > 1)
                multiply_block<true, true>(b, blocks, panel);
            else if (blocks.second())
                multiply_block<true, false>(b, blocks, panel);
            else
                multiply_block<false, false>(b, blocks, panel);
            const int64_t first = start_ + blocks.first(b, stop_ - start_);
            unwritten_ = {sums_[turn_], first, first + blocks.size, panel * TILED_COLUMNS};
            turn_ = !turn_;
        }
    }

    // Write what is left.
    void finish() { write(unwritten_.stop - unwritten_.row); }

   private:
    // The tiles 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 columns of a panel.
    void configure(int64_t rows) {
        Configuration configuration;
        for (int tile = 0; tile < 6; tile++) configuration.rows[tile] = (uint8_t)rows;
        asm volatile("" ::"r"(&configuration) : "memory");  // compilers assume that LDTILECFG reads 8 bytes
        tile_configure(&configuration);
        configured_ = rows;
    }

    // The rows of a block, (words / 16, size, 16), filled up with zeros.
    uint32_t *copy(int64_t block, const Blocks &blocks) const {
        return copies_ + block * blocks.size * rounded_up(words_, TILE_WORDS);
    }

    template <bool TWO, bool MANY>
    void multiply_block(int64_t block, const Blocks &blocks, int64_t panel) {
        const int64_t steps = (words_ + TILE_WORDS - 1) / TILE_WORDS, whole = words_ / TILE_WORDS, second = blocks.second();
        const int64_t rows = (unwritten_.stop - unwritten_.row + parts_ * steps - 1) / (parts_ * steps);
        const uint32_t *weights = (const uint32_t *)all_.linear.panels + panel * parts_ * words_ * TILED_COLUMNS;
        for (int64_t part = 0; part < parts_; part++, weights += words_ * TILED_COLUMNS) {
            const uint32_t *left = copy(block, blocks);
            begin<TWO>();
            for (int64_t step = 0; step < whole; step++, left += blocks.size * TILE_WORDS) {
                add_first<MANY>(left, weights + step * TILE_WORDS * TILED_COLUMNS);
                write(rows / 2);
                if (TWO) add_second<MANY>(left + second * TILE_WORDS);
                write(rows - rows / 2);
            }
            if (whole < steps) add_rest<TWO>(left, second, weights + whole * TILE_WORDS * TILED_COLUMNS);
            store<TWO>(sums_[turn_] + part * TILED_COLUMNS, second, parts_ * TILED_COLUMNS);
        }
        finish();
    }

    template <bool TWO>
    static void begin() {
        asm volatile("" ::: "memory");  // force pending stores: compilers do not know that tiles load this memory
        tile_zero(0);
        tile_zero(1);
        if (TWO) {
            tile_zero(2);
            tile_zero(3);
        }
    }

    // Add the products of 16 words by the first tile of rows. Of MANY blocks, the panel stays in the first-level cache and rows
    // pass through.
    template <bool MANY>
    static void add_first(const uint32_t *left, const uint32_t *right) {
        tile_load(6, right, TILED_COLUMNS * 4);
        tile_load(7, right + TILE_WORDS, TILED_COLUMNS * 4);
        if (MANY)
            tile_load_once(4, left, TILE_WORDS * 4);
        else
            tile_load(4, left, TILE_WORDS * 4);
        tile_multiply(0, 4, 6);
        tile_multiply(1, 4, 7);
    }

    // The same by the second tile, afterwards.
    template <bool MANY>
    static void add_second(const uint32_t *left) {
        if (MANY)
            tile_load_once(5, left, TILE_WORDS * 4);
        else
            tile_load(5, left, TILE_WORDS * 4);
        tile_multiply(2, 5, 6);
        tile_multiply(3, 5, 7);
    }

    // Add the products of the last words of a panel, fewer than 16.
    template <bool TWO>
    void add_rest(const uint32_t *left, int64_t second, const uint32_t *right) const {
        alignas(64) uint32_t filled[TILE_WORDS * TILED_COLUMNS] = {};
        std::memcpy(filled, right, words_ % TILE_WORDS * TILED_COLUMNS * sizeof *right);
        asm volatile("" ::: "memory");
        add_first<false>(left, filled);
        if (TWO) add_second<false>(left + second * TILE_WORDS);
    }

    template <bool TWO>
    static void store(float *sums, int64_t second, int64_t columns) {
        tile_store(0, sums, columns * 4);
        tile_store(1, sums + TILE_WORDS, columns * 4);
        if (TWO) {
            tile_store(2, sums + second * columns, columns * 4);
            tile_store(3, sums + second * columns + TILE_WORDS, columns * 4);
        }
    }

    // Write some of the rows that are not written yet.
    void write(int64_t rows) {
        const int64_t first = unwritten_.row, stop = std::min(first + rows, unwritten_.stop), column = unwritten_.column;
        const float *sums = unwritten_.sums;
        unwritten_.row = stop;
        unwritten_.sums += (stop - first) * parts_ * TILED_COLUMNS;
        if (!all_.linear.gated && column + TILED_COLUMNS <= all_.linear.outputs) return write_whole(first, stop, column, sums);
        for (int64_t row = first; row < stop; row++, sums += parts_ * TILED_COLUMNS)
            for (int64_t v = 0; v < TILED_COLUMNS; v += LANES)
                write_sums<Bfloat16, A>(all_, row, column + v, sums + v, TILED_COLUMNS);
    }

    // The same for all columns of a panel without a gate, in less time.
    void write_whole(int64_t first, int64_t stop, int64_t column, const float *sums) const {
        auto *output = (uint16_t *)all_.output + column;
        const Floats bias = load_some(all_.linear.bias + column, ALL_LANES), other = load_some(all_.linear.bias + column + LANES, ALL_LANES);
        for (int64_t row = first; row < stop; row++, sums += TILED_COLUMNS) {
            const Floats low = A::apply(add(load_aligned(sums), bias)), high = A::apply(add(load_aligned(sums + LANES), other));
            _mm512_storeu_si512(output + row * all_.linear.outputs, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }

    struct Unwritten {
        const float *sums;
        int64_t row, stop, column;
    };

    const Product &all_;
    const int64_t words_, parts_;
    uint32_t *const copies_;
    int64_t start_ = 0, stop_ = 0;  // the rows that are copied
    int64_t configured_ = 0;        // the rows of a tile
    Unwritten unwritten_ = {};
    bool turn_ = false;
    alignas(64) float sums_[2][2 * TILE_ROWS * 2 * TILED_COLUMNS];
};

// All rows and panels.
template <class A>
int multiply_all_tiled(const Product &all) {
    const int64_t panels = (width(all) + TILED_COLUMNS - 1) / TILED_COLUMNS;
    const int64_t most = std::clamp(COPIED_BYTES / (2 * all.linear.inputs), 2 * TILE_ROWS, MOST_ROWS);
    const int64_t chunks = (all.tokens + most - 1) / most;
    return on_every_thread([&all, panels, chunks] {
        const int64_t rows = chunks ? (all.tokens + chunks - 1) / chunks : 0;
        char *memory = reserve_scratch(Tiled<A>::bytes(rows, all.linear.inputs));
        Tiled<A> tiled(all, memory);
        Work work(all.steps);
#pragma omp for schedule(static) nowait
        for (int64_t task = 0; task < chunks * panels; task++) {
            if (!memory) continue;
            const int64_t chunk = task / panels, panel = task % panels;
            const int64_t start = all.tokens * chunk / chunks, stop = all.tokens * (chunk + 1) / chunks;
            tiled.take(start, stop);
            tiled.multiply(panel);
            work.add((stop - start) * TILED_COLUMNS * all.linear.inputs * (all.linear.gated ? 2 : 1));
        }
        tiled.finish();
        return memory ? DONE : NO_MEMORY;
    });
}

inline int multiply_tiled(const Product *all) {
    if (!fits(all) || !fits(all->linear.panels, all->linear.inputs, Bfloat16::PER_WORD)) return BAD_ARGUMENT;
    return with_activation<Bfloat16>(all->linear.activation,
                                     [all](auto activation) { return multiply_all_tiled<decltype(activation)>(*all); });
}

}  // namespace HEADLIGHT_NAMESPACE
