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
        constexpr double ROOT_HALF = 0.70710678118654752440;
        if constexpr (IS_FAST) {
            // erfc to 1.5e-7: M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 7.1.26.
            const float z = fabsf(x) * float(ROOT_HALF), t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
            exponential = __expf(-z * z);
            const float p = 1.421413741f + t * (-1.453152027f + t * 1.061405429f);
            const float above = 0.5f * exponential * (t * (0.254829592f + t * (-0.284496736f + t * p)));
            return x < 0.0f ? above : 1.0f - above;
        } else {
            exponential = ::exp(x * x * C(-0.5));
            return (::erf(x * C(ROOT_HALF)) + C(1)) * C(0.5);
        }
    }
};

}  // namespace norch::elementwise
