// Vectors of eight lanes, for processors with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

namespace HEADLIGHT_NAMESPACE {

constexpr int LANES = 8;
constexpr int BLOCK_ROWS = 6, BLOCK_VECTORS = 2;  // of a product's sums: 12 of 16 registers
constexpr int UNROLLED = 4;  // steps of a product in a turn of its loop
constexpr bool MULTIPLIES_BY_LANES = false;  // loads broadcast words at no cost

using Floats = __m256;
using Words = __m256i;
using Integers = __v8si;  // words, as in avx512.h
// How many lanes are selected, from the first on. Nearly every vector is whole: a comparison finds that sooner than
// these processors store under a mask.
using Mask = int;
constexpr Mask ALL_LANES = LANES;

// The lanes of the vector starting at j whose index is below n.
inline Mask lanes_below(int64_t j, int64_t n) { return n - j >= LANES ? LANES : n > j ? (int)(n - j) : 0; }

// All bits of the selected lanes.
inline __m256i bits_of(Mask lanes) {
    alignas(64) static constexpr int32_t BITS[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(BITS + LANES - lanes));
}

inline Floats zeros() { return _mm256_setzero_ps(); }
inline Floats broadcast(float x) { return _mm256_set1_ps(x); }
inline Floats lane_numbers() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

inline Floats load_aligned(const float *from) { return _mm256_load_ps(from); }
inline Floats load_some(const float *from, Mask lanes) {  // elsewhere 0
    return lanes == LANES ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, bits_of(lanes));
}
inline __m128i load_some_halves(const uint16_t *from, Mask lanes) {  // elsewhere 0
    if (lanes == LANES) return _mm_loadu_si128((const __m128i *)from);
    uint16_t halves[LANES] = {};
    std::memcpy(halves, from, lanes * sizeof *from);
    return _mm_loadu_si128((const __m128i *)halves);
}
inline Floats load_some_float16(const uint16_t *from, Mask lanes) { return _mm256_cvtph_ps(load_some_halves(from, lanes)); }
inline Floats load_some_bfloat16(const uint16_t *from, Mask lanes) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_some_halves(from, lanes)), 16));
}
inline void store_aligned(float *to, Floats x) { _mm256_store_ps(to, x); }
inline void store_some(float *to, Floats x, Mask lanes) {
    if (lanes == LANES)
        _mm256_storeu_ps(to, x);
    else
        _mm256_maskstore_ps(to, bits_of(lanes), x);
}
inline void store_some_as_float16(uint16_t *to, Floats x, Mask lanes) {
    const __m128i halves = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    if (lanes == LANES)
        _mm_storeu_si128((__m128i *)to, halves);
    else
        std::memcpy(to, &halves, lanes * sizeof *to);
}

inline Floats keep(Floats x, Mask lanes) {  // elsewhere 0
    return _mm256_and_ps(x, _mm256_castsi256_ps(bits_of(lanes)));
}
// `a` in lanes where x has a minus sign, elsewhere b.
inline Floats where_negative(Floats x, Floats a, Floats b) { return _mm256_blendv_ps(b, a, x); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats sub(Floats a, Floats b, Mask lanes) { return keep(sub(a, b), lanes); }  // elsewhere 0
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }  // b if either is a NaN
inline Floats max(Floats a, Floats b, Mask lanes) {                    // elsewhere a
    return _mm256_blendv_ps(a, max(a, b), _mm256_castsi256_ps(bits_of(lanes)));
}
inline Floats abs(Floats x) { return _mm256_andnot_ps(broadcast(-0.0f), x); }
inline Floats round_to_whole(Floats x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// x · 2ⁿ for x in [½, 2): n is added to the exponent. Below 2⁻¹²⁵ the result is 0: products with the subnormal numbers
// that it would be are slow, and no sum of weights that has a 1 in it notices them. A NaN stays a NaN.
inline Floats scale_by_power_of_two(Floats x, Floats n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const Floats scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
    return _mm256_and_ps(scaled, _mm256_cmp_ps(n, broadcast(-125), _CMP_NLT_UQ));
}

inline Floats fmadd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }  // a·b + c
inline Floats fmadd(Floats a, Floats b, Floats c, Mask lanes) {                         // elsewhere c
    return _mm256_blendv_ps(c, fmadd(a, b, c), _mm256_castsi256_ps(bits_of(lanes)));
}
inline Floats fmsub(Floats a, Floats b, Floats c) { return _mm256_fmsub_ps(a, b, c); }  // a·b − c

