// Products of a block of rows with a whole matrix, on AMX: tiles of 16 rows × 64 bytes, of bfloat16 and of eight bits.
//
// TDPBF16PS adds to a tile C (16 rows, 16 float32) the product of A (16 rows, 16 words: 32 bfloat16) and B (16 words,
// 16 columns), which are the layouts of words.h. With two tiles of A and two of B, four loads give four products.
// With HEADLIGHT_EMULATE_TILES, functions replace the instructions, so that tests run this file on any processor.
#pragma once

#include "words.h"

namespace HEADLIGHT_NAMESPACE {

constexpr int64_t TILE_ROWS = 16, TILE_WORDS = 16;

// The operand of LDTILECFG: palette 1, and the rows and bytes per row of eight tiles.
struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

#ifdef HEADLIGHT_EMULATE_TILES
struct Tile {
    uint32_t words[16][16];
};
inline thread_local Tile emulated[8];
inline thread_local Configuration configured;

inline float element(uint32_t word, int half) {
    const uint32_t bits = half ? word & 0xffff0000u : word << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline void tile_zero(int t) { std::memset(&emulated[t], 0, sizeof(Tile)); }
inline void tile_load(int t, const void *from, int64_t bytes) {
    for (int i = 0; i < configured.rows[t]; i++) std::memcpy(emulated[t].words[i], (const char *)from + i * bytes, 64);
}
inline void tile_load_once(int t, const void *from, int64_t bytes) { tile_load(t, from, bytes); }
inline void tile_store(int t, void *to, int64_t bytes) {
    for (int i = 0; i < configured.rows[t]; i++) std::memcpy((char *)to + i * bytes, emulated[t].words[i], 64);
}
inline void tile_multiply(int c, int a, int b) {
    for (int i = 0; i < configured.rows[c]; i++)
        for (int j = 0; j < 16; j++) {
            float sum;
            std::memcpy(&sum, &emulated[c].words[i][j], sizeof sum);
            for (int w = 0; w < 16; w++)
                for (int half = 0; half < 2; half++)
                    sum += element(emulated[a].words[i][w], half) * element(emulated[b].words[w][j], half);
            std::memcpy(&emulated[c].words[i][j], &sum, sizeof sum);
        }
}
inline void tile_multiply_bytes(int c, int a, int b) {
    for (int i = 0; i < configured.rows[c]; i++)
        for (int j = 0; j < 16; j++)
            for (int w = 0; w < 16; w++) {
                int8_t left[4];
                uint8_t right[4];
                std::memcpy(left, &emulated[a].words[i][w], sizeof left);
                std::memcpy(right, &emulated[b].words[w][j], sizeof right);
                for (int k = 0; k < 4; k++) emulated[c].words[i][j] += (uint32_t)(left[k] * right[k]);
            }
}
inline void tile_configure(const Configuration *configuration) { configured = *configuration; }
inline void tile_release() {}
#else
// Macros, because the intrinsics need the tile numbers as literals.
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, from, bytes) _tile_loadd(t, from, bytes)
#define tile_load_once(t, from, bytes) _tile_stream_loadd(t, from, bytes)  // leaves little in the first-level cache
#define tile_store(t, to, bytes) _tile_stored(t, to, bytes)
#define tile_multiply(c, a, b) _tile_dpbf16ps(c, a, b)
#define tile_multiply_bytes(c, a, b) _tile_dpbsud(c, a, b)  // only with amx_int8
#define tile_configure(configuration) _tile_loadconfig(configuration)
#define tile_release() _tile_release()
#endif

// Products with tiles, in bfloat16.
struct Tiles : Bfloat16 {
    static constexpr int ROWS = 32;
    static constexpr int COLUMN_STEP = 32;  // words of weights come in whole tiles
    static constexpr int HEAD_STEP = 32;
    static constexpr int PANEL = 32;

    static void begin() {
        static constexpr Configuration configuration;  // static, so fully in memory: compilers assume that LDTILECFG reads 8 bytes
        tile_configure(&configuration);
    }
    static void end() { tile_release(); }

    // Like those of `Vectors`; `left` and `out` have room for ROWS rows even if `rows` is smaller.
    static void product(int rows, const uint32_t *left, int64_t words, const uint32_t *right, int64_t first,
                        int64_t columns, float *out, int64_t out_stride) {
        for (int64_t j = 0; j < columns; j += PANEL)
            part(rows, left, words, words, right + (first + j) * words, PANEL, out + j, out_stride);
    }

    static void mix(int rows, const uint32_t *left, int64_t left_stride, int64_t words, const uint32_t *right,
                    int64_t columns, float *out) {
        for (int64_t j = 0; j < columns; j += PANEL)
            part(rows, left, left_stride, words, right + j, columns, out + j, columns);
    }

   private:
    static void part(int rows, const uint32_t *left, int64_t left_stride, int64_t words, const uint32_t *right,
                     int64_t stride, float *out, int64_t out_stride) {
        asm volatile("" ::: "memory");  // force pending stores: compilers do not know that tiles load this memory
        if (rows > 16)
            block<true>(left, left_stride, words, right, stride, out, out_stride);
        else
            block<false>(left, left_stride, words, right, stride, out, out_stride);
    }

    // 32 columns of 16 or 32 rows: tiles 0 to 3 hold sums, 4 and 5 `left`, 6 and 7 `right`.
    template <bool TWO>
    static void block(const uint32_t *left, int64_t left_stride, int64_t words, const uint32_t *right, int64_t stride,
                      float *out, int64_t out_stride) {
        tile_zero(0);
        tile_zero(1);
        if (TWO) {
            tile_zero(2);
            tile_zero(3);
        }
        for (int64_t w = 0; w < words; w += 16) {
            tile_load(6, right + w * stride, stride * 4);
            tile_load(7, right + w * stride + 16, stride * 4);
            tile_load(4, left + w, left_stride * 4);
            tile_multiply(0, 4, 6);
            tile_multiply(1, 4, 7);
            if (TWO) {
                tile_load(5, left + 16 * left_stride + w, left_stride * 4);
                tile_multiply(2, 5, 6);
                tile_multiply(3, 5, 7);
            }
        }
        tile_store(0, out, out_stride * 4);
        tile_store(1, out + 16, out_stride * 4);
        if (TWO) {
            tile_store(2, out + 16 * out_stride, out_stride * 4);
            tile_store(3, out + 16 * out_stride + 16, out_stride * 4);
        }
    }
};

}  // namespace HEADLIGHT_NAMESPACE
