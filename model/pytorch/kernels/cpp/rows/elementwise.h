// Steps that take each token by itself: norms and rotary positions of heads, and the gate of a feed-forward layer.
#pragma once

#include <cmath>

#include "../activation.h"
#include "../interface.h"
#include "../shares.h"
#include "../words.h"

namespace HEADLIGHT_NAMESPACE {

// Turn the pairs (i, i + pairs) of one head.
template <class P>
void rotate_halves(typename P::Element *x, const float *cos, const float *sin, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += LANES) {
        const Mask lanes = lanes_below(i, pairs);
        const Floats first = P::load(x + i, lanes), second = P::load(x + pairs + i, lanes);
        const Floats c = load_some(cos + i, lanes), s = load_some(sin + i, lanes);
        P::store(x + i, fmsub(first, c, mul(second, s)), lanes);
        P::store(x + pairs + i, fmadd(second, c, mul(first, s)), lanes);
    }
}

// Turn the pairs (2i, 2i + 1) of one head.
template <class P>
void rotate_neighbours(typename P::Element *x, const float *cos, const float *sin, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i++) {
        const float first = P::value(x[2 * i]), second = P::value(x[2 * i + 1]);
        x[2 * i] = P::rounded(first * cos[i] - second * sin[i]);
        x[2 * i + 1] = P::rounded(second * cos[i] + first * sin[i]);
    }
}

// x / √(mean x² + ε) · gain, of one head.
template <class P>
void normalise_head(typename P::Element *x, const float *gain, int64_t size, float epsilon) {
    Floats squares = zeros();
    for (int64_t i = 0; i < size; i += LANES) {
        const Floats some = P::load(x + i, lanes_below(i, size));
        squares = fmadd(some, some, squares);
    }
    const Floats by = broadcast(1 / std::sqrt(sum_of_lanes(squares) / (float)size + epsilon));
    for (int64_t i = 0; i < size; i += LANES) {
        const Mask lanes = lanes_below(i, size);
        P::store(x + i, mul(mul(P::load(x + i, lanes), by), load_some(gain + i, lanes)), lanes);
    }
}

template <class P>
int rotate(const Rotation *all) {
    if (!all || all->tokens < 0 || all->heads < 0 || all->pairs < 0) return BAD_ARGUMENT;
    if (2 * all->pairs > all->head_size || all->stride < all->heads * all->head_size) return BAD_ARGUMENT;
    if (all->tokens && (!all->x || (all->pairs && !(all->cos && all->sin)))) return BAD_ARGUMENT;
    if (!all->query_gain != !all->key_gain) return BAD_ARGUMENT;
    const auto turn = all->interleaved ? rotate_neighbours<P> : rotate_halves<P>;
    return on_every_thread([=] {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < all->tokens; row++) {
            auto *x = (typename P::Element *)all->x + row * all->stride;
            const int64_t angles = row * all->pairs;
            for (int64_t head = 0; head < all->heads; head++) {
                auto *one = x + head * all->head_size;
                const float *gain = head < all->queries ? all->query_gain : all->key_gain;
                if (gain) normalise_head<P>(one, gain, all->head_size, all->epsilon);
                if (all->pairs) turn(one, all->cos + angles, all->sin + angles, all->pairs);
            }
        }
        return DONE;
    });
}

template <class P, class A>
int gate_all(const Gate &all) {
    using Element = typename P::Element;
    return on_every_thread([&all] {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < all.tokens; row++) {
            const Element *gates = (const Element *)all.x + row * 2 * all.size, *values = gates + all.size;
            Element *output = (Element *)all.output + row * all.size;
            for (int64_t j = 0; j < all.size; j += LANES) {
                const Mask lanes = lanes_below(j, all.size);
                P::store(output + j, mul(A::apply(P::load(gates + j, lanes)), P::load(values + j, lanes)), lanes);
            }
        }
        return DONE;
    });
}

template <class P>
int gate(const Gate *all) {
    if (!all || all->tokens < 0 || all->size < 1 || (all->tokens && !(all->x && all->output))) return BAD_ARGUMENT;
    return with_activation<P>(all->activation, [all](auto activation) { return gate_all<P, decltype(activation)>(*all); });
}

}  // namespace HEADLIGHT_NAMESPACE
