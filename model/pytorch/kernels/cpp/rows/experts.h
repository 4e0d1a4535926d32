// A mixture of experts: which of them each token has, and the sum of their results by shares.
#pragma once

#include <cmath>

#include "../interface.h"
#include "../shares.h"
#include "../words.h"

namespace HEADLIGHT_NAMESPACE {

// Keep the `chosen` largest shares of a token (experts,), the first of equal ones, and set the others to 0. A NaN is kept.
inline void keep_largest(float *shares, int64_t experts, int64_t chosen) {
    for (int64_t e = 0; e < experts; e++) {
        int64_t larger = 0;
        for (int64_t other = 0; other < experts; other++) {
            const float share = std::fabs(shares[other]);  // those that are dropped already are negative
            larger += share > shares[e] || (share == shares[e] && other < e);
        }
        if (larger >= chosen) shares[e] = -shares[e];
    }
    for (int64_t e = 0; e < experts; e++)
        if (std::signbit(shares[e]) && shares[e] == shares[e]) shares[e] = 0;
}

// The softmax over all experts, of which each token keeps the largest.
template <class P>
int route(const Routing *all) {
    if (!all || all->tokens < 0 || all->experts < 1 || all->chosen < 1) return BAD_ARGUMENT;
    if (all->tokens && !(all->logits && all->shares)) return BAD_ARGUMENT;
    for (int64_t row = 0; row < all->tokens; row++) {
        const auto *logits = (const typename P::Element *)all->logits + row * all->experts;
        float *shares = all->shares + row * all->experts;
        float most = -INFINITY, sum = 0;
        for (int64_t e = 0; e < all->experts; e++) most = std::max(most, P::value(logits[e]));
        for (int64_t e = 0; e < all->experts; e++) sum += shares[e] = std::exp(P::value(logits[e]) - most);
        for (int64_t e = 0; e < all->experts; e++) shares[e] /= sum;
        keep_largest(shares, all->experts, all->chosen);
    }
    return DONE;
}

// Add the results of one expert to the sums of its tokens.
template <class P>
int collect(const Collection *all) {
    if (!all || all->count < 0 || all->size < 1) return BAD_ARGUMENT;
    if (all->count && !(all->results && all->rows && all->shares && all->sums)) return BAD_ARGUMENT;
    return on_every_thread([all] {
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < all->count; i++) {
            const auto *result = (const typename P::Element *)all->results + i * all->size;
            float *sums = all->sums + all->rows[i] * all->size;
            const Floats share = broadcast(all->shares[all->rows[i] * all->experts]);
            for (int64_t j = 0; j < all->size; j += LANES) {
                const Mask lanes = lanes_below(j, all->size);
                store_some(sums + j, fmadd(share, P::load(result + j, lanes), load_some(sums + j, lanes)), lanes);
            }
        }
        return DONE;
    });
}

}  // namespace HEADLIGHT_NAMESPACE
