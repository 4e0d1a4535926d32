// Vectors of four lanes, for processors with ARM64: all of them have Advanced SIMD.
#pragma once

#include <arm_neon.h>

namespace HEADLIGHT_NAMESPACE {

constexpr int LANES = 4;
constexpr int BLOCK_ROWS = 6, BLOCK_VECTORS = 4;  // of a product's sums: 24 of 32 registers, beside one for each row
constexpr int UNROLLED = 1;  // steps of a product in a turn of its loop
constexpr bool MULTIPLIES_BY_LANES = true;

using Floats = float32x4_t;
using Words = uint32x4_t;
using Integers = int32x4_t;  // words with a sign
using Mask = int;  // how many lanes are selected, from the first on
constexpr Mask ALL_LANES = LANES;

// The lanes of the vector starting at j whose index is below n.
inline Mask lanes_below(int64_t j, int64_t n) { return n - j >= LANES ? LANES : n > j ? (int)(n - j) : 0; }

inline Floats as_floats(Words words) { return vreinterpretq_f32_u32(words); }
inline Words as_words(Floats x) { return vreinterpretq_u32_f32(x); }

// All bits of the selected lanes.
inline Words bits_of(Mask lanes) {
    static constexpr uint32_t NUMBERS[LANES] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(NUMBERS), vdupq_n_u32((uint32_t)lanes));
}

inline Floats zeros() { return vdupq_n_f32(0); }
inline Floats broadcast(float x) { return vdupq_n_f32(x); }
inline Floats lane_numbers() {
    static constexpr float NUMBERS[LANES] = {0, 1, 2, 3};
    return vld1q_f32(NUMBERS);
}

inline Words zero_words() { return vdupq_n_u32(0); }
inline Words broadcast_word(uint32_t word) { return vdupq_n_u32(word); }
inline Words load_words(const void *from) { return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)from)); }
inline Words load_some_words(const void *from, Mask lanes) {  // elsewhere 0
    if (lanes == LANES) return load_words(from);
    uint32_t words[LANES] = {};
    std::memcpy(words, from, lanes * sizeof *words);
    return vld1q_u32(words);
}
inline void store_some_words(void *to, Words words, Mask lanes) { std::memcpy(to, &words, lanes * sizeof words[0]); }
inline Words load_aligned_words(const void *from) { return vld1q_u32((const uint32_t *)from); }
inline void store_aligned_words(void *to, Words words) { vst1q_u32((uint32_t *)to, words); }
inline Words add_words(Words a, Words b) { return vaddq_u32(a, b); }
inline Words sub_words(Words a, Words b) { return vsubq_u32(a, b); }
inline Words words_of(Floats x) { return vreinterpretq_u32_s32(vcvtnq_s32_f32(x)); }  // rounded
inline Floats floats_of(Words words) { return vcvtq_f32_s32(vreinterpretq_s32_u32(words)); }  // rounded
inline Words max_words(Words a, Words b) {
    return vreinterpretq_u32_s32(vmaxq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)));
}
inline int32_t max_of_words(Words words) { return vmaxvq_s32(vreinterpretq_s32_u32(words)); }
inline int32_t sum_of_words(Words words) { return vaddvq_s32(vreinterpretq_s32_u32(words)); }

// The numbers of four vectors, in order, as bytes with a sign; what these cannot hold is the nearest that they can.
inline Words bytes_of(const Words numbers[4]) {
    int16x4_t halves[4];
    for (int v = 0; v < 4; v++) halves[v] = vqmovn_s32(vreinterpretq_s32_u32(numbers[v]));
    const int8x8_t first = vqmovn_s16(vcombine_s16(halves[0], halves[1])), second = vqmovn_s16(vcombine_s16(halves[2], halves[3]));
    return vreinterpretq_u32_s8(vcombine_s8(first, second));
}

inline Floats load_aligned(const float *from) { return vld1q_f32(from); }
inline Floats load_some(const float *from, Mask lanes) { return as_floats(load_some_words(from, lanes)); }  // elsewhere 0
inline uint16x4_t load_some_halves(const uint16_t *from, Mask lanes) {  // elsewhere 0
    if (lanes == LANES) return vld1_u16(from);
    uint16_t halves[LANES] = {};
    std::memcpy(halves, from, lanes * sizeof *from);
    return vld1_u16(halves);
}
inline Floats load_some_float16(const uint16_t *from, Mask lanes) {
    return vcvt_f32_f16(vreinterpret_f16_u16(load_some_halves(from, lanes)));
}
inline Floats load_some_bfloat16(const uint16_t *from, Mask lanes) {
    return as_floats(vshll_n_u16(load_some_halves(from, lanes), 16));
}
// Numbers of bfloat16 as float32: the first four of eight, and the others.
inline Floats widen_low_halves(Words numbers) {
    return as_floats(vshll_n_u16(vget_low_u16(vreinterpretq_u16_u32(numbers)), 16));
}
inline Floats widen_high_halves(Words numbers) { return as_floats(vshll_high_n_u16(vreinterpretq_u16_u32(numbers), 16)); }
inline void store_aligned(float *to, Floats x) { vst1q_f32(to, x); }
inline void store_some(float *to, Floats x, Mask lanes) {
    if (lanes == LANES)
        vst1q_f32(to, x);
    else
        std::memcpy(to, &x, lanes * sizeof *to);
}
inline void store_some_as_float16(uint16_t *to, Floats x, Mask lanes) {
    const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(x));
    std::memcpy(to, &halves, lanes * sizeof *to);
}
inline Floats gather(const float *from, Words places, Mask lanes) {  // elsewhere 0
    float found[LANES] = {};
    for (int i = 0; i < lanes; i++) found[i] = from[(int32_t)places[i]];
    return vld1q_f32(found);
}

