// log and what is made of it: log1p, log2, log10, asinh, acosh, atanh.
#pragma once

#include "elementwise/double_hyperbolic.h"

namespace norch::math {

constexpr float largest = std::numeric_limits<float>::max();

/// x = 2^exponent (1 + f) with 2/3 <= 1 + f < 4/3, for x > 0; log(1 + f) = f + tail.
struct LogReduction {
    int32_t exponent;
    float f, tail;
};

/// log(1 + f) - f.
inline float log1p_tail(float f) {
    const float p = polynomial(f, 0.333332151f, -0.24999781f, 0.200104937f, -0.166813701f, 0.140041158f, -0.121704437f,
                               0.139943615f, -0.129584506f);
    const float z = f * f;
    return z * f * p - 0.5f * z;
}

inline LogReduction reduce_log(float x) {
    // Subnormals are scaled by 2^23. (And negative numbers, which do not matter.)
    const uint32_t scaling = uint32_t(int32_t(bit_cast<uint32_t>(x) - 0x00800000u) >> 31) & (23u << 23);
    const uint32_t bits = bit_cast<uint32_t>(x * bit_cast<float>(0x3f800000u + scaling)) - 0x3f2aaaabu;  // of 2/3
    const float f = bit_cast<float>((bits & 0x7fffffu) + 0x3f2aaaabu) - 1.0f;
    return {int32_t(bits - scaling) >> 23, f, log1p_tail(f)};
}

/// The value `y` of a logarithm at x, mended where x is not positive and finite.
inline float log_domain(float x, float y) {
    return mend(y + (x == 0.0f ? -infinity<float> : 0.0f), x == infinity<float>, !(x >= 0.0f));
}

// The high part of each logarithm of 2 is so short that a multiple of it is exact (Cody & Waite).

inline float log(float x) {
    const LogReduction r = reduce_log(x);
    const float n = float(r.exponent);
    return log_domain(x, n * 0.693359375f + (r.f + (r.tail - n * 2.12194440e-4f)));
}

inline float log2(float x) {
    const LogReduction r = reduce_log(x);
    const float log2e_less_1 = 0.442695041f;
    const float small = (r.tail * log2e_less_1 + r.f * log2e_less_1) + r.tail;
    return log_domain(x, float(r.exponent) + (r.f + small));
}

inline float log10(float x) {
    const LogReduction r = reduce_log(x);
    const float n = float(r.exponent);
    const float low = n * 2.48745663e-4f + (r.tail + r.f) * 7.00731903e-4f;
    return log_domain(x, n * 0.30078125f + (r.f * 0.43359375f + (r.tail * 0.43359375f + low)));
}

inline float log1p(float x) {
    const float bounded = at_most(x, largest);
    const float u = 1.0f + bounded;
    const uint32_t bits = bit_cast<uint32_t>(u) - 0x3f2aaaabu;
    const int32_t exponent = int32_t(bits) >> 23;
    // What the rounding of 1 + x lost is added to the reduced argument.
    const uint32_t inverse = uint32_t(127 - (exponent > 100 ? 100 : exponent)) << 23;  // 2^-exponent
    const float lost = (bounded - (u - 1.0f)) * bit_cast<float>(inverse);
    const float f = (bit_cast<float>((bits & 0x7fffffu) + 0x3f2aaaabu) - 1.0f) + lost;
    const float n = float(exponent);
    const float y = n * 0.693359375f + (f + (log1p_tail(f) - n * 2.12194440e-4f));
    return x == 0.0f ? x : log_domain(1.0f + x, y);
}

/// log1p in double arithmetic to float's accuracy (2^-30), for -1 < x < infinity; beyond it is without meaning.
inline double log1p_short(double x) {
    const double u = 1.0 + x;
    // An offset of 1024 keeps the exponent positive: AVX2 has no arithmetic shift of 64 bits and no conversion of them.
    const uint64_t bits = bit_cast<uint64_t>(u) - 0x3fe5555555555555u + (uint64_t(1024) << 52);
    const uint64_t exponent = bits >> 52;
    const double n = bit_cast<double>(exponent | 0x4330000000000000u) - (4503599627370496.0 + 1024.0);
    const double lost = (x - (u - 1.0)) * bit_cast<double>((2047u - exponent) << 52);
    const double f = (bit_cast<double>((bits & 0xfffffffffffffu) + 0x3fe5555555555555u) - 1.0) + lost;
    const double p = polynomial(f, 0.9999999999096308, -0.5000000203469271, 0.3333333928477954, -0.24999638021761952,
                                0.19999371958725765, -0.16684596285202702, 0.14309694092647682, -0.12141590685032375,
                                0.10703477564788577, -0.13046259979815059, 0.1218188831624779);
    return n * 0.69314718055994531 + f * p;
}

inline float asinh(float x) {
    const double a = double(bounded_absolute(x, largest));
    const double z = a * a;
    const double y = log1p_short(a + z / (1.0 + std::sqrt(z + 1.0)));
    return with_sign(mend(float(y), absolute(x) == infinity<float>, x != x), x);
}

inline float acosh(float x) {
    const double t = double(at_most(x, largest)) - 1.0;
    const double y = log1p_short(t + std::sqrt(t * t + 2.0 * t));
    return mend(float(y), x == infinity<float>, !(x >= 1.0f));
}

inline float atanh(float x) {
    const double a = double(bounded_absolute(x, largest));
    const double y = 0.5 * log1p_short(2.0 * a / ((1.0 - a) + 1e-300));
    return with_sign(mend(float(y), absolute(x) == 1.0f, !(absolute(x) <= 1.0f)), x);
}

inline double log(double x) { return doubles::log(x); }
inline double log1p(double x) { return doubles::log1p(x); }
inline double log2(double x) { return doubles::log2(x); }
inline double log10(double x) { return doubles::log10(x); }
inline double asinh(double x) { return doubles::asinh(x); }
inline double acosh(double x) { return doubles::acosh(x); }
inline double atanh(double x) { return doubles::atanh(x); }

}  // namespace norch::math
