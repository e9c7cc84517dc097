// exp and what is made of it: expm1, sigmoid, tanh, sinh, cosh.
#pragma once

#include "elementwise/double_hyperbolic.h"
#include "elementwise/double_power.h"

namespace norch::math {

constexpr float log2_e = 1.44269504f;

/// x = n ln 2 + r with |r| <= ln 2 / 2; n + bias is in the low bits of `shifted`, and e^r is 1 + r q. A small `less` may
/// be taken off x unrounded.
template <int bias>
struct ExpReduction {
    explicit ExpReduction(float x, float less = 0.0f) {
        constexpr float zero = round_float + float(bias);
        const float sum = x * log2_e + zero;
        const float n = sum - zero;
        // Cody & Waite: n times the high part of ln 2 is exact.
        r = (x - n * 0.693359375f) + (n * 2.12194440e-4f - less);
        p = polynomial(r, 0.49999994f, 0.166665196f, 0.0416684933f, 0.00836885627f, 0.00138071331f);
        q = 1.0f + r * p;
        shifted = bit_cast<uint32_t>(sum);
    }
    float power() const { return 1.0f + r * q; }
    float power_less_1() const { return r + r * (r * p); }

    uint32_t shifted;
    float r, p, q;
};

/// 2^(n - 127), where n is in the low bits of `shifted`: 0 for n = 0, infinity for n = 255.
inline float power_of_two(uint32_t shifted) { return bit_cast<float>(shifted << 23); }

/// exp for -176.1 <= x <= 89: the results are 0 and infinity there.
inline float exp_bounded(float x) {
    const ExpReduction<254> e(x);
    // Two steps: 2^n alone may be out of range, and a subnormal result must be rounded only once.
    const uint32_t half = e.shifted >> 1;
    return e.power() * power_of_two(half) * power_of_two(e.shifted - half);
}

// At -176.1 both powers of 2 are 0: exp(-inf) is 0 without a product that underflows, which processors are slow at.
inline float exp(float x) { return mend_nan(exp_bounded(at_least(at_most(x, 89.0f), -176.1f)), x); }

/// Up to where exp of a float needs one power of 2 only.
constexpr float exp_limit = 87.0f;

inline float exp_within_limit(float x) {
    const ExpReduction<127> e(x);
    return e.power() * power_of_two(e.shifted);
}

/// exp for x <= 87, but 0 below `least`: never subnormal, as products with subnormal numbers are slow.
inline float exp_normal(float x, float least = -exp_limit) {
    const ExpReduction<127> e(x < least ? -88.0f : x);
    return e.power() * power_of_two(e.shifted);
}

/// By exp of the fractional part: exact for integers.
inline float exp2(float x) {
    constexpr float zero = round_float + 254.0f;
    const float bounded = at_least(at_most(x, 129.0f), -160.0f), sum = bounded + zero;
    const float r = (bounded - (sum - zero)) * 0.693147181f;
    const float q = 1.0f + r * polynomial(r, 0.49999994f, 0.166665196f, 0.0416684933f, 0.00836885627f, 0.00138071331f);
    const uint32_t shifted = bit_cast<uint32_t>(sum), half = shifted >> 1;
    return mend_nan((1.0f + r * q) * power_of_two(half) * power_of_two(shifted - half), x);
}

/// 2^64 exp(x) for x <= 0: never subnormal, and 0 below -132.
inline float exp_raised(float x) {
    const ExpReduction<127 + 64> e(x < -132.4f ? -132.4f : x);
    return e.power() * power_of_two(e.shifted);
}

inline float expm1(float x) {
    const ExpReduction<126> e(at_least(at_most(x, 89.0f), -18.0f));
    const float scale = power_of_two(e.shifted);  // 2^128 would overflow
    const float y = 2.0f * (scale * e.power_less_1() + (scale - 0.5f));
    return absolute(x) >= 1e-8f ? y : x;
}

/// 2^-30 / (2^-30 + 2^-30 exp(-x)): that exponential is normal wherever sigmoid is neither 1 nor 0.
inline float sigmoid(float x) {
    constexpr float one = 9.31322575e-10f;
    const float above = x < -104.0f ? -104.0f : x;
    const ExpReduction<127 - 30> e(-(above > 60.0f ? 60.0f : above));
    const float scale = power_of_two(e.shifted);
    return one / ((e.r * scale * e.q + one) + scale);
}

/// With |x| = r + n ln 2 / 2 by the addition theorem for tanh r and (1 - i) / (1 + i), where i = 2^-n. What that differs
/// from (1 - i)^2, which is near, has a rounding error that hardly counts.
inline float tanh(float x) {
    constexpr float zero = round_float + 127.0f;
    const float a = absolute(x);
    const float sum = a * (-2 * log2_e) + zero;
    const float r = a + (sum - zero) * 0.34657359f;  // exactly enough as n is small
    const float z = r * r;
    const float t = r + r * (z * polynomial(z, -0.333333224f, 0.133311033f, -0.0527057499f));
    const float i = power_of_two(bit_cast<uint32_t>(sum)), c = 1.0f - i;
    const float y = c * c + i * ((4.0f + i * (i - 3.0f)) * t + c * i) / (c * t + (1.0f + i));
    return with_sign(a > 10.0f ? 1.0f : y, x);
}

/// exp in double arithmetic to float's accuracy (2^-34), for |x| < 700.
inline double exp_short(double x) {
    const double shifted = x * 1.4426950408889634 + round_double;
    const double n = shifted - round_double;
    const double r = x - n * 0.69314718055994531;
    const double p = polynomial(r, 0.9999999999616551, 1.000000000243301, 0.5000000104596364, 0.1666666512523047,
                                0.041666225251338125, 0.008333561170818118, 0.00139481951716321,
                                0.00019775165523252706);
    return p * bit_cast<double>((bit_cast<uint64_t>(shifted) + 1023u) << 52);
}

inline float sinh(float x) {
    const double a = double(bounded_absolute(x, 100.0f));
    const double z = a * a;
    const double p = polynomial(z, 0.16666666507561947, 0.008333350824695268, 0.00019835871448840674,
                                2.8190289983015077e-06);
    const double e = exp_short(a);
    const float small = float(a + a * (z * p)), large = float(0.5 * (e - 1.0 / e));
    return mend_nan(with_sign(absolute(x) >= 1.0f ? large : small, x), x);
}

inline float cosh(float x) {
    const double e = exp_short(double(bounded_absolute(x, 100.0f)));
    return mend_nan(float(0.5 * (e + 1.0 / e)), x);
}

inline double exp(double x) { return doubles::exp(x); }
inline double exp_normal(double x, double = 0) { return doubles::exp(x); }  // far from its least
inline double exp_raised(double x) { return doubles::exp_raised(x); }
inline double expm1(double x) { return doubles::expm1(x); }
inline double tanh(double x) { return doubles::tanh(x); }
inline double exp2(double x) { return doubles::exp2(x); }
inline double sinh(double x) { return doubles::sinh(x); }
inline double cosh(double x) { return doubles::cosh(x); }
inline double sigmoid(double x) { return doubles::sigmoid(x); }

}  // namespace norch::math
