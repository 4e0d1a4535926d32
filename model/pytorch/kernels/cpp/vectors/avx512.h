// Vectors of sixteen lanes, for processors with AVX-512 (F, BW, VL, DQ).
#pragma once

#include <immintrin.h>

namespace HEADLIGHT_NAMESPACE {

constexpr int LANES = 16;
constexpr int BLOCK_ROWS = 8, BLOCK_VECTORS = 3;  // of a product's sums: 24 of 32 registers
constexpr int UNROLLED = 1;  // steps of a product in a turn of its loop
constexpr bool MULTIPLIES_BY_LANES = false;  // loads broadcast words at no cost

using Floats = __m512;
using Words = __m512i;
// Words as integers. Not __m512i: of that type, GCC 12 keeps the sums of a product in memory, at half the speed.
using Integers = __v16si;
using Mask = __mmask16;
constexpr Mask ALL_LANES = 0xffff;

// The lanes of the vector starting at j whose index is below n.
inline Mask lanes_below(int64_t j, int64_t n) {
    return n - j >= LANES ? (__mmask16)0xffff : n > j ? (__mmask16)((1u << (n - j)) - 1) : (__mmask16)0;
}

inline Floats zeros() { return _mm512_setzero_ps(); }
inline Floats broadcast(float x) { return _mm512_set1_ps(x); }
inline Floats lane_numbers() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

inline Floats load_aligned(const float *from) { return _mm512_load_ps(from); }
inline Floats load_some(const float *from, Mask lanes) { return _mm512_maskz_loadu_ps(lanes, from); }  // elsewhere 0
inline Floats load_some_float16(const uint16_t *from, Mask lanes) {  // elsewhere 0
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, from));
}
inline Floats load_some_bfloat16(const uint16_t *from, Mask lanes) {  // elsewhere 0
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from)), 16));
}
inline void store_aligned(float *to, Floats x) { _mm512_store_ps(to, x); }
inline void store_some(float *to, Floats x, Mask lanes) { _mm512_mask_storeu_ps(to, lanes, x); }
inline void store_some_as_float16(uint16_t *to, Floats x, Mask lanes) {
    _mm256_mask_storeu_epi16(to, lanes, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// `a` in lanes where x has a minus sign, elsewhere b.
inline Floats where_negative(Floats x, Floats a, Floats b) {
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), b, a);
}
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats sub(Floats a, Floats b, Mask lanes) { return _mm512_maskz_sub_ps(lanes, a, b); }  // elsewhere 0
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // b if either is a NaN
inline Floats max(Floats a, Floats b, Mask lanes) { return _mm512_mask_max_ps(a, lanes, a, b); }  // elsewhere a
inline Floats abs(Floats x) { return _mm512_abs_ps(x); }
inline Floats keep(Floats x, Mask lanes) { return _mm512_maskz_mov_ps(lanes, x); }  // elsewhere 0
inline Floats round_to_whole(Floats x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Floats round_down(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
inline Floats above_whole(Floats x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }  // x − ⌊x⌋
inline Floats near_reciprocal(Floats x) { return _mm512_rcp14_ps(x); }  // with a relative error below 2⁻¹⁴

// x · 2ⁿ for x in [½, 2), with n rounded down. Below 2⁻¹²⁵ the result is 0, as in avx2.h. A NaN stays a NaN.
inline Floats scale_by_power_of_two(Floats x, Floats n) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, broadcast(-125), _CMP_NLT_UQ), x, n);
}

inline Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }  // a·b + c
inline Floats fmadd(Floats a, Floats b, Floats c, Mask lanes) {                         // elsewhere c
    return _mm512_mask3_fmadd_ps(a, b, c, lanes);
}
inline Floats fmsub(Floats a, Floats b, Floats c) { return _mm512_fmsub_ps(a, b, c); }  // a·b − c

inline float sum_of_lanes(Floats x) { return _mm512_reduce_add_ps(x); }
inline float max_of_lanes(Floats x) { return _mm512_reduce_max_ps(x); }

inline Words zero_words() { return _mm512_setzero_si512(); }
inline Words broadcast_word(uint32_t word) { return _mm512_set1_epi32((int)word); }
inline Words load_words(const void *from) { return _mm512_loadu_si512(from); }
inline Words load_some_words(const void *from, Mask lanes) { return _mm512_maskz_loadu_epi32(lanes, from); }  // elsewhere 0
inline Words load_aligned_words(const void *from) { return _mm512_load_si512(from); }
inline void store_aligned_words(void *to, Words words) { _mm512_store_si512(to, words); }
inline void store_some_words(void *to, Words words, Mask lanes) { _mm512_mask_storeu_epi32(to, lanes, words); }
inline Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
inline Words sub_words(Words a, Words b) { return _mm512_sub_epi32(a, b); }
inline Words words_of(Floats x) { return _mm512_cvtps_epi32(x); }  // rounded
inline Floats gather(const float *from, Words places, Mask lanes) {  // elsewhere 0
    return _mm512_mask_i32gather_ps(zeros(), lanes, places, from, 4);
}
inline Floats as_floats(Words words) { return _mm512_castsi512_ps(words); }
inline Words as_words(Floats x) { return _mm512_castps_si512(x); }
inline Floats floats_of(Words words) { return _mm512_cvtepi32_ps(words); }  // rounded

inline Words max_words(Words a, Words b) { return _mm512_max_epi32(a, b); }
inline int32_t max_of_words(Words words) { return _mm512_reduce_max_epi32(words); }
inline int32_t sum_of_words(Words words) { return _mm512_reduce_add_epi32(words); }

// The numbers of four vectors, in order, as bytes with a sign; what these cannot hold is the nearest that they can.
inline Words bytes_of(const Words numbers[4]) {
    const Words first = _mm512_packs_epi32(numbers[0], numbers[1]), second = _mm512_packs_epi32(numbers[2], numbers[3]);
    const Words order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second));
}

// a + b·c, summed over the four bytes of each word, of which those of b have no sign. Without VNNI the products of up to two
// words are summed in sixteen bits.
template <int WORDS>
inline Integers multiply_bytes(Integers a, const Words (&b)[WORDS], const Words (&c)[WORDS]) {
#ifdef __AVX512VNNI__
    for (int w = 0; w < WORDS; w++) a = (Integers)_mm512_dpbusd_epi32((Words)a, b[w], c[w]);
    return a;
#else
    static_assert(WORDS <= 2);
    Words halves = _mm512_maddubs_epi16(b[0], c[0]);
    if constexpr (WORDS == 2) halves = _mm512_add_epi16(halves, _mm512_maddubs_epi16(b[1], c[1]));
    return a + (Integers)_mm512_madd_epi16(halves, _mm512_set1_epi16(1));
#endif
}

// Transpose 16 rows of 16 words in place.
inline void transpose(Words r[LANES]) {
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

}  // namespace HEADLIGHT_NAMESPACE
