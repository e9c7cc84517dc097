// Placeholder until math.h is there.
#pragma once

#include <cmath>

#include "dtype.h"

namespace norch::math {
inline float exp(float x) {
    float c = x > 88.72284f ? 88.72284f : x < -103.9f ? -103.9f : x;
    float n = std::nearbyint(c * 1.44269504f);
    float r = c - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.f + r * (1.f + r * (0.5f + r * (0.16666667f + r * (0.041666668f + r * (0.008333561f + r * 0.0013937f)))));
    int k = int(n), h = k / 2;
    float y = p * bit_cast<float>((h + 127) << 23) * bit_cast<float>((k - h + 127) << 23);
    return x > 88.72284f ? HUGE_VALF : x == x ? y : x;
}
inline double exp(double x) { return std::exp(x); }
template <class T> inline T expm1(T x) { return std::expm1(x); }
template <class T> inline T erf(T x) { return std::erf(x); }
template <class T> inline T log(T x) { return std::log(x); }
template <class T> inline T log1p(T x) { return std::log1p(x); }
template <class T> inline T tanh(T x) { return std::tanh(x); }
inline float sigmoid(float x) { return 1 / (1 + exp(-x)); }
inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }
}
