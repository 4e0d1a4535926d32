// Activations of the feed-forward layer. Most are x · g(x), with a function g that rises from 0 to 1.
//
// Each g has g(x) = 1 − g(−x), so one formula for g(−|x|), its tail t, serves all x: x·t below 0 and x − x·t above. No
// small value is computed as the difference of large ones.
//
// Tails are only as exact as results in the precision P need: those of bfloat16 have eight binary digits.
#pragma once

#include "interface.h"
#include "softmax.h"

namespace HEADLIGHT_NAMESPACE {

// eˣ for x in [−1000, 0], and a / b.
template <class P>
struct Elementary : Exponential<typename P::Element> {
    static Floats quotient(Floats a, Floats b) { return div(a, b); }
};

#ifdef __AVX512F__
// With relative errors of 8e-5.
template <>
struct Elementary<Bfloat16> : Exponential<uint16_t> {
    static Floats quotient(Floats a, Floats b) { return mul(a, near_reciprocal(b)); }
};
#endif

// 1 / (1 + eᵃ) for a = |x|.
template <class P>
Floats logistic_tail(Floats x) {
    const Floats e = Elementary<P>::of(max(broadcast(-1000), sub(zeros(), abs(x))));
    return Elementary<P>::quotient(e, add(broadcast(1), e));
}

// x Φ(x), with the cumulative normal distribution Φ (Hendrycks & Gimpel 2016).
//
// Φ(−a) for a = |x| is e^(−a²/2) times a function that is approximated on [0, 14]. Beyond, Φ(−a) is 0; `max` returns its
// second operand if that is a NaN.
inline Floats gelu_argument(Floats x) { return sub(zeros(), max(broadcast(-14), sub(zeros(), abs(x)))); }

template <class P>
struct Gelu {
    // By a minimax quotient of polynomials (relative error 6e-9).
    static Floats tail(Floats x) {
        const Floats a = gelu_argument(x);
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

#ifdef __AVX512F__
template <>
struct Gelu<Bfloat16> {
    // By a polynomial of 1 / (1 + 0.375 a), of the form of formula 26.2.17 of Abramowitz & Stegun (1964), but with the
    // smallest relative error (3e-5).
    static Floats tail(Floats x) {
        const Floats a = gelu_argument(x), t = near_reciprocal(fmadd(a, broadcast(0.375f), broadcast(1)));
        Floats sum = broadcast(-9.0648090e-2f);
        sum = fmadd(sum, t, broadcast(2.0029338e-1f));
        sum = fmadd(sum, t, broadcast(8.3555010e-2f));
        sum = fmadd(sum, t, broadcast(1.5773682e-1f));
        sum = fmadd(sum, t, broadcast(1.4906073e-1f));
        return mul(Elementary<Bfloat16>::of(mul(mul(a, a), broadcast(-0.5f))), mul(sum, t));
    }
};
#endif

// The same with Φ(x) ≈ (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ), u = √(2/π) (x + 0.044715 x³).
template <class P>
struct GeluTanh {
    static Floats tail(Floats x) {
        const Floats factor = fmadd(mul(x, x), broadcast(7.13548163e-2f), broadcast(1.59576912f));  // 2u / x
        return logistic_tail<P>(mul(x, factor));
    }
};

// x / (1 + e⁻ˣ) (Elfwing et al. 2018).
template <class P>
struct Silu {
    static Floats tail(Floats x) { return logistic_tail<P>(x); }
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

// Call a function with an activation, for results in the precision P; returns its outcome, or BAD_ARGUMENT.
template <class P, class F>
int with_activation(int32_t activation, F function) {
    switch (activation) {
        case NONE: return function(Identity());
        case RELU: return function(Relu());
        case GELU: return function(Gated<Gelu<P>>());
        case GELU_TANH: return function(Gated<GeluTanh<P>>());
        case SILU: return function(Gated<Silu<P>>());
        default: return BAD_ARGUMENT;
    }
}

}  // namespace HEADLIGHT_NAMESPACE
