// Turns scores into weights, one row at a time, and sums the terms of the statistics on the way.
#pragma once

#include <algorithm>
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

// eˣ for x up to 0, of which −∞ is one, as exact as numbers of a type are: `of_scaled` of x times FACTOR.
template <class Exact>
struct Exponential {
    static constexpr float FACTOR = 1;
    static Floats of(Floats x) { return exponential(x); }
    static Floats of_scaled(Floats x) { return exponential(x); }
};

#ifdef __AVX512F__
template <>
struct Exponential<uint16_t> {  // bfloat16, with a relative error of 8e-5
    static constexpr float FACTOR = 1.44269502f;
    static Floats of(Floats x) {
        const Floats y = mul(x, broadcast(FACTOR)), whole = round_down(y);
        return scale_by_power_of_two(power(sub(y, whole)), whole);
    }
    // The same in fewer instructions, of which one rounds x − ⌊x⌋ down.
    static Floats of_scaled(Floats y) { return scale_by_power_of_two(power(above_whole(y)), y); }

   private:
    // 2ᶠ by the minimax polynomial of degree three on [0, 1].
    static Floats power(Floats f) {
        Floats sum = broadcast(7.8024275e-2f);
        sum = fmadd(sum, f, broadcast(2.26067267e-1f));
        sum = fmadd(sum, f, broadcast(6.95833627e-1f));
        return fmadd(sum, f, broadcast(9.99925195e-1f));
    }
};
#endif

inline float largest(const float *scores, int64_t n) {
    Floats most = broadcast(-INFINITY);
    int64_t j = 0;
    if (n >= 4 * LANES) {
        Floats others[4];  // one would wait for itself
        for (Floats &one : others) one = most;
        for (; j + 4 * LANES <= n; j += 4 * LANES)
            for (int i = 0; i < 4; i++) others[i] = max(others[i], load_aligned(scores + j + i * LANES));
        most = max(max(others[0], others[1]), max(others[2], others[3]));
    }
    for (; j + LANES <= n; j += LANES) most = max(most, load_aligned(scores + j));
    if (j < n) most = max(most, load_aligned(scores + j), lanes_below(j, n));
    return max_of_lanes(most);
}

// Turn n products q·k of a row into eˣ with x = scale·(q·k − most), and give each vector of them to `store`; padding to
// `columns` becomes 0. Weights are as exact as numbers of the type `Exact`.
//
// Instantiated twice: without statistics, only the sum is computed.
template <bool MEASURED, class Exact, class Store>
inline Row weigh(const float *scores, int64_t n, int64_t columns, float most, float scale, int64_t query,
                 const float *special, Store store) {
    const Floats highest = broadcast(most), by = broadcast(scale * Exponential<Exact>::FACTOR), step = broadcast(LANES);
    Floats sum = zeros(), product = sum, distances = sum, specials = sum;
    Floats away = sub(lane_numbers(), broadcast((float)query));
    const auto take = [&](int64_t j, Mask real) {
        Floats x = mul(sub(load_aligned(scores + j), highest), by);
        // Below −1000, eˣ is 0 anyway, and 0 · ∞ would be a NaN; `max` returns its second operand if that is a NaN.
        if (MEASURED) x = max(broadcast(-1000), x);
        const Floats e = keep(Exponential<Exact>::of_scaled(x), real);
        sum = add(sum, e);
        if constexpr (MEASURED) {
            product = fmadd(e, x, product, real);  // in padding x may be ∞
            distances = fmadd(e, abs(away), distances);
            specials = fmadd(e, load_some(special + j, real), specials);
            away = add(away, step);
        }
        store(j, e);
    };
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) take(j, ALL_LANES);
    for (; j < columns; j += LANES) take(j, lanes_below(j, n));
    Row row{sum_of_lanes(sum), 0, 0, 0};
    if constexpr (MEASURED) {
        row.product = sum_of_lanes(product);
        row.distance = sum_of_lanes(distances);
        row.special = sum_of_lanes(specials);
    }
    return row;
}

}  // namespace HEADLIGHT_NAMESPACE
