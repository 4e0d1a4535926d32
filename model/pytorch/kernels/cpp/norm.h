// Adds a sublayer's output to the residual stream and normalises it, one row at a time.
#pragma once

#include <cmath>

#include "interface.h"
#include "words.h"

namespace headlight {

// y = (s − mean s) / √(var s + ε) · gain + bias, with s = x + added; a row stays in the cache between passes.
template <class P>
void add_norm_row(const Norm &all, int64_t row) {
    const int64_t size = all.size, place = row * size;
    const float *x = all.x + place;
    const auto *added = (const typename P::Element *)all.added + place;
    float *out = all.output + place;
    __m512 total = _mm512_setzero_ps();
    for (int64_t j = 0; j < size; j += LANES) {
        const __mmask16 lanes = lanes_below(j, size);
        const __m512 s = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, x + j), P::load(added + j, lanes));
        total = _mm512_add_ps(total, s);
        _mm512_mask_storeu_ps(out + j, lanes, s);
    }
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(total) / (float)size);
    __m512 squares = _mm512_setzero_ps();
    for (int64_t j = 0; j < size; j += LANES) {
        const __mmask16 lanes = lanes_below(j, size);
        const __m512 away = _mm512_maskz_sub_ps(lanes, _mm512_maskz_loadu_ps(lanes, out + j), mean);
        squares = _mm512_fmadd_ps(away, away, squares);
    }
    const float variance = _mm512_reduce_add_ps(squares) / (float)size;
    const __m512 by = _mm512_set1_ps(1 / std::sqrt(variance + all.epsilon));
    for (int64_t j = 0; j < size; j += LANES) {
        const __mmask16 lanes = lanes_below(j, size);
        const __m512 away = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, out + j), mean);
        const __m512 gain = _mm512_mul_ps(by, _mm512_maskz_loadu_ps(lanes, all.gain + j));
        const __m512 y = _mm512_fmadd_ps(away, gain, _mm512_maskz_loadu_ps(lanes, all.bias + j));
        _mm512_mask_storeu_ps(out + j, lanes, y);
        if (all.rounded) P::store((typename P::Element *)all.rounded + place + j, y, lanes);
    }
}

template <class P>
int add_norm(const Norm *all) {
    if (!all || !all->x || !all->added || !all->gain || !all->bias || !all->output) return BAD_ARGUMENT;
    if (all->tokens < 0 || all->size < 1) return BAD_ARGUMENT;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < all->tokens; row++) add_norm_row<P>(*all, row);
    return DONE;
}

}  // namespace headlight