inline float sum_of_lanes(Floats x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float max_of_lanes(Floats x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

inline Words zero_words() { return _mm256_setzero_si256(); }
inline Words broadcast_word(uint32_t word) { return _mm256_set1_epi32((int)word); }
inline Words load_words(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
inline Words load_some_words(const void *from, Mask lanes) {  // elsewhere 0
    return lanes == LANES ? load_words(from) : _mm256_maskload_epi32((const int *)from, bits_of(lanes));
}
inline Words load_aligned_words(const void *from) { return _mm256_load_si256((const __m256i *)from); }
inline void store_aligned_words(void *to, Words words) { _mm256_store_si256((__m256i *)to, words); }
inline void store_some_words(void *to, Words words, Mask lanes) {
    if (lanes == LANES)
        _mm256_storeu_si256((__m256i *)to, words);
    else
        _mm256_maskstore_epi32((int *)to, bits_of(lanes), words);
}
inline Words add_words(Words a, Words b) { return _mm256_add_epi32(a, b); }
inline Words sub_words(Words a, Words b) { return _mm256_sub_epi32(a, b); }
inline Words words_of(Floats x) { return _mm256_cvtps_epi32(x); }  // rounded
inline Floats gather(const float *from, Words places, Mask lanes) {  // elsewhere 0
    return _mm256_mask_i32gather_ps(zeros(), from, places, _mm256_castsi256_ps(bits_of(lanes)), 4);
}
inline Floats as_floats(Words words) { return _mm256_castsi256_ps(words); }
// Numbers of bfloat16 as float32: 0 to 3 and 8 to 11 of sixteen, and the others.
inline Floats widen_low_halves(Words numbers) { return as_floats(_mm256_unpacklo_epi16(zero_words(), numbers)); }
inline Floats widen_high_halves(Words numbers) { return as_floats(_mm256_unpackhi_epi16(zero_words(), numbers)); }
inline Words as_words(Floats x) { return _mm256_castps_si256(x); }
inline Floats floats_of(Words words) { return _mm256_cvtepi32_ps(words); }  // rounded

inline Words max_words(Words a, Words b) { return _mm256_max_epi32(a, b); }
inline int32_t max_of_words(Words words) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    m = _mm_max_epi32(m, _mm_unpackhi_epi64(m, m));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 1)));
}
inline int32_t sum_of_words(Words words) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 1)));
}

// The numbers of four vectors, in order, as bytes with a sign; what these cannot hold is the nearest that they can.
inline Words bytes_of(const Words numbers[4]) {
    const Words first = _mm256_packs_epi32(numbers[0], numbers[1]), second = _mm256_packs_epi32(numbers[2], numbers[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// a + b·c, as in avx512.h.
template <int WORDS>
inline Integers multiply_bytes(Integers a, const Words (&b)[WORDS], const Words (&c)[WORDS]) {
#ifdef __AVXVNNI__
    for (int w = 0; w < WORDS; w++) a = (Integers)_mm256_dpbusd_avx_epi32((Words)a, b[w], c[w]);
    return a;
#else
    static_assert(WORDS <= 2);
    Words halves = _mm256_maddubs_epi16(b[0], c[0]);
    if constexpr (WORDS == 2) halves = _mm256_add_epi16(halves, _mm256_maddubs_epi16(b[1], c[1]));
    return a + (Integers)_mm256_madd_epi16(halves, _mm256_set1_epi16(1));
#endif
}

// Transpose 8 rows of 8 words in place.
inline void transpose(Words r[LANES]) {
    __m256i t[8];
    for (int i = 0; i < 8; i += 2) {  // pairs of words of two rows
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {  // four words of four rows, in 128-bit lanes
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {  // lanes of rows i and i + 4
        t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

}  // namespace HEADLIGHT_NAMESPACE
