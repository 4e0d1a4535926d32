// Products of eight-bit integers with AMX: one or two tiles of rows by panels of three tiles of columns.
//
// TDPBSUD adds to a tile of sums (16 rows, 16 columns) the products of rows with a sign (16 rows, 16 words) and weights without
// one (16 words, 16 columns), which lie as VPDPBUSD reads them: results have the same bits as with it.
#pragma once

#include "integer_rows.h"

namespace HEADLIGHT_NAMESPACE {

static_assert(PANEL_COLUMNS == 3 * TILE_WORDS);

// Configure tiles for blocks of at most so many rows: the tiles 0 to 5 hold sums, 6 rows and 7 weights. Returns the rows of a tile.
inline int64_t begin_tiles(int64_t rows) {
    const int64_t tile = rows > TILE_ROWS ? (rows + 1) / 2 : rows;
    Configuration configuration;
    for (int t = 0; t < 7; t++) configuration.rows[t] = (uint8_t)tile;
    asm volatile("" ::"r"(&configuration) : "memory");  // compilers assume that LDTILECFG reads 8 bytes
    tile_configure(&configuration);
    return tile;
}

inline void end_tiles() { tile_release(); }

// Add to sums the products of one or TWO tiles of rows, the second `tile` rows further, with the words of a panel. Rows lie side
// by side in pieces of 64 bytes, the next pieces `stride` bytes further.
template <bool TWO>
inline void add_tiles(const int8_t *rows, int64_t tile, int64_t stride, const uint32_t *panel, int64_t words) {
    alignas(64) uint32_t filled[TILE_WORDS * PANEL_COLUMNS];
    for (int64_t w = 0; w < words; w += TILE_WORDS, rows += stride, panel += TILE_WORDS * PANEL_COLUMNS) {
        if (words - w < TILE_WORDS) {  // zeros make nothing of what lies behind a row
            std::memset(filled, 0, sizeof filled);
            std::memcpy(filled, panel, (words - w) * PANEL_COLUMNS * sizeof *panel);
            panel = filled;
        }
        asm volatile("" ::: "memory");  // force pending stores: compilers do not know that tiles load this memory
        tile_load(6, rows, PIECE);
        tile_load(7, panel, PANEL_COLUMNS * 4);
        tile_multiply_bytes(0, 6, 7);
        tile_load(7, panel + TILE_WORDS, PANEL_COLUMNS * 4);
        tile_multiply_bytes(1, 6, 7);
        tile_load(7, panel + 2 * TILE_WORDS, PANEL_COLUMNS * 4);
        tile_multiply_bytes(2, 6, 7);
        if constexpr (TWO) {
            tile_load(6, rows + tile * PIECE, PIECE);
            tile_multiply_bytes(5, 6, 7);
            tile_load(7, panel + TILE_WORDS, PANEL_COLUMNS * 4);
            tile_multiply_bytes(4, 6, 7);
            tile_load(7, panel, PANEL_COLUMNS * 4);
            tile_multiply_bytes(3, 6, 7);
        }
        if (panel == filled) return;
    }
}

template <bool TWO>
inline void zero_sums() {
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    if constexpr (TWO) {
        tile_zero(3);
        tile_zero(4);
        tile_zero(5);
    }
}

template <bool TWO>
inline void store_sums(float *to, int64_t tile) {
    tile_store(0, to, PANEL_COLUMNS * 4);
    tile_store(1, to + TILE_WORDS, PANEL_COLUMNS * 4);
    tile_store(2, to + 2 * TILE_WORDS, PANEL_COLUMNS * 4);
    if constexpr (TWO) {
        to += tile * PANEL_COLUMNS;
        tile_store(3, to, PANEL_COLUMNS * 4);
        tile_store(4, to + TILE_WORDS, PANEL_COLUMNS * 4);
        tile_store(5, to + 2 * TILE_WORDS, PANEL_COLUMNS * 4);
    }
}

// Multiply some rounded rows, from `row` on, by a panel, into (rows, PANEL_COLUMNS), with their bias.
template <bool PRECISE, bool TWO>
inline void multiply_integers(int count, const Rounded &x, int64_t row, int64_t inputs, const Panel &panel, float *out) {
    const int64_t words = inputs / BYTES_PER_WORD, stride = x.count * PIECE;
    const int8_t *rows = x.rows + row * PIECE, *low_rows = x.low_rows + row * PIECE;
    alignas(64) float low[PRECISE ? INTEGER_ROWS * PANEL_COLUMNS : 1];
    zero_sums<TWO>();
    add_tiles<TWO>(rows, x.tile, stride, panel.weights, words);
    store_sums<TWO>(out, x.tile);
    if constexpr (PRECISE) {
        zero_sums<TWO>();
        add_tiles<TWO>(rows, x.tile, stride, panel.low_weights, words);
        add_tiles<TWO>(low_rows, x.tile, stride, panel.weights, words);
        store_sums<TWO>(low, x.tile);
    }
    for (int64_t v = 0; v < PANEL_COLUMNS; v += LANES) {
        const Mask lanes = lanes_below(v, panel.columns);
        const Floats scale = load_some(panel.scales + v, lanes), bias = load_some(panel.bias + v, lanes);
        for (int r = 0; r < count; r++) {
            float *place = out + r * PANEL_COLUMNS + v;
            const int32_t start = x.starts[row + r];
            Floats sum = floats_of(add_words(as_words(load_aligned(place)), broadcast_word(start)));
            if constexpr (PRECISE) {
                const Words rest = as_words(load_aligned(low + r * PANEL_COLUMNS + v));
                sum = fmadd(floats_of(add_words(rest, broadcast_word(start + x.low_starts[row + r]))), broadcast(1.0f / LOW_STEPS), sum);
            }
            store_aligned(place, fmadd(sum, mul(scale, broadcast(x.scales[row + r])), bias));
        }
    }
}

template <bool PRECISE>
inline void multiply_integers(int count, const Rounded &x, int64_t row, int64_t inputs, const Panel &panel, float *out) {
    return count > x.tile ? multiply_integers<PRECISE, true>(count, x, row, inputs, panel, out)
                          : multiply_integers<PRECISE, false>(count, x, row, inputs, panel, out);
}

}  // namespace HEADLIGHT_NAMESPACE
