// Building blocks of the elementary functions: what vectorises on any instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "common/dtype.h"

namespace norch::math {

/// c0 + c1 x + c2 x^2 + ... by Horner's rule.
template <class T>
inline T polynomial(T, T c0) {
    return c0;
}
template <class T, class... Rest>
inline T polynomial(T x, T c0, Rest... rest) {
    return c0 + x * polynomial(x, rest...);
}

// Adding 1.5 * 2^mantissa bits rounds to an integer, which is then in the low bits of the sum. SSE2 has no other way.
constexpr float round_float = 12582912.0f;
constexpr double round_double = 6755399441055744.0;

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();

inline float absolute(float x) { return bit_cast<float>(bit_cast<uint32_t>(x) & 0x7fffffffu); }
inline double absolute(double x) { return bit_cast<double>(bit_cast<uint64_t>(x) & 0x7fffffffffffffffu); }

/// `magnitude`, which is not negative, with the sign of `sign`.
inline float with_sign(float magnitude, float sign) {
    return bit_cast<float>(bit_cast<uint32_t>(magnitude) | (bit_cast<uint32_t>(sign) & 0x80000000u));
}
inline double with_sign(double magnitude, double sign) {
    return bit_cast<double>(bit_cast<uint64_t>(magnitude) | (bit_cast<uint64_t>(sign) & 0x8000000000000000u));
}

// Bounds by the order of the bits, in which positive floats are ordered as integers: GCC would follow a comparison of
// floats with a constant into what comes after it and make selects of several lengths of it. NaN becomes the bound.

/// |x|, but at most `bound` > 0.
inline float bounded_absolute(float x, float bound) {
    const int32_t bits = int32_t(bit_cast<uint32_t>(x) & 0x7fffffffu), most = bit_cast<int32_t>(bound);
    return bit_cast<float>(bits < most ? bits : most);
}
/// x, but at most `bound` > 0.
inline float at_most(float x, float bound) {
    const int32_t bits = bit_cast<int32_t>(x), most = bit_cast<int32_t>(bound);
    return bit_cast<float>(bits < most ? bits : most);
}
/// x, but at least `bound` < 0.
inline float at_least(float x, float bound) {
    const uint32_t bits = bit_cast<uint32_t>(x), least = bit_cast<uint32_t>(bound);
    return bit_cast<float>(bits < least ? bits : least);
}

/// y, but infinity or NaN where so said. Sums and masks cost less than blends; and in float and on float's comparisons
/// only, as GCC narrows those of a widened float and then finds no mask of the width that a select of doubles needs.
inline float mend(float y, bool infinite, bool undefined) {
    const float sum = y + (infinite ? infinity<float> : 0.0f);
    return bit_cast<float>(bit_cast<uint32_t>(sum) | (undefined ? 0xffffffffu : 0u));
}

/// y, but NaN where x is.
inline float mend_nan(float y, float x) { return bit_cast<float>(bit_cast<uint32_t>(y) | (x == x ? 0u : 0xffffffffu)); }

}  // namespace norch::math
