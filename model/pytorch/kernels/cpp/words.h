// Matrices of 32-bit words, laid out for products that broadcast one word and multiply it by a vector.
//
// A word is one float32 or a pair of bfloat16. One instruction (VDPBF16PS) multiplies two pairs and adds both
// products, and AMX tiles need the same layout. So all layouts here serve both precisions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "vectors/vector.h"

namespace HEADLIGHT_NAMESPACE {

inline int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A precision: its elements, the step of a product (acc + a·b, summed over the elements of a word), and rounding to it.
struct Float32 {
    using Element = float;
    static constexpr int PER_WORD = 1;
    static constexpr int64_t SUMMED = 16;  // words: longer sums are split into partial sums
    static constexpr bool PREFETCHES = false;  // true: the next matrix on the right follows in memory and is prefetched
    static Floats load(const float *from, Mask lanes) { return load_some(from, lanes); }
    static void store(float *to, Floats x, Mask lanes = ALL_LANES) { store_some(to, x, lanes); }
    static float value(float x) { return x; }
    static float rounded(float x) { return x; }
    static Floats step(Floats acc, Words a, Words b) { return fmadd(as_floats(a), as_floats(b), acc); }
};

#ifdef __AVX512BF16__
struct Bfloat16 {
    using Element = uint16_t;
    static constexpr int PER_WORD = 2;
    static constexpr int64_t SUMMED = 64;
    static constexpr bool PREFETCHES = false;
    static __m512 load(const uint16_t *from, __mmask16 lanes) {
        const __m256i halves = _mm256_maskz_loadu_epi16(lanes, from);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static void store(uint16_t *to, __m512 x, __mmask16 lanes = 0xffff) {
        _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(x));
    }
    static float value(uint16_t x) { return _mm512_cvtss_f32(load(&x, 1)); }
    static uint16_t rounded(float x) {
        uint16_t to;
        store(&to, broadcast(x), 1);
        return to;
    }
    static __m512 step(__m512 acc, __m512i a, __m512i b) {
        return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
    }
};
#endif

// Transpose keys: n rows of `words` words, `stride` words apart, into panels (panels, words, PANEL) of columns; padding is
// zero. Within a panel, memory is read in order; long rows would be powers of two apart, and compete for the same cache
// lines.
template <int PANEL>
void lay_out_keys(const uint32_t *rows, int64_t stride, int64_t n, int64_t columns, int64_t words,
                         uint32_t *laid_out) {
    for (int64_t j = 0; j < columns; j += LANES) {
        uint32_t *column = laid_out + j / PANEL * PANEL * words + j % PANEL;
        for (int64_t w = 0; w < words; w += LANES) {
            const int some = (int)std::min<int64_t>(LANES, words - w);
            const Mask lanes = lanes_below(w, words);
            Words r[LANES];
            for (int i = 0; i < LANES; i++)
                r[i] = j + i < n ? load_some_words(rows + (j + i) * stride + w, lanes) : zero_words();
            transpose(r);
            for (int i = 0; i < some; i++) store_aligned_words(column + (w + i) * PANEL, r[i]);
        }
    }
}

// Pack values into words of tokens: n rows of `size` elements into (tokens / PER_WORD, size); padding is zero.
inline void lay_out_values(const float *rows, int64_t stride, int64_t n, int64_t tokens, int64_t size,
                           uint32_t *laid_out) {
    for (int64_t j = 0; j < tokens; j++)
        for (int64_t d = 0; d < size; d += LANES)
            store_aligned_words(laid_out + j * size + d, j < n ? load_words(rows + j * stride + d) : zero_words());
}

#ifdef __AVX512BF16__
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
#endif

}  // namespace HEADLIGHT_NAMESPACE
