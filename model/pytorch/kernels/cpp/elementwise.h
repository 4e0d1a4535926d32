// Steps that take each token by itself: rotary positions, and the gate of a feed-forward layer.
#pragma once

#include "activation.h"
#include "interface.h"

namespace HEADLIGHT_NAMESPACE {

// Turn the pairs of one head.
inline void rotate_head(const Rotation &all, float *x, const float *cos, const float *sin) {
    const int64_t between = all.interleaved ? 1 : all.pairs, step = all.interleaved ? 2 : 1;
    for (int64_t i = 0; i < all.pairs; i++) {
        float &first = x[i * step], &second = x[i * step + between];
        const float turned = first * cos[i] - second * sin[i];
        second = second * cos[i] + first * sin[i];
        first = turned;
    }
}

inline int rotate(const Rotation *all) {
    if (!all || all->tokens < 0 || all->heads < 0 || all->pairs < 0) return BAD_ARGUMENT;
    if (2 * all->pairs > all->head_size || all->stride < all->heads * all->head_size) return BAD_ARGUMENT;
    if (all->tokens && !(all->x && all->cos && all->sin)) return BAD_ARGUMENT;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < all->tokens; row++)
        for (int64_t head = 0; head < all->heads; head++)
            rotate_head(*all, all->x + row * all->stride + head * all->head_size, all->cos + row * all->pairs,
                        all->sin + row * all->pairs);
    return DONE;
}

template <class A>
void gate_all(const Gate &all) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < all.tokens; row++) {
        const float *gates = all.x + row * 2 * all.size, *values = gates + all.size;
        for (int64_t j = 0; j < all.size; j += LANES) {
            const Mask lanes = lanes_below(j, all.size);
            const Floats gate = A::apply(load_some(gates + j, lanes));
            store_some(all.output + row * all.size + j, mul(gate, load_some(values + j, lanes)), lanes);
        }
    }
}

inline int gate(const Gate *all) {
    if (!all || all->tokens < 0 || all->size < 1 || (all->tokens && !(all->x && all->output))) return BAD_ARGUMENT;
    switch (all->activation) {
        case NONE: return gate_all<Identity>(*all), DONE;
        case RELU: return gate_all<Relu>(*all), DONE;
        case GELU: return gate_all<Gated<Gelu>>(*all), DONE;
        case GELU_TANH: return gate_all<Gated<GeluTanh>>(*all), DONE;
        case SILU: return gate_all<Gated<Silu>>(*all), DONE;
        default: return BAD_ARGUMENT;
    }
}

}  // namespace HEADLIGHT_NAMESPACE