inline Floats keep(Floats x, Mask lanes) { return as_floats(vandq_u32(as_words(x), bits_of(lanes))); }  // elsewhere 0
// `a` in lanes where x has a minus sign, elsewhere b.
inline Floats where_negative(Floats x, Floats a, Floats b) {
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), a, b);
}
inline Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Floats sub(Floats a, Floats b) { return vsubq_f32(a, b); }
inline Floats sub(Floats a, Floats b, Mask lanes) { return keep(sub(a, b), lanes); }  // elsewhere 0
inline Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
inline Floats div(Floats a, Floats b) { return vdivq_f32(a, b); }
inline Floats max(Floats a, Floats b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }  // b if either is a NaN
inline Floats max(Floats a, Floats b, Mask lanes) { return vbslq_f32(bits_of(lanes), max(a, b), a); }  // elsewhere a
inline Floats abs(Floats x) { return vabsq_f32(x); }
inline Floats round_to_whole(Floats x) { return vrndnq_f32(x); }

// x · 2ⁿ for x in [½, 2). Below 2⁻¹²⁵ the result is 0, as in avx2.h. A NaN stays a NaN.
inline Floats scale_by_power_of_two(Floats x, Floats n) {
    const Words scaled = vaddq_u32(as_words(x), vshlq_n_u32(words_of(n), 23));
    return as_floats(vbicq_u32(scaled, vcltq_f32(n, broadcast(-125))));
}

inline Floats fmadd(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }  // a·b + c
inline Floats fmadd(Floats a, Floats b, Floats c, Mask lanes) {                    // elsewhere c
    return vbslq_f32(bits_of(lanes), fmadd(a, b, c), c);
}
inline Floats fmsub(Floats a, Floats b, Floats c) { return vfmaq_f32(vnegq_f32(c), a, b); }  // a·b − c

inline float sum_of_lanes(Floats x) { return vaddvq_f32(x); }
inline float max_of_lanes(Floats x) { return vmaxvq_f32(x); }

#ifdef __ARM_FEATURE_DOTPROD
// a + b·c, summed over the four bytes of each word, which have a sign.
template <int WORDS>
inline Integers multiply_bytes(Integers a, const Words (&b)[WORDS], const Words (&c)[WORDS]) {
    for (int w = 0; w < WORDS; w++) a = vdotq_s32(a, vreinterpretq_s8_u32(b[w]), vreinterpretq_s8_u32(c[w]));
    return a;
}
#endif

// Transpose 4 rows of 4 words in place.
inline void transpose(Words r[LANES]) {
    const uint32x4x2_t low = vzipq_u32(r[0], r[2]), high = vzipq_u32(r[1], r[3]);  // words of rows i and i + 2
    const uint32x4x2_t first = vzipq_u32(low.val[0], high.val[0]), last = vzipq_u32(low.val[1], high.val[1]);
    r[0] = first.val[0];
    r[1] = first.val[1];
    r[2] = last.val[0];
    r[3] = last.val[1];
}

// acc + a·b, for lane L of a. For the intrinsic, GCC 12 would load each lane again by itself, and run out of registers;
// `volatile` keeps products that depend on each other apart.
template <int L>
inline Floats add_product(Floats acc, Words a, Floats b) {
    asm volatile("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(acc) : "w"(b), "w"(a), "i"(L));
    return acc;
}

#ifdef __ARM_FEATURE_DOTPROD
// The same for words of four bytes with a sign, whose products are summed.
template <int L>
inline Integers add_product(Integers acc, Words a, Words b) {
    asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(acc) : "w"(b), "w"(a), "i"(L));
    return acc;
}
#endif

// Add the products of one word of each row, in lane L, by V vectors of columns.
template <class P, int L, int R, int V, class Sum>
inline void add_lane(Sum (&acc)[R][V], const Words (&a)[R], const typename P::Right *right) {
    for (int v = 0; v < V; v++) {
        const auto b = P::right(right, v);
        for (int r = 0; r < R; r++) acc[r][v] = add_product<L>(acc[r][v], a[r], b);
    }
}

// The inner loop of `multiply` in products.h. Here a broadcast would take the place of a product, but instructions multiply by
// one lane: so whole vectors of words are loaded of each row.
template <class P, int R, int V, class Rows, class Sum>
[[gnu::always_inline]] inline void add_products(Sum (&acc)[R][V], const Rows &rows, int64_t start, int64_t stop,
                                                int64_t words, const typename P::Right *right, int64_t stride) {
    int64_t w = start;
    for (; w + LANES <= stop; w += LANES) {
        const typename P::Right *at = right + w * stride;
        if (P::PREFETCHES)
            for (int i = 0; i < LANES; i += 64 / (int)(BLOCK_VECTORS * LANES * sizeof *at)) fetch(at + (words + i) * stride);
        Words a[R];
        for (int r = 0; r < R; r++) a[r] = rows.vector_at(r, w - start);
        add_lane<P, 0>(acc, a, at);
        add_lane<P, 1>(acc, a, at + stride);
        add_lane<P, 2>(acc, a, at + 2 * stride);
        add_lane<P, 3>(acc, a, at + 3 * stride);
    }
    for (; w < stop; w++) {
        Words a[R];
        for (int r = 0; r < R; r++) a[r] = rows.at(r, w - start);
        add_lane<P, 0>(acc, a, right + w * stride);
    }
}

}  // namespace HEADLIGHT_NAMESPACE
