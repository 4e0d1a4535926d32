// Turns scores into weights, one row at a time, and sums the terms of the statistics on the way.
#pragma once

#include <cmath>

#include "words.h"

namespace HEADLIGHT_NAMESPACE {

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
inline Floats exponential(Floats x) {
    const Floats log2e = broadcast(1.44269502f), rest = broadcast(1.92596299e-8f);
    const Floats whole = round_to_whole(mul(x, log2e));
    const Floats f = fmadd(x, rest, fmsub(x, log2e, whole));
    Floats y = broadcast(1.525245499e-4f);
    y = fmadd(y, f, broadcast(1.338593511e-3f));
    y = fmadd(y, f, broadcast(9.618504753e-3f));
    y = fmadd(y, f, broadcast(5.550371077e-2f));
    y = fmadd(y, f, broadcast(2.402265068e-1f));
    y = fmadd(y, f, broadcast(6.931471807e-1f));
    y = fmadd(y, f, broadcast(1.0f));
    return scale_by_power_of_two(y, whole);
}

inline float largest(const float *scores, int64_t n) {
    Floats most = broadcast(-INFINITY);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) most = max(most, load_aligned(scores + j));
    if (j < n) most = max(most, load_aligned(scores + j), lanes_below(j, n));
    return max_of_lanes(most);
}

// Turn a row of n products q·k into eˣ, in place, with x = scale·(q·k − the largest); padding to `columns` becomes 0.
//
// Instantiated twice: without statistics, only the sum is computed.
template <bool MEASURED>
inline Row exponentiate(float *scores, int64_t n, int64_t columns, float scale, int64_t query, const float *special) {
    const Floats most = broadcast(largest(scores, n)), by = broadcast(scale);
    const Floats step = broadcast(LANES);
    Floats sum = zeros(), product = sum, distances = sum, specials = sum;
    Floats away = sub(lane_numbers(), broadcast((float)query));
    for (int64_t j = 0; j < columns; j += LANES) {
        const Mask real = lanes_below(j, n);
        // Below −1000, eˣ is 0 anyway; `max` returns its second operand if that is a NaN.
        const Floats x = max(broadcast(-1000), mul(sub(load_aligned(scores + j), most), by));
        const Floats e = keep(exponential(x), real);
        sum = add(sum, e);
        if constexpr (MEASURED) {
            product = fmadd(e, x, product, real);  // in padding x may be ∞, and 0 · ∞ is a NaN
            distances = fmadd(e, abs(away), distances);
            specials = fmadd(e, load_some(special + j, real), specials);
            away = add(away, step);
        }
        store_aligned(scores + j, e);
    }
    Row row{sum_of_lanes(sum), 0, 0, 0};
    if constexpr (MEASURED) {
        row.product = sum_of_lanes(product);
        row.distance = sum_of_lanes(distances);
        row.special = sum_of_lanes(specials);
    }
    return row;
}

}  // namespace HEADLIGHT_NAMESPACE
