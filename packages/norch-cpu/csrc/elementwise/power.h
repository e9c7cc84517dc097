#pragma once

#include "elementwise/double_power.h"

namespace norch::math {

/// log2(a) in double arithmetic to 2^-38, for a > 0 that is a float.
inline double log2_short(double a) {
    const uint64_t bits = bit_cast<uint64_t>(a) - 0x3fe5555555555555u + (uint64_t(1024) << 52);
    const double n = bit_cast<double>((bits >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1024.0);
    const double f = bit_cast<double>((bits & 0xfffffffffffffu) + 0x3fe5555555555555u) - 1.0;
    const double p = polynomial(f, 1.44269504089257, -0.7213475204690963, 0.4808983438071364, -0.360673751906688,
                                0.2885394579031005, -0.24044998136342816, 0.20607535401010732, -0.18030249596218606,
                                0.16090196028760664, -0.14501401500020775, 0.12347707974729343, -0.11172790416542418,
                                0.15779865209219335, -0.15057515086029927);
    return n + f * p;
}

/// 2^y in double arithmetic to 2^-34, for |y| < 1000.
inline double exp2_short(double y) {
    const double shifted = y + round_double;
    const double r = y - (shifted - round_double);
    const double p = polynomial(r, 0.9999999999616248, 0.6931471807287234, 0.2402265119873523, 0.05550410352837948,
                                0.009618027172995753, 0.0013333922838555405, 0.00015469317365580888,
                                1.5201906680448217e-05);
    return p * bit_cast<double>((bit_cast<uint64_t>(shifted) + 1023u) << 52);
}

inline float pow(float base, float exponent) {
    const float a = absolute(base);
    const double y = double(exponent) * log2_short(double(a));
    const float estimate = float(y);
    const uint32_t within = absolute(estimate) <= 200.0f ? ~0u : 0u;
    const uint32_t above = estimate > 200.0f ? ~0u : 0u;
    const uint32_t power = (bit_cast<uint32_t>(float(exp2_short(y))) & within) | (above & 0x7f800000u);
    // Where a is 0 or infinite, the exponent's sign alone decides.
    const uint32_t infinite = a == infinity<float> ? ~0u : 0u;
    const uint32_t extreme = (a == 0.0f ? ~0u : 0u) | infinite;
    const uint32_t to_infinity = (exponent < 0.0f ? ~0u : 0u) ^ infinite;
    const uint32_t magnitude = (power & ~extreme) | (extreme & to_infinity & 0x7f800000u);
    // Past 2^24 every float is an even integer.
    const float bounded = at_least(at_most(exponent, 33554432.0f), -33554432.0f);
    const int32_t whole = int32_t(bounded);
    const uint32_t fractional = float(whole) == bounded ? 0u : ~0u;
    const uint32_t sign = (uint32_t(whole) << 31) & ~fractional & bit_cast<uint32_t>(base);
    const uint32_t negative = (base < 0.0f ? ~0u : 0u) & ~extreme;
    const uint32_t undefined = (negative & fractional) | (a == a ? 0u : ~0u) | (exponent == exponent ? 0u : ~0u);
    const uint32_t unit = (base == -1.0f ? ~0u : 0u) & (absolute(exponent) == infinity<float> ? ~0u : 0u);
    const uint32_t one = (exponent == 0.0f ? ~0u : 0u) | (base == 1.0f ? ~0u : 0u) | unit;
    return bit_cast<float>(((magnitude | sign | undefined) & ~one) | (one & 0x3f800000u));
}

inline double pow(double base, double exponent) { return doubles::pow(base, exponent); }

}  // namespace norch::math
