// exp and what is made of it: expm1, sigmoid, tanh, sinh, cosh.
#pragma once

#include "polynomial.h"

namespace norch::math {

/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r - 1.
struct ExpReduction {
    uint32_t n;  // modulo 2^32
    float expm1_r;
};

inline ExpReduction reduce_exp(float x) {
    // Cody & Waite: n times the high part of ln 2 is exact.
    const float shifted = x * 1.44269504f + round_float;
    const float n = shifted - round_float;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float p = polynomial(r, 0.49999994f, 0.166665196f, 0.0416684933f, 0.00836885627f, 0.00138071331f);
    return {bit_cast<uint32_t>(shifted) - bit_cast<uint32_t>(round_float), r + r * r * p};
}

inline float power_of_two(uint32_t n) { return bit_cast<float>((n + 127u) << 23); }

/// exp for -176.1 <= x <= 89: the results are 0 and infinity there.
inline float exp_bounded(float x) {
    const ExpReduction e = reduce_exp(x);
    // Two steps: 2^n alone may be out of range, and a subnormal result must be rounded only once.
    const uint32_t half = uint32_t(int32_t(e.n) >> 1);
    return (1.0f + e.expm1_r) * power_of_two(half) * power_of_two(e.n - half);
}

/// exp for |x| < 87.
inline float exp_normal(float x) {
    const ExpReduction e = reduce_exp(x);
    return (1.0f + e.expm1_r) * power_of_two(e.n);
}

// At -176.1 both powers of 2 are 0: exp(-inf) is 0 without a product that underflows, which processors are slow at.
inline float exp(float x) { return mend_nan(exp_bounded(at_least(at_most(x, 89.0f), -176.1f)), x); }

inline float expm1(float x) {
    const ExpReduction e = reduce_exp(at_least(at_most(x, 89.0f), -18.0f));
    const float scale = power_of_two(e.n - 1);  // 2^128 would overflow
    const float y = 2.0f * (scale * e.expm1_r + (scale - 0.5f));
    return absolute(x) >= 1e-8f ? y : x;
}

inline float sigmoid(float x) {
    const float e = exp_bounded(-bounded_absolute(x, 104.0f));
    const float d = 1.0f + e;
    const float lost = e - (d - 1.0f);
    const float y = (x < 0.0f ? e : 1.0f) / d;
    return mend_nan(y - y * (lost * (1.5f - 0.5f * d)), x);  // about 1 / d will do
}

inline float tanh(float x) {
    const float a = absolute(x);
    const float z = a * a;
    const float p = polynomial(z, -0.333332926f, 0.133315414f, -0.0537386239f, 0.0206159968f, -0.00566477515f);
    const float small = a + a * (z * p);
    const float large = 1.0f - 2.0f / (exp_normal(2.0f * bounded_absolute(x, 10.0f)) + 1.0f);
    return with_sign(a >= 0.625f ? large : small, x);
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

inline double exp(double x) { return std::exp(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double sinh(double x) { return std::sinh(x); }
inline double cosh(double x) { return std::cosh(x); }
inline double sigmoid(double x) {
    const double e = exp(-absolute(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

}  // namespace norch::math
