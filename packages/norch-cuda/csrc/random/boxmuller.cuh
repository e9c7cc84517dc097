// Normal numbers by Box and Muller (1958). In float32 the angle is reduced exactly, in turns, which leaves sine and
// cosine of at most pi/4 (minimax polynomials) and no slow path.
#pragma once

#include "runtime/device.cuh"

namespace norch::random {

__device__ inline float small_sine(float x) {
    const float z = x * x;
    return x + x * z * (-0x1.555546p-3f + z * (0x1.110760p-7f + z * -0x1.994e86p-13f));
}
__device__ inline float small_cosine(float x) {
    const float z = x * x;
    return 1.0f - (0.5f * z - z * z * (0x1.55554ap-5f + z * (-0x1.6c0c8cp-10f + z * 0x1.9a0230p-16f)));
}

/// The normals of two float32 uniforms, given by their 24 bits.
__device__ inline float2 box_muller(uint32_t u0, uint32_t u1) {
    const float radius = sqrtf(-2.0f * logf(float(int32_t(0x1000000u - u0)) * 0x1p-24f) + 0.0f);
    const int32_t turn = int32_t(u1), q = (turn + 0x200000) >> 22;
    // The second term is by how much 2 pi in float64, which the definition takes, misses 2 pi.
    const float x = float(turn - (q << 22)) * 0x1.921fb6p-22f + float(turn) * -1.45989275e-23f;
    const float s = small_sine(x), c = small_cosine(x);
    const float cosine = q & 1 ? s : c, sine = q & 1 ? c : s;
    return make_float2(radius * ((q + 1) & 2 ? -cosine : cosine), radius * (q & 2 ? -sine : sine));
}

/// The same of two float64 uniforms; the angle is rounded as in the definition.
__device__ inline double2 box_muller(double u0, double u1) {
    const double radius = sqrt(-2.0 * log1p(-u0) + 0.0);
    double sine, cosine;
    sincos(6.283185307179586 * u1, &sine, &cosine);
    return make_double2(radius * cosine, radius * sine);
}

}  // namespace norch::random
