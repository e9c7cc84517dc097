// What fused programs need where NVRTC compiles them, which has no standard headers; and how they load and store. Never
// compiled with norch-cuda itself: runtime/nvrtc.h.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;

namespace std {
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_integral_v = T(1) / T(2) == T(0);
template <class T>
inline constexpr bool is_signed_v = T(-1) < T(0);
template <class T>
inline constexpr bool is_unsigned_v = !is_signed_v<T>;
template <class T>
struct make_unsigned {
    using type = T;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;
template <bool CONDITION, class A, class>
struct conditional {
    using type = A;
};
using ::ceil, ::copysign, ::fabs, ::floor, ::fmod, ::rint, ::sqrt, ::trunc;
}  // namespace std

namespace norch {

struct Halves {};
template <class T>
struct Compute {
    using type = T;
};
template <>
struct Compute<Halves> {
    using type = float;
};
template <class T>
using computed = typename Compute<T>::type;

struct float16 {
    uint16_t bits;
};
struct bfloat16 {
    uint16_t bits;
};

__device__ inline float upcast(float x) { return x; }
__device__ inline float upcast(uint8_t x) { return float(x); }
__device__ inline float upcast(float16 x) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
    return out;
}
__device__ inline float upcast(bfloat16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }

template <class T>
__device__ inline T downcast(float x) {
    if constexpr (std::is_same_v<T, float16>) {
        float16 out;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
        return out;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        bfloat16 out;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
        return out;
    } else {
        return T(x);
    }
}

/// A step's result of a dtype. No product of one step and sum of the next are contracted, as the compiler cannot know that
/// `zero` is 0.
template <class T>
__device__ inline float rounded(float x, uint32_t zero) {
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return upcast(downcast<T>(x));
    return __uint_as_float(__float_as_uint(x) ^ zero);
}

/// An operand of a step of several operations. What two steps compute of one number stays apart: a product that had two uses
/// would not be contracted with a sum, as it is in the op's own kernel.
__device__ inline float own(float x) {
    asm volatile("" : "+f"(x));
    return x;
}

template <class T, int VEC>
struct alignas(sizeof(T) * VEC) Packet {
    T v[VEC];
};
template <class T, int K>
inline constexpr int PER = K * sizeof(T) > 16 ? 16 / int(sizeof(T)) : K;

template <class T, int K>
__device__ inline void load(float (&x)[K], const char* data) {
    constexpr int VEC = PER<T, K>;
#pragma unroll
    for (int j = 0; j < K; j += VEC) {
        const auto packet = *reinterpret_cast<const Packet<T, VEC>*>(data + j * sizeof(T));
#pragma unroll
        for (int i = 0; i < VEC; ++i) x[j + i] = upcast(packet.v[i]);
    }
}

template <class T, int K>
__device__ inline void store(char* data, const float (&y)[K]) {
    constexpr int VEC = PER<T, K>;
#pragma unroll
    for (int j = 0; j < K; j += VEC) {
        Packet<T, VEC> packet;
#pragma unroll
        for (int i = 0; i < VEC; ++i) packet.v[i] = downcast<T>(y[j + i]);
        *reinterpret_cast<Packet<T, VEC>*>(data + j * sizeof(T)) = packet;
    }
}

}  // namespace norch
