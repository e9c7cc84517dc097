// tan, and the inverses of sin, cos and tan, of double, as double_functions.h has the others. Those of asin and acos have the steps
// of fdlibm.
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

}  // namespace norch::math::wide

namespace norch::math::library {
using std::acos, std::asin, std::atan, std::atan2, std::tan;
}
