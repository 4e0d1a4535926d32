// Adds a sublayer's output to the residual stream and normalises it, one row at a time.
#pragma once

#include <cmath>

#include "interface.h"
#include "words.h"

namespace HEADLIGHT_NAMESPACE {

// y = (s − mean s) / √(var s + ε) · gain + bias, in place, for a row of `size` numbers s whose sum is known.
template <class Store>
void normalise(float *s, float sum, const float *gain, const float *bias, int64_t size, float epsilon, Store store) {
    const Floats mean = broadcast(sum / (float)size);
    Floats squares = zeros();
    for (int64_t j = 0; j < size; j += LANES) {
        const Mask lanes = lanes_below(j, size);
        const Floats away = sub(load_some(s + j, lanes), mean, lanes);
        squares = fmadd(away, away, squares);
    }
    const float variance = sum_of_lanes(squares) / (float)size;
    const Floats by = broadcast(1 / std::sqrt(variance + epsilon));
    for (int64_t j = 0; j < size; j += LANES) {
        const Mask lanes = lanes_below(j, size);
        const Floats away = sub(load_some(s + j, lanes), mean);
        const Floats y = fmadd(away, mul(by, load_some(gain + j, lanes)), load_some(bias + j, lanes));
        store_some(s + j, y, lanes);
        store(j, y, lanes);
    }
}

// s = x + added, then normalised; a row stays in the cache between passes.
template <class P>
void add_norm_row(const Norm &all, int64_t row) {
    using Element = typename P::Element;
    const int64_t size = all.size, place = row * size;
    const float *x = all.x + place;
    const auto *added = (const Element *)all.added + place;
    float *out = all.output + place;
    Floats total = zeros();
    for (int64_t j = 0; j < size; j += LANES) {
        const Mask lanes = lanes_below(j, size);
        const Floats s = add(load_some(x + j, lanes), P::load(added + j, lanes));
        total = add(total, s);
        store_some(out + j, s, lanes);
    }
    auto *rounded = all.rounded ? (Element *)all.rounded + place : nullptr;
    normalise(out, sum_of_lanes(total), all.gain, all.bias, size, all.epsilon, [&](int64_t j, Floats y, Mask lanes) {
        if (rounded) P::store(rounded + j, y, lanes);
    });
}

template <class P>
int add_norm(const Norm *all) {
    if (!all || !all->x || !all->added || !all->gain || !all->bias || !all->output) return BAD_ARGUMENT;
    if (all->tokens < 0 || all->size < 1) return BAD_ARGUMENT;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < all->tokens; row++) add_norm_row<P>(*all, row);
    return DONE;
}

}  // namespace HEADLIGHT_NAMESPACE
