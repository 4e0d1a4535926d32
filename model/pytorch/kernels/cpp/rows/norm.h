// Adds a sublayer's output to the residual stream, and normalises the sum, one row at a time.
#pragma once

#include <cmath>

#include "../interface.h"
#include "../shares.h"
#include "../words.h"

namespace HEADLIGHT_NAMESPACE {

// y = (s − m) / √(mean (s − m)² + ε) · gain + bias, in place, for a row of `size` numbers s with the mean m; m is 0 in an
// RMS norm. A bias may be null.
template <class Store>
void normalise(float *s, float m, const float *gain, const float *bias, int64_t size, float epsilon, Store store) {
    const Floats mean = broadcast(m);
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
        const Floats y = fmadd(away, mul(by, load_some(gain + j, lanes)), bias ? load_some(bias + j, lanes) : zeros());
        store_some(s + j, y, lanes);
        store(j, y, lanes);
    }
}

// What a row that is added is multiplied by, once its mean is taken off: 1 / √(variance + ε); the mean is 0 in an RMS norm.
template <class P>
void find_scale(const typename P::Element *added, const Norm &all, Floats *mean, Floats *by) {
    const auto size = (float)all.size;
    Floats total = zeros(), squares = zeros();
    if (!all.rms) {
        for (int64_t j = 0; j < all.size; j += LANES) total = add(total, P::load(added + j, lanes_below(j, all.size)));
    }
    *mean = broadcast(sum_of_lanes(total) / size);
    for (int64_t j = 0; j < all.size; j += LANES) {
        const Mask lanes = lanes_below(j, all.size);
        const Floats away = sub(P::load(added + j, lanes), *mean, lanes);
        squares = fmadd(away, away, squares);
    }
    *by = broadcast(1 / std::sqrt(sum_of_lanes(squares) / size + all.epsilon));
}

// s = x + added, which may be normalised; then s normalised where there is an output. A row stays in the cache between
// passes.
template <class P>
void add_norm_row(const Norm &all, int64_t row) {
    using Element = typename P::Element;
    const int64_t size = all.size, place = row * size;
    const float *x = all.x + place;
    const auto *added = all.added ? (const Element *)all.added + place : nullptr;
    float *out = all.output ? all.output + place : nullptr, *sum = all.sum ? all.sum + place : nullptr;
    auto *rounded = all.rounded ? (Element *)all.rounded + place : nullptr;
    Floats total = zeros(), mean_added = zeros(), by = zeros();
    if (all.added_gain) find_scale<P>(added, all, &mean_added, &by);
    for (int64_t j = 0; j < size; j += LANES) {
        const Mask lanes = lanes_below(j, size);
        Floats s = load_some(x + j, lanes);
        if (all.added_gain) {
            const Floats away = sub(P::load(added + j, lanes), mean_added);
            s = fmadd(away, mul(by, load_some(all.added_gain + j, lanes)), s);
            if (all.added_bias) s = add(s, load_some(all.added_bias + j, lanes));
        } else if (added) {
            s = add(s, P::load(added + j, lanes));
        }
        total = add(total, s);
        if (sum) store_some(sum + j, s, lanes);
        if (out) store_some(out + j, s, lanes);
        else if (rounded) P::store(rounded + j, s, lanes);
    }
    if (!out) return;
    const float mean = all.rms ? 0 : sum_of_lanes(total) / (float)size;
    normalise(out, mean, all.gain, all.bias, size, all.epsilon, [&](int64_t j, Floats y, Mask lanes) {
        if (rounded) P::store(rounded + j, y, lanes);
    });
}

template <class P>
int add_norm(const Norm *all) {
    if (!all || !all->x || !(all->output || all->sum || all->rounded) || (all->output && !all->gain)) return BAD_ARGUMENT;
    if (all->tokens < 0 || all->size < 1 || (all->sum && all->sum == all->output)) return BAD_ARGUMENT;
    if (all->added_gain && !all->added) return BAD_ARGUMENT;
    return on_every_thread([all] {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < all->tokens; row++) add_norm_row<P>(*all, row);
        return DONE;
    });
}

}  // namespace HEADLIGHT_NAMESPACE
