// exp2 and pow of double, as double_functions.h has the others.
#pragma once

#include "elementwise/double_functions.h"

namespace norch::math::wide {

/// 2^(x + low), low a small part of x.
inline double exp2_sum(double x, double low) {
    constexpr double zero = round_double + 2046.0;
    const double bounded = clamp(x, -1080.0, 1030.0), sum = bounded + zero, r = (bounded - (sum - zero)) + low;
    const double power = 1.0 + r * polynomial(r, 0.6931471805599453, 0.24022650695910072, 0.055504108664821625,
                                              0.00961812910762848, 0.001333355814640647, 0.00015403530393370734,
                                              1.5252733841556773e-05, 1.3215486808705563e-06, 1.0178057087733941e-07,
                                              7.0548973041554995e-09, 4.4558179083360645e-10, 2.5729324177362305e-11);
    const uint64_t shifted = bit_cast<uint64_t>(sum), half = shifted >> 1;
    return power * power_of_two(half) * power_of_two(shifted - half);
}

inline double exp2(double x) { return exp2_sum(x, 0.0); }

/// log2(a) for finite a > 0 to twice double's precision, by the series of 2 atanh(s) with s = f / (2 + f).
struct LongLog2 {
    explicit LongLog2(double a) {
        const bool subnormal = a < 0x1p-1022;
        const uint64_t bits = offset_bits(a * (subnormal ? 0x1p54 : 1.0));
        const double n = exponent_of(bits) - (subnormal ? 54.0 : 0.0), f = fraction_of(bits);
        const double d = 2.0 + f, inverse = 1.0 / d, s = f * inverse;
        const double s_low = (std::fma(-s, d, f) - s * (f - (d - 2.0))) * inverse;
        const double z = s * s, z_low = std::fma(s, s, -z) + 2.0 * s * s_low;
        const double cube = s * z, cube_low = std::fma(s, z, -cube) + (s * z_low + s_low * z);
        constexpr double third = 0.6666666666666666, third_low = 3.700743415417188e-17;  // two of them
        const double second = third * cube, second_low = std::fma(third, cube, -second) + (third * cube_low + third_low * cube);
        const double rest = s * (z * z) * polynomial(z, 0.4, 0.28571428571428487, 0.22222222222278695, 0.18181818167391273,
                                                     0.15384617228261813, 0.1333320125384769, 0.11770245498984806,
                                                     0.10391790132801734, 0.11256990431013299);
        const double sum = 2.0 * s + second, sum_low = ((2.0 * s - sum) + second) + (2.0 * s_low + (second_low + rest));
        constexpr double log2e = 0x1.71547652b82fep+0, log2e_low = 0x1.777d0ffda0d24p-56;
        const double part = sum * log2e, part_low = std::fma(sum, log2e, -part) + (sum * log2e_low + sum_low * log2e);
        high = n + part;
        low = ((n - high) + part) + part_low;
    }
    double high, low;
};

/// 2^(y log2 |x|), and what the standard says of signs, zeros, infinities and NaN.
inline double pow(double base, double exponent) {
    const double a = absolute(base);
    const LongLog2 log(a);
    const double high = exponent * log.high;
    const bool is_moderate = absolute(high) < 1100.0;
    const double low = is_moderate ? std::fma(exponent, log.high, -high) + exponent * log.low : 0.0;
    const double power = exp2_sum(is_moderate ? high : with_sign(1100.0, high), low);
    // Where a is 0 or infinite the exponent's sign alone decides.
    const double at_0 = exponent < 0.0 ? infinity<double> : 0.0, at_infinity = exponent < 0.0 ? 0.0 : infinity<double>;
    const double but_0 = a == 0.0 ? at_0 : power, magnitude = a == infinity<double> ? at_infinity : but_0;
    const double half = 0.5 * exponent;
    const double sign = std::trunc(half) != half ? base : 1.0;  // of odd exponents
    const bool whole = std::trunc(exponent) == exponent;
    const double of_negative = (base < 0.0) & (base > -infinity<double>) ? nan<double> : magnitude;
    const double y = whole ? with_sign(magnitude, sign) : of_negative;
    const double of_base = base == base ? y : base, of_both = exponent == exponent ? of_base : exponent;
    const double but_0th = exponent == 0.0 ? 1.0 : of_both, but_of_1 = base == 1.0 ? 1.0 : but_0th;
    return (base == -1.0) & (absolute(exponent) == infinity<double>) ? 1.0 : but_of_1;
}

}  // namespace norch::math::wide

namespace norch::math::library {
using std::exp2, std::pow;
}
