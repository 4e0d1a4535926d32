// Activations of the feed-forward layer, in place: x · g(x), with a function g that rises from 0 to 1.
//
// Each g has g(x) = 1 − g(−x), so one formula for g(−|x|), its tail t, serves all x: x·t below 0 and x − x·t above. No
// small value is computed as the difference of large ones.
#pragma once

#include "interface.h"
#include "softmax.h"

namespace HEADLIGHT_NAMESPACE {

// 1 / (1 + eᵃ) for a = |x|.
inline Floats logistic_tail(Floats x) {
    const Floats e = exponential(max(broadcast(-1000), sub(zeros(), abs(x))));
    return div(e, add(broadcast(1), e));
}

// x Φ(x), with the cumulative normal distribution Φ (Hendrycks & Gimpel 2016).
struct Gelu {
    // Φ(−a) for a = |x| is e^(−a²/2) times a function that a minimax quotient of polynomials approximates on [0, 14]
    // (relative error 6e-9). Beyond, Φ(−a) is 0; `max` returns its second operand if that is a NaN.
    static Floats tail(Floats x) {
        const Floats a = sub(zeros(), max(broadcast(-14), sub(zeros(), abs(x))));
        Floats over = broadcast(4.07759073e-3f), under = broadcast(1.02208755e-2f);
        over = fmadd(over, a, broadcast(4.03724230e-2f));
        under = fmadd(under, a, broadcast(1.01205467e-1f));
        over = fmadd(over, a, broadcast(1.82461440e-1f));
        under = fmadd(under, a, broadcast(4.67428071e-1f));
        over = fmadd(over, a, broadcast(4.37250381e-1f));
        under = fmadd(under, a, broadcast(1.19928910f));
        over = fmadd(over, a, broadcast(0.5f));
        under = fmadd(under, a, broadcast(1.67238572f));
        under = fmadd(under, a, broadcast(1.0f));
        return mul(exponential(mul(mul(a, a), broadcast(-0.5f))), div(over, under));
    }
};

// The same with Φ(x) ≈ (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ), u = √(2/π) (x + 0.044715 x³).
struct GeluTanh {
    static Floats tail(Floats x) {
        const Floats factor = fmadd(mul(x, x), broadcast(7.13548163e-2f), broadcast(1.59576912f));  // 2u / x
        return logistic_tail(mul(x, factor));
    }
};

// x / (1 + e⁻ˣ) (Elfwing et al. 2018).
struct Silu {
    static Floats tail(Floats x) { return logistic_tail(x); }
};

// Apply the activation A to `count` numbers.
template <class A>
int activate(float *numbers, int64_t count) {
    if (count < 0 || (count && !numbers)) return BAD_ARGUMENT;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < count; j += LANES) {
        const Mask lanes = lanes_below(j, count);
        const Floats x = load_some(numbers + j, lanes), tail = A::tail(x);
        const Floats above = fmadd(max(broadcast(-1000), sub(zeros(), x)), tail, x);  // not −∞ · 0, which is a NaN
        store_some(numbers + j, where_negative(x, mul(x, tail), above), lanes);
    }
    return DONE;
}

}  // namespace HEADLIGHT_NAMESPACE
