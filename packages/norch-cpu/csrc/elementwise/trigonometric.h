// sin, cos, tan and their inverses.
#pragma once

#include "elementwise/double_trigonometric.h"

namespace norch::math {

/// Up to where sin, cos and tan of a float may be computed by the formulas here.
constexpr float trigonometric_limit = 2097152.0f;
inline constexpr double double_trigonometric_limit = 1e6;

/// n is below 2^20 in magnitude, so that n times the high part of pi is exact (Cody & Waite).
inline double subtract_pi(double x, double n) { return (x - n * 0x1.921fb544p+1) - n * 0x1.0b4611a626331p-33; }

/// sin(r) for |r| <= pi / 2 in double arithmetic to float's accuracy (2^-34), negated where the lowest bit of `odd` is
/// set.
inline double sin_reduced(double r, uint64_t odd) {
    const double z = r * r;
    const double p = polynomial(z, 1.0, -0.16666666638948474, 0.00833333142264532, -0.00019840890276762898,
                                2.7525861137491537e-06, -2.3889270990985938e-08);
    return bit_cast<double>(bit_cast<uint64_t>(r * p) ^ (odd << 63));
}

inline double sin_short(double x) {
    const double shifted = x * 0.31830988618379067 + round_double;
    return sin_reduced(subtract_pi(x, shifted - round_double), bit_cast<uint64_t>(shifted));
}

/// cos(x) = -(-1)^n sin(x - (n + 1/2) pi).
inline double cos_short(double x) {
    const double shifted = (x * 0.31830988618379067 - 0.5) + round_double;
    return sin_reduced(subtract_pi(x, (shifted - round_double) + 0.5), bit_cast<uint64_t>(shifted) + 1);
}

inline float sin_within_limit(float x) { return float(sin_short(double(x))); }
inline float cos_within_limit(float x) { return float(cos_short(double(x))); }
inline float tan_within_limit(float x) { return float(sin_short(double(x)) / cos_short(double(x))); }

inline float sin(float x) { return absolute(x) > trigonometric_limit ? std::sin(x) : sin_within_limit(x); }
inline float cos(float x) { return absolute(x) > trigonometric_limit ? std::cos(x) : cos_within_limit(x); }
inline float tan(float x) { return absolute(x) > trigonometric_limit ? std::tan(x) : tan_within_limit(x); }

/// asin(a) = `whole` for a <= 1/2, else pi/2 - 2 `whole`, where `whole` is asin of sqrt((1 - a) / 2).
inline float asin_folded(float a) {
    const float z = a < 0.5f ? a * a : 0.5f * (1.0f - a);
    const float s = a < 0.5f ? a : std::sqrt(z);
    const float p = polynomial(z, 0.166667312f, 0.0749566853f, 0.0454657003f, 0.0240570456f, 0.0425535999f);
    return s + s * (z * p);
}

constexpr float half_pi = 1.57079637f, half_pi_low = -4.37113883e-8f;

inline float asin(float x) {
    const float a = absolute(x);
    const float y = asin_folded(a);
    return with_sign(a < 0.5f ? y : (half_pi - 2.0f * y) + half_pi_low, x);
}

inline float acos(float x) {
    const float a = absolute(x);
    const float y = asin_folded(a);
    const float signed_y = x < 0.0f ? -y : y;
    const float outer = x < 0.0f ? (2.0f * half_pi - 2.0f * y) + 2.0f * half_pi_low : 2.0f * y;
    return a < 0.5f ? (half_pi - signed_y) + half_pi_low : outer;
}

inline float atan(float x) {
    const float a = absolute(x);
    const float t = a > 1.0f ? 1.0f / a : a;
    const float z = t * t;
    const float p = polynomial(z, -0.333333135f, 0.199988425f, -0.142663464f, 0.109585822f, -0.0841065422f,
                               0.0579135418f, -0.0309912898f, 0.0107485f, -0.00174370117f);
    const float y = t + t * (z * p);
    return with_sign(a > 1.0f ? (half_pi - y) + half_pi_low : y, x);
}

/// |x| of a float, with 2^512 for infinity, so that infinity / infinity is 1.
inline double below_infinity(float x) {
    const uint64_t bits = bit_cast<uint64_t>(double(x)) & 0x7fffffffffffffffu;
    return bit_cast<double>(bits - (bits & (bits >> 1) & (uint64_t(1) << 61)));
}

inline float atan2(float y, float x) {
    const double ax = below_infinity(x), ay = below_infinity(y);
    const double ratio = (ax > ay ? ay : ax) / ((ax > ay ? ax : ay) + 1e-300);  // 0 / 0 shall be 0
    const double z = ratio * ratio;
    const double p = polynomial(z, -0.33333333222360084, 0.19999989208569202, -0.14285397658579554, 0.11106718019191368,
                                -0.09056016374390523, 0.07516237280096405, -0.06064411511003593, 0.044210077120064646,
                                -0.02649841709266049, 0.011697070007770956, -0.0032785890405120006,
                                0.00043016498755300684);
    const double octant = ratio + ratio * (z * p);
    const double quadrant = absolute((ay > ax ? 1.5707963267948966 : 0.0) - octant);
    const uint64_t left = 0 - (bit_cast<uint64_t>(double(x)) >> 63);
    const double whole = absolute(bit_cast<double>(left & bit_cast<uint64_t>(3.1415926535897932)) - quadrant);
    return with_sign(mend_nan(mend_nan(float(whole), x), y), y);
}

inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }
inline double sin_within_limit(double x) { return doubles::sin(x); }
inline double cos_within_limit(double x) { return doubles::cos(x); }
inline double tan_within_limit(double x) { return doubles::tan(x); }
inline double tan(double x) { return std::tan(x); }
inline double asin(double x) { return doubles::asin(x); }
inline double acos(double x) { return doubles::acos(x); }
inline double atan(double x) { return doubles::atan(x); }
inline double atan2(double y, double x) { return doubles::atan2(y, x); }

}  // namespace norch::math
