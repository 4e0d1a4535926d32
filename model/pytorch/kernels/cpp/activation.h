// Activations of the feed-forward layer. Most are x · g(x), with a function g that rises from 0 to 1.
//
// Each g has g(x) = 1 − g(−x), so one formula for g(−|x|), its tail t, serves all x: x·t below 0 and x − x·t above. No
// small value is computed as the difference of large ones.
#pragma once

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

// x · g(x), from the tail of g.
template <class G>
struct Gated {
    static Floats apply(Floats x) {
        const Floats tail = G::tail(x);
        const Floats above = fmadd(max(broadcast(-1000), sub(zeros(), x)), tail, x);  // not −∞ · 0, which is a NaN
        return where_negative(x, mul(x, tail), above);
    }
};

struct Identity {
    static Floats apply(Floats x) { return x; }
};

struct Relu {
    static Floats apply(Floats x) { return max(zeros(), x); }  // a NaN stays a NaN
};

}  // namespace HEADLIGHT_NAMESPACE
