// tan, the inverses of sin, cos and tan, the hyperbolic functions and powers of double, as double_functions.h has the others:
// within 2 ulp, asinh, acosh and atanh within 3. Of asin and acos the steps are those of fdlibm.
#pragma once

#include "elementwise/double_functions.h"

namespace norch::math::wide {

inline constexpr double half_pi = 0x1.921fb54442d18p+0, half_pi_low = 0x1.1a62633145c07p-54;

/// x = k pi / 2 + r: the tangent of r, or where k is odd what it is -1 over.
inline double tan(double x) {
    const double shifted = x * 0.6366197723675814 + round_double;
    const PiReduction reduced(x, 0.5 * (shifted - round_double));
    const double r = reduced.r, z = r * r;
    const double p = polynomial(z, 0.3333333333333333, 0.13333333333333, 0.05396825396865608, 0.02186948851704705,
                                0.008863236004116282, 0.0035921209718821146, 0.0014559028161905394, 0.0005895751422742284,
                                0.0002412282918388211, 8.997951259028279e-05, 5.559954108301084e-05, -1.1030080532725272e-05,
                                3.653131664108726e-05, -1.8323519064364184e-05, 8.485316072701323e-06);
    const double t = r + (r * (z * p) + reduced.tail * (1.0 + z * (1.0 + 0.667 * z)));
    const double y = bit_cast<uint64_t>(shifted) & 1 ? -1.0 / t : t;
    return absolute(x) < 1e-150 ? x : y;
}

/// atan(t) for 0 <= t <= 1: beyond tan(pi / 8) that of (t - 1) / (t + 1), and pi / 4.
inline double atan_within_1(double t) {
    const bool beyond = t > 0.41421356237309503;
    const double n = beyond ? t - 1.0 : t, d = beyond ? t + 1.0 : 1.0, inverse = 1.0 / d, u = n * inverse, z = u * u;
    const double lost = std::fma(-u, d, n) - u * (beyond ? t - (d - 1.0) : 0.0);
    const double p = polynomial(z, -0.3333333333333333, 0.19999999999995519, -0.14285714284666184, 0.11111111015227572,
                                -0.09090904576954117, 0.07692183163650894, -0.06664511064599371, 0.05858145587628202,
                                -0.050854323376990765, 0.0392311556198723, -0.01917627151752634);
    const double y = u + (u * (z * p) + lost * inverse);
    return beyond ? 0.5 * half_pi + (y + 0.5 * half_pi_low) : y;
}

inline double atan(double x) {
    const double a = absolute(x);
    const double y = atan_within_1(a > 1.0 ? 1.0 / a : a);
    return with_sign(a > 1.0 ? half_pi - (y - half_pi_low) : y, x);
}

inline double atan2(double y, double x) {
    const double ax = absolute(x), ay = absolute(y);
    // Beside an infinity all finite numbers are 0, and infinities are alike.
    const bool is_infinite = ax == infinity<double> || ay == infinity<double>;
    const double bx = is_infinite ? (ax == infinity<double> ? 1.0 : 0.0) : ax;
    const double by = is_infinite ? (ay == infinity<double> ? 1.0 : 0.0) : ay;
    const double least = by > bx ? bx : by, most = by > bx ? by : bx;
    const double octant = atan_within_1(least / (most == 0.0 ? 1.0 : most));
    const bool is_left = bit_cast<uint64_t>(x) >> 63;
    const double steep = half_pi + (is_left ? half_pi_low + octant : half_pi_low - octant);
    const double flat = is_left ? 2.0 * half_pi - (octant - 2.0 * half_pi_low) : octant;
    const double whole = by > bx ? steep : flat;
    return x != x || y != y ? nan<double> : with_sign(whole, y);
}

/// asin(a), for a <= 1/2, is a + tail; beyond, asin of s = sqrt((1 - a) / 2) is s + tail, and `lost` what rounding took of s.
struct AsinReduction {
    explicit AsinReduction(double a) : is_outer(a >= 0.5) {
        const double z = is_outer ? 0.5 * (1.0 - a) : a * a;
        s = is_outer ? std::sqrt(z) : a;
        lost = s > 0.0 ? std::fma(-s, s, z) / (s + s) : 0.0;
        tail = s * (z * polynomial(z, 0.16666666666666669, 0.07499999999998433, 0.04464285714635543, 0.030381944138531247,
                                   0.02237217294214989, 0.017352392720869973, 0.013971212973552933, 0.011479177415184906,
                                   0.01032281435018578, 0.005457506718640358, 0.01740087944269402, -0.014851887071247204,
                                   0.028757851367421566));
    }
    bool is_outer;
    double s, lost, tail;
};

inline double asin(double x) {
    const AsinReduction r(absolute(x));
    const double outer = 0.5 * half_pi - ((2.0 * r.tail - (half_pi_low - 2.0 * r.lost)) - (0.5 * half_pi - 2.0 * r.s));
    return with_sign(r.is_outer ? outer : r.s + r.tail, x);
}

inline double acos(double x) {
    const AsinReduction r(absolute(x));
    const double tail = r.tail + r.lost;
    const double above = 2.0 * (r.s + tail), below = 2.0 * (half_pi - (r.s + (tail - half_pi_low)));
    const double inner = half_pi - (x + ((x < 0.0 ? -r.tail : r.tail) - half_pi_low));
    return r.is_outer ? (x < 0.0 ? below : above) : inner;
}

/// Of e^a / 4, and a little less than 711, from where on both are infinite.
constexpr double hyperbolic_limit = 710.6;

inline double sinh(double x) {
    const double a = absolute(x);
    const ExpReduction<1021> e(a > hyperbolic_limit ? hyperbolic_limit : a);
    const double scale = power_of_two(e.shifted), quarter = scale * e.power_less_1() + (scale - 0.25);  // (e^a - 1) / 4
    const double y = 2.0 * (quarter + quarter / (4.0 * quarter + 1.0));
    return a >= 1e-17 ? with_sign(y, x) : x;
}

inline double cosh(double x) {
    const double a = absolute(x);
    const ExpReduction<1021> e(a > hyperbolic_limit ? hyperbolic_limit : a);
    const double quarter = power_of_two(e.shifted) * e.power();
    return 2.0 * (quarter + 0.0625 / quarter);
}

// Of large numbers the logarithm of twice as much.
constexpr double hyperbolic_large = 0x1p28, ln_2 = 0x1.62e42fefa39efp-1;

inline double asinh(double x) {
    const double a = absolute(x), z = a * a;
    const bool is_large = a > hyperbolic_large;
    const double y = log1p(is_large ? a - 1.0 : a + z / (1.0 + std::sqrt(z + 1.0)));
    return with_sign(is_large ? y + ln_2 : y, x);
}

inline double acosh(double x) {
    const double t = x - 1.0;
    const bool is_large = x > hyperbolic_large;
    const double y = log1p(is_large ? t : t + std::sqrt(2.0 * t + t * t));
    return x >= 1.0 ? (is_large ? y + ln_2 : y) : nan<double>;
}

inline double atanh(double x) {
    const double a = absolute(x), twice = a + a, ratio = a / (1.0 - a);
    return with_sign(0.5 * log1p(a < 0.5 ? twice + twice * ratio : twice / (1.0 - a)), x);
}

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
using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::cosh, std::exp2, std::pow, std::sinh, std::tan;
}
