// Matrices of 32-bit words, laid out for products that broadcast one word and multiply it by sixteen.
//
// A word is one float32 or a pair of bfloat16. One instruction (VDPBF16PS) multiplies two pairs and adds both
// products, and AMX tiles need the same layout. So all layouts here serve both precisions.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace headlight {

constexpr int LANES = 16;  // words in a 512-bit vector

inline int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A precision: its elements, the step of a product (acc + a·b, summed over the elements of a word), and rounding to it.
struct Float32 {
    using Element = float;
    static constexpr int PER_WORD = 1;
    static constexpr int64_t SUMMED = 16;  // words: longer sums are split into partial sums
    static __m512 load(const float *from, __mmask16 lanes) { return _mm512_maskz_loadu_ps(lanes, from); }
    static void store(float *to, __m512 x, __mmask16 lanes = 0xffff) { _mm512_mask_storeu_ps(to, lanes, x); }
    static __m512 step(__m512 acc, __m512i a, __m512i b) {
        return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), acc);
    }
};

#ifdef __AVX512BF16__
struct Bfloat16 {
    using Element = uint16_t;
    static constexpr int PER_WORD = 2;
    static constexpr int64_t SUMMED = 64;
    static __m512 load(const uint16_t *from, __mmask16 lanes) {
        const __m256i halves = _mm256_maskz_loadu_epi16(lanes, from);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static void store(uint16_t *to, __m512 x, __mmask16 lanes = 0xffff) {
        _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(x));
    }
    static __m512 step(__m512 acc, __m512i a, __m512i b) {
        return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
    }
};
#endif

// The lanes of the vector starting at j whose index is below n.
inline __mmask16 lanes_below(int64_t j, int64_t n) {
    return n - j >= LANES ? (__mmask16)0xffff : n > j ? (__mmask16)((1u << (n - j)) - 1) : (__mmask16)0;
}

// Transpose 16 rows of 16 words in place.
inline void transpose(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {  // pairs of words of two rows
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {  // four words of four rows, in 128-bit lanes
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {  // lanes of rows i, i + 4 and i + 8, i + 12
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

// Transpose keys: n rows of `words` words, `stride` words apart, into (words, columns); padding is zero.
inline void lay_out_keys(const uint32_t *rows, int64_t stride, int64_t n, int64_t columns, int64_t words,
                         uint32_t *laid_out) {
    for (int64_t j = 0; j < columns; j += LANES) {
        for (int64_t w = 0; w < words; w += LANES) {
            __m512i r[LANES];
            for (int i = 0; i < LANES; i++)
                r[i] = j + i < n ? _mm512_loadu_si512(rows + (j + i) * stride + w) : _mm512_setzero_si512();
            transpose(r);
            for (int i = 0; i < LANES; i++) _mm512_store_si512(laid_out + (w + i) * columns + j, r[i]);
        }
    }
}

// Pack values into words of tokens: n rows of `size` elements into (tokens / PER_WORD, size); padding is zero.
inline void lay_out_values(const float *rows, int64_t stride, int64_t n, int64_t tokens, int64_t size,
                           uint32_t *laid_out) {
    for (int64_t j = 0; j < tokens; j++)
        for (int64_t d = 0; d < size; d += LANES)
            _mm512_store_si512(laid_out + j * size + d,
                               j < n ? _mm512_loadu_si512(rows + j * stride + d) : _mm512_setzero_si512());
}

inline void lay_out_values(const uint16_t *rows, int64_t stride, int64_t n, int64_t tokens, int64_t size,
                           uint32_t *laid_out) {
    const __m256i none = _mm256_setzero_si256();
    for (int64_t j = 0; j < tokens; j += 2) {
        for (int64_t d = 0; d < size; d += LANES) {
            const uint16_t *row = rows + j * stride + d;
            const __m256i first = j < n ? _mm256_loadu_si256((const __m256i *)row) : none;
            const __m256i second = j + 1 < n ? _mm256_loadu_si256((const __m256i *)(row + stride)) : none;
            const __m512i words = _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                                                  _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
            _mm512_store_si512(laid_out + j / 2 * size + d, words);
        }
    }
}

}  // namespace headlight
