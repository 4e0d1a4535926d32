// Turns scores into weights, one row at a time, and sums the terms of the statistics on the way.
#pragma once

#include <cmath>

#include "words.h"

namespace headlight {

// Sums over a row of weights before division by `sum`; x are the scores minus the largest score.
struct Row {
    float sum;       // Σ eˣ: the largest weight is 1 / sum
    float product;   // Σ eˣ·x: the entropy is log sum − product / sum
    float distance;  // Σ eˣ·|query − key|
    float special;   // Σ eˣ of special tokens
};

// eˣ for x in [−1000, 0]: 2ᶠ by the minimax polynomial of degree six on [−½, ½] (relative error 7e-9), then the
// exponent. x·log₂e uses log₂e in two parts, the second being the rounding error of the first, so that the error of the
// product does not grow with x.
inline __m512 exponential(__m512 x) {
    const __m512 log2e = _mm512_set1_ps(1.44269502f), rest = _mm512_set1_ps(1.92596299e-8f);
    const __m512 whole =
        _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_fmadd_ps(x, rest, _mm512_fmsub_ps(x, log2e, whole));
    __m512 y = _mm512_set1_ps(1.525245499e-4f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.338593511e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.618504753e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.550371077e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.402265068e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.931471807e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, whole);
}

inline float largest(const float *scores, int64_t n) {
    __m512 most = _mm512_set1_ps(-INFINITY);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) most = _mm512_max_ps(most, _mm512_load_ps(scores + j));
    if (j < n) most = _mm512_mask_max_ps(most, lanes_below(j, n), most, _mm512_load_ps(scores + j));
    return _mm512_reduce_max_ps(most);
}

// Turn a row of n products q·k into eˣ, in place, with x = scale·(q·k − the largest); padding to `columns` becomes 0.
//
// Instantiated twice: without statistics, only the sum is computed.
template <bool MEASURED>
inline Row exponentiate(float *scores, int64_t n, int64_t columns, float scale, int64_t query, const float *special) {
    const __m512 most = _mm512_set1_ps(largest(scores, n)), by = _mm512_set1_ps(scale);
    const __m512 step = _mm512_set1_ps(LANES);
    __m512 sum = _mm512_setzero_ps(), product = sum, distances = sum, specials = sum;
    __m512 away = _mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                _mm512_set1_ps((float)query));
    for (int64_t j = 0; j < columns; j += LANES) {
        const __mmask16 real = lanes_below(j, n);
        // Below −1000, eˣ is 0 anyway; `max` returns its second operand if that is a NaN.
        const __m512 x = _mm512_max_ps(_mm512_set1_ps(-1000),
                                       _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(scores + j), most), by));
        const __m512 e = _mm512_maskz_mov_ps(real, exponential(x));
        sum = _mm512_add_ps(sum, e);
        if constexpr (MEASURED) {
            product = _mm512_mask3_fmadd_ps(e, x, product, real);  // in padding x may be ∞, and 0 · ∞ is a NaN
            distances = _mm512_fmadd_ps(e, _mm512_abs_ps(away), distances);
            specials = _mm512_fmadd_ps(e, _mm512_maskz_loadu_ps(real, special + j), specials);
            away = _mm512_add_ps(away, step);
        }
        _mm512_store_ps(scores + j, e);
    }
    Row row{_mm512_reduce_add_ps(sum), 0, 0, 0};
    if constexpr (MEASURED) {
        row.product = _mm512_reduce_add_ps(product);
        row.distance = _mm512_reduce_add_ps(distances);
        row.special = _mm512_reduce_add_ps(specials);
    }
    return row;
}

}  // namespace headlight
