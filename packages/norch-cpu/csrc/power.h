#pragma once

#include "polynomial.h"

namespace norch::math {

/// log2(a) in double arithmetic to 2^-38, for a >= 0 that is a float.
inline double log2_short(double a) {
    const uint64_t bits = bit_cast<uint64_t>(a) - 0x3fe5555555555555u + (uint64_t(1024) << 52);
    const double n = bit_cast<double>((bits >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1024.0);
    const double f = bit_cast<double>((bits & 0xfffffffffffffu) + 0x3fe5555555555555u) - 1.0;
    const double p = polynomial(f, 1.44269504089257, -0.7213475204690963, 0.4808983438071364, -0.360673751906688,
                                0.2885394579031005, -0.24044998136342816, 0.20607535401010732, -0.18030249596218606,
                                0.16090196028760664, -0.14501401500020775, 0.12347707974729343, -0.11172790416542418,
                                0.15779865209219335, -0.15057515086029927);
    const double y = n + f * p;
    return a == 0.0 ? -infinity<double> : a < infinity<double> ? y : a;
}

/// 2^y in double arithmetic to 2^-34; beyond float's range it is beyond, no more.
inline double exp2_short(double y) {
    const double bounded = at_least(at_most(y, 200.0), -200.0);
    const double shifted = bounded + round_double;
    const double r = bounded - (shifted - round_double);
    const double p = polynomial(r, 0.9999999999616248, 0.6931471807287234, 0.2402265119873523, 0.05550410352837948,
                                0.009618027172995753, 0.0013333922838555405, 0.00015469317365580888,
                                1.5201906680448217e-05);
    return p * bit_cast<double>((bit_cast<uint64_t>(shifted) + 1023u) << 52);
}

inline float pow(float base, float exponent) {
    const double a = base, b = exponent;
    const double magnitude = exp2_short(b * log2_short(absolute(a)));
    // Past 2^24 every float is an even integer.
    const double bounded = at_least(at_most(b, 33554432.0), -33554432.0);
    const double shifted = bounded + round_double;
    const bool integer = shifted - round_double == bounded;
    const uint64_t odd = integer ? bit_cast<uint64_t>(shifted) << 63 : 0;
    const double y = bit_cast<double>(bit_cast<uint64_t>(magnitude) | (bit_cast<uint64_t>(a) & odd));
    const bool undefined = (a < 0.0) & (a > -infinity<double>) & !integer;
    const bool one = (b == 0.0) | (a == 1.0) | ((a == -1.0) & (absolute(b) == infinity<double>));
    return float(one ? 1.0 : undefined ? nan<double> : y);
}

inline double pow(double base, double exponent) { return std::pow(base, exponent); }

}  // namespace norch::math
