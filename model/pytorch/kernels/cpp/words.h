// Matrices of 32-bit words, laid out for products that broadcast one word and multiply it by a vector.
//
// A word is one float32 or a pair of bfloat16. One instruction (VDPBF16PS) multiplies two pairs and adds both
// products, and AMX tiles need the same layout. So all layouts here serve both precisions. Without that instruction, a
// pair is expanded to two float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "vectors/vector.h"

namespace HEADLIGHT_NAMESPACE {

inline int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Rows of words on the left of a product, `stride` apart.
class WordRows {
   public:
    WordRows(const uint32_t *words, int64_t stride, int64_t) : words_(words), stride_(stride) {}
    Words at(int row, int64_t w) const { return broadcast_word(words_[row * stride_ + w]); }
    Words vector_at(int row, int64_t w) const { return load_words(words_ + row * stride_ + w); }

   private:
    const uint32_t *words_;
    const int64_t stride_;
};

// A precision: its elements, rounding to them, and the step of a product: acc + a·b, summed over the elements of a word,
// for a word of `Rows` and `right`, vector v of words. `Right` is what the matrix on the right consists of.
struct Float32 {
    using Element = float;
    using Right = uint32_t;
    static constexpr int PER_WORD = 1;
    static constexpr int64_t SUMMED = 16;  // words: longer sums are split into partial sums
    static constexpr bool PREFETCHES = false;  // true: what follows the matrix on the right is the next one, and is fetched
    static Floats load(const float *from, Mask lanes) { return load_some(from, lanes); }
    static void store(float *to, Floats x, Mask lanes = ALL_LANES) { store_some(to, x, lanes); }
    static float value(float x) { return x; }
    static float rounded(float x) { return x; }
    static Floats right(const uint32_t *from, int v) { return as_floats(load_aligned_words(from + v * LANES)); }
    static Floats step(Floats acc, Words a, Floats b) { return fmadd(as_floats(a), b, acc); }
    template <int R, int64_t MOST>
    using Rows = WordRows;
};

#ifdef __AVX512F__
#ifndef __AVX512BF16__
struct Pair {
    __m512 first, second;
};

inline Pair expanded(__m512i words) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000)))};
}

// The same for up to MOST pairs of bfloat16 a row, expanded to float32 once for all columns.
template <int R, int64_t MOST>
class PairRows {
   public:
    PairRows(const uint32_t *words, int64_t stride, int64_t count) {
        for (int r = 0; r < R; r++)
            for (int64_t w = 0; w < count; w += LANES) {
                const Pair pair = expanded(load_some_words(words + r * stride + w, lanes_below(w, count)));
                store_aligned(first_[r] + w, pair.first);
                store_aligned(second_[r] + w, pair.second);
            }
    }
    Pair at(int row, int64_t w) const { return {broadcast(first_[row][w]), broadcast(second_[row][w])}; }

   private:
    static_assert(MOST % LANES == 0);
    alignas(64) float first_[R][MOST], second_[R][MOST];
};
#endif

struct Bfloat16 {
    using Element = uint16_t;
    using Right = uint32_t;
    static constexpr int PER_WORD = 2;
    static constexpr int64_t SUMMED = 64;
    static constexpr bool PREFETCHES = false;
    static __m512 load(const uint16_t *from, __mmask16 lanes) { return load_some_bfloat16(from, lanes); }
    static void store(uint16_t *to, __m512 x, __mmask16 lanes = 0xffff) {
        _mm256_mask_storeu_epi16(to, lanes, rounded(x));
    }
    static float value(uint16_t x) { return _mm512_cvtss_f32(load(&x, 1)); }
    static uint16_t rounded(float x) {
        uint16_t to;
        store(&to, broadcast(x), 1);
        return to;
    }
#ifdef __AVX512BF16__
    static __m256i rounded(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
    static __m512i right(const uint32_t *from, int v) { return load_aligned_words(from + v * LANES); }
    static __m512 step(__m512 acc, __m512i a, __m512i b) {
        return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
    }
    template <int R, int64_t MOST>
    using Rows = WordRows;
#else
    // To the nearest, ties to even; a NaN stays a NaN.
    static __m256i rounded(__m512 x) {
        const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        const __m512i kept = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
    }
    static Pair right(const uint32_t *from, int v) { return expanded(load_aligned_words(from + v * LANES)); }
    static __m512 step(__m512 acc, Pair a, Pair b) { return fmadd(a.second, b.second, fmadd(a.first, b.first, acc)); }
    template <int R, int64_t MOST>
    using Rows = PairRows<R, MOST>;
#endif
};
#endif

// Rows of a sequence, `stride` apart, of which the first ones may be those of another sequence.
template <class Element>
class SequenceRows {
   public:
    // Row i is `own` + i · stride from `count` on, and `shared` + i · stride before.
    SequenceRows(const Element *own, const Element *shared, int64_t count, int64_t stride)
        : own_(own), shared_(shared), count_(count), stride_(stride) {}
    const Element *at(int64_t i) const { return (i < count_ ? shared_ : own_) + i * stride_; }

   private:
    const Element *own_, *shared_;
    const int64_t count_, stride_;
};

// Transpose the keys from `first` to before n, rows of `words` words, into panels (panels, words, PANEL) of columns; padding up
// to column `last` is zero. Within a panel, memory is read in order; long rows would be powers of two apart, and compete for
// the same cache lines.
template <int PANEL, class Element>
void lay_out_keys(const SequenceRows<Element> &rows, int64_t first, int64_t n, int64_t last, int64_t words,
                  uint32_t *laid_out) {
    for (int64_t j = first; j < last; j += LANES) {
        uint32_t *column = laid_out + j / PANEL * PANEL * words + j % PANEL;
        for (int64_t w = 0; w < words; w += LANES) {
            const int some = (int)std::min<int64_t>(LANES, words - w);
            const Mask lanes = lanes_below(w, words);
            Words r[LANES];
            for (int i = 0; i < LANES; i++)
                r[i] = j + i < n ? load_some_words((const uint32_t *)rows.at(j + i) + w, lanes) : zero_words();
            transpose(r);
            for (int i = 0; i < some; i++) store_aligned_words(column + (w + i) * PANEL, r[i]);
        }
    }
}

// Pack values into words of tokens: n rows of `size` elements into (tokens / PER_WORD, size); padding is zero.
inline void lay_out_values(const SequenceRows<float> &rows, int64_t n, int64_t tokens, int64_t size, uint32_t *laid_out) {
    for (int64_t j = 0; j < tokens; j++) {
        const float *row = rows.at(j);
        for (int64_t d = 0; d < size; d += LANES)
            store_aligned_words(laid_out + j * size + d, j < n ? load_words(row + d) : zero_words());
    }
}

#ifdef __AVX512F__
inline void lay_out_values(const SequenceRows<uint16_t> &rows, int64_t n, int64_t tokens, int64_t size, uint32_t *laid_out) {
    const __m256i none = _mm256_setzero_si256();
    for (int64_t j = 0; j < tokens; j += 2) {
        const uint16_t *row = rows.at(j), *after = rows.at(j + 1);
        for (int64_t d = 0; d < size; d += LANES) {
            const __m256i first = j < n ? _mm256_loadu_si256((const __m256i *)(row + d)) : none;
            const __m256i second = j + 1 < n ? _mm256_loadu_si256((const __m256i *)(after + d)) : none;
            const __m512i words = _mm512_or_si512(_mm512_cvtepu16_epi32(first),
                                                  _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
            _mm512_store_si512(laid_out + j / 2 * size + d, words);
        }
    }
}
#endif

}  // namespace HEADLIGHT_NAMESPACE
