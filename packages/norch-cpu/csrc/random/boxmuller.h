// Normal numbers by Box and Muller (1958), for uniforms in [0, 1) only: no special cases, so that loops vectorise.
// Polynomials: minimax fits of the series of log(1 + f) in f / (2 + f), of sin and of cos on [-pi/4, pi/4].
#pragma once

#include <cmath>
#include <cstdint>

#include "common/dtype.h"

namespace norch::random {

template <class T>
struct Pair {
    T first, second;
};

/// -log(v) for v in (0, 1], a positive zero for 1. v = 2^e * m with m from sqrt(1/2) to sqrt(2), f = m - 1.
inline float negative_log(float v) {
    uint32_t bits = bit_cast<uint32_t>(v);
    int32_t e = int32_t(bits - 0x3f3504f3u) >> 23;
    float f = bit_cast<float>(bits - (uint32_t(e) << 23)) - 1.0f;
    float s = f / (2.0f + f), z = s * s, half_square = 0.5f * f * f;
    float p = z * (0x1.555554p-1f + z * (0x1.999a7ap-2f + z * (0x1.2438d2p-2f + z * 0x1.e2f726p-3f)));
    float k = float(e);
    float low = s * (half_square + p) + k * 1.42860682e-06f;
    return -k * 0.693145751953125f - (f - (half_square - low)) + 0.0f;
}

inline double negative_log(double v) {
    uint64_t bits = bit_cast<uint64_t>(v);
    uint64_t shifted = (bits - 0x3fe6a09e667f3bcdu + (uint64_t(1024) << 52)) >> 52;  // e + 1024
    double k = bit_cast<double>(shifted | 0x4330000000000000u) - (0x1p52 + 1024);
    double f = bit_cast<double>(bits - ((shifted - 1024) << 52)) - 1.0;
    double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
    double p = z * (0x1.5555555555592p-1 +
                    z * (0x1.999999997fd78p-2 +
                         z * (0x1.24924941f5201p-2 +
                              z * (0x1.c71c5205e7b68p-3 +
                                   z * (0x1.74663fa6cba9ap-3 +
                                        z * (0x1.39a1a6c5f6b40p-3 + z * 0x1.2f06339d40877p-3))))));
    double low = s * (half_square + p) + k * 7.371002565167799e-13;
    return -k * 0.6931471805592082 - (f - (half_square - low)) + 0.0;
}

inline float sine(float x) {
    float z = x * x;
    return x + x * z * (-0x1.555546p-3f + z * (0x1.110760p-7f + z * -0x1.994e86p-13f));
}
inline float cosine(float x) {
    float z = x * x;
    return 1.0f - (0.5f * z - z * z * (0x1.55554ap-5f + z * (-0x1.6c0c8cp-10f + z * 0x1.9a0230p-16f)));
}

inline double sine(double x) {
    double z = x * x;
    return x + x * z * (-0x1.5555555555549p-3 +
                        z * (0x1.111111110f87bp-7 +
                             z * (-0x1.a01a019c11b2bp-13 +
                                  z * (0x1.71de3577c6f34p-19 +
                                       z * (-0x1.ae5e6644ec7b2p-26 + z * 0x1.5d9303bc5be98p-33)))));
}
inline double cosine(double x) {
    double z = x * x, half_z = 0.5 * z, w = 1.0 - half_z;
    double p = z * z * (0x1.555555555554cp-5 +
                        z * (-0x1.6c16c16c15196p-10 +
                             z * (0x1.a01a019cb3b6bp-16 +
                                  z * (-0x1.27e4f80b2cb22p-22 +
                                       z * (0x1.1ee9eca2e7d9ep-29 + z * -0x1.8faeedf91b705p-37)))));
    return w + ((1.0 - w - half_z) + p);
}

/// The normals of two float32 uniforms, given by their 24 bits. The angle is reduced exactly, in turns.
inline Pair<float> box_muller(uint32_t u0, uint32_t u1) {
    float radius = std::sqrt(2.0f * negative_log(float(int32_t(0x1000000u - u0)) * 0x1p-24f));
    int32_t turn = int32_t(u1), q = (turn + 0x200000) >> 22;
    // The second term is by how much 2 pi in float64, which the definition takes, misses 2 pi.
    float x = float(turn - (q << 22)) * 0x1.921fb6p-22f + float(turn) * -1.45989275e-23f;
    float s = sine(x), c = cosine(x);
    bool odd = q & 1;
    uint32_t cos_sign = uint32_t((q + 1) & 2) << 30, sin_sign = uint32_t(q & 2) << 30;
    float cos_t = bit_cast<float>(bit_cast<uint32_t>(odd ? s : c) ^ cos_sign);
    float sin_t = bit_cast<float>(bit_cast<uint32_t>(odd ? c : s) ^ sin_sign);
    return {radius * cos_t, radius * sin_t};
}

/// The same of two float64 uniforms. The angle is the definition's, rounded as there; pi/2 is taken off it in three
/// parts, the first two of which leave no rounding error where it matters, near its multiples.
inline Pair<double> box_muller(double u0, double u1) {
    double radius = std::sqrt(2.0 * negative_log(1.0 - u0));
    double angle = 6.283185307179586 * u1;
    double nearest = angle * 0.6366197723675814 + 0x1.8p52;  // the integer ends up in the low bits
    uint64_t q = bit_cast<uint64_t>(nearest);
    double k = nearest - 0x1.8p52;
    double x = ((angle - k * 0x1.921fb54442p+0) - k * 0x1.a308d31318p-41) - k * 0x1.8a2e03707344ap-81;
    double s = sine(x), c = cosine(x);
    bool odd = q & 1;
    uint64_t cos_sign = ((q + 1) & 2) << 62, sin_sign = (q & 2) << 62;
    double cos_t = bit_cast<double>(bit_cast<uint64_t>(odd ? s : c) ^ cos_sign);
    double sin_t = bit_cast<double>(bit_cast<uint64_t>(odd ? c : s) ^ sin_sign);
    return {radius * cos_t, radius * sin_t};
}

}  // namespace norch::random
