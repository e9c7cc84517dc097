// The elementary functions on the device, as ops and for activations.
#pragma once

#include "common/elementary_ops.h"
#include "runtime/type_groups.cuh"

namespace norch::elementwise {

template <class T>
NORCH_FN T sigmoid(T x) {
    return T(1) / (T(1) + ::exp(-x));
}

namespace functions {
using ::exp, ::expm1, ::log, ::log1p, ::log2, ::log10, ::tanh, ::erf, ::sin, ::cos, ::tan, ::asin, ::acos, ::atan, ::sinh;
using ::cosh, ::asinh, ::acosh, ::atanh, elementwise::sigmoid;
}  // namespace functions

// The common exponents exactly, and fast.
NORCH_BINARY(T, Pow, b == 2 ? a * a : b == 1 ? a : ::pow(a, b))
NORCH_BINARY(T, Atan2, ::atan2(a, b))

namespace ops {
#define NORCH_FUNCTION(name, ...) NORCH_UNARY(name, functions::name(x))
NORCH_EXPONENTIAL_OPS(NORCH_FUNCTION)
NORCH_PERIODIC_OPS(NORCH_FUNCTION)
NORCH_INVERSE_OPS(NORCH_FUNCTION)
}  // namespace ops

/// The elementary functions for results of a group. For 16-bit ones the fast functions do: their error, 2**-20 or so, is lost
/// in the rounding.
template <class T>
struct Functions {
    using C = computed<T>;
    static constexpr bool IS_FAST = std::is_same_v<T, Halves>;

    __device__ static C exp(C x) {
        if constexpr (IS_FAST) return __expf(x);
        else return ::exp(x);
    }
    __device__ static C expm1(C x) { return ::expm1(x); }
    __device__ static C log1p(C x) { return ::log1p(x); }
    __device__ static C sigmoid(C x) {
        if constexpr (IS_FAST) return __fdividef(1.0f, 1.0f + __expf(-x));
        else return C(1) / (C(1) + ::exp(-x));
    }
    /// (tanh(x) + 1) / 2, without cancellation.
    __device__ static C twice_sigmoid(C x) { return sigmoid(C(2) * x); }
    /// The normal distribution's value at x, and exp(-x * x / 2).
    __device__ static C normal_cdf(C x, C& exponential) {
        if constexpr (IS_FAST) {
            // log2 of the value at -|x|: the polynomial whose greatest error up to 5.5 is least. There it is 2**-17 of the
            // value; farther out, where that is below 2e-8, it goes to 0 faster.
            const float z = fabsf(x);
            float p = -1.79345511e-06f;
            p = p * z + 6.09041781e-05f;
            p = p * z - 0.000926029112f;
            p = p * z + 0.00849375781f;
            p = p * z - 0.0539378487f;
            p = p * z - 0.458480507f;
            p = p * z - 1.15124679f;
            p = p * z - 0.99999547f;
            exponential = power_of_2(x * x * -0.721347520f);
            const float below = power_of_2(p);
            return x < 0.0f ? below : 1.0f - below;
        } else {
            constexpr double ROOT_HALF = 0.70710678118654752440;
            exponential = ::exp(x * x * C(-0.5));
            return (::erf(x * C(ROOT_HALF)) + C(1)) * C(0.5);
        }
    }

private:
    /// Of subnormal results, 0: the tests that others need would cost more than the power.
    __device__ static float power_of_2(float x) {
        float out;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
        return out;
    }
};

}  // namespace norch::elementwise
