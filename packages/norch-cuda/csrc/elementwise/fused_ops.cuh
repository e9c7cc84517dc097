// The steps that a fused program knows: each is the op's own device function on values that are computed in float32, and
// bools as 0 and 1. Compiled with norch-cuda for the interpreter and, where there is NVRTC, when a program is made.
#pragma once

#include "common/activation_ops.h"
#include "elementwise/functions.cuh"

namespace norch::elementwise::fused {

/// What the op's own kernel calls for an element, of the constants of a step and its operands.
template <class Op>
struct Plain {
    template <class... X>
    __device__ static float call(const float*, X... x) {
        return float(Op::apply(x...));
    }
};
/// T: the group of the result's dtype.
template <class Op, class T>
struct Activated {
    template <class... X>
    __device__ static float call(const float* k, X... x) {
        return Op::template apply<Functions<T>>(x..., Constants<float>{k[0], k[1], k[2]});
    }
};

NORCH_UNARY(Truth, T(x != T(0)))
NORCH_UNARY(Not, T(1) - x)
struct Where {
    template <class T>
    NORCH_FN static T apply(T condition, T a, T b) {
        return condition != T(0) ? a : b;
    }
};

// F(name, op) of how many operands. Those with other functions for 16-bit results have a second code.
#define NORCH_FUSED_UNARY(F)                                                                                         \
    F(copy, Identity) F(to_bool, Truth) F(bitwise_not, Not) F(neg, Neg) F(abs, Abs) F(sign, Sign) F(sqrt, Sqrt)      \
    F(floor, Floor) F(ceil, Ceil) F(round, Round) F(trunc, Trunc)                                                    \
    F(exp, ops::exp) F(expm1, ops::expm1) F(log, ops::log) F(log1p, ops::log1p) F(log2, ops::log2)                   \
    F(log10, ops::log10) F(tanh, ops::tanh) F(sigmoid, ops::sigmoid) F(erf, ops::erf)
#define NORCH_FUSED_BINARY(F)                                                                                        \
    F(add, Add) F(sub, Sub) F(mul, Mul) F(div, Div) F(maximum, Maximum) F(minimum, Minimum) F(eq, Equal)             \
    F(ne, NotEqual) F(lt, Less) F(le, LessEqual) F(gt, Greater) F(ge, GreaterEqual)
#define NORCH_FUSED_TERNARY(F) F(where, Where) F(clamp, Clamp) F(axpy, AddScaled)
#define NORCH_FUSED_ACTIVATION(F)                                                                                    \
    F(relu, Relu) F(leaky_relu, LeakyRelu) F(hardtanh, Hardtanh) F(elu, Elu) F(silu, Silu) F(softplus, Softplus)     \
    F(gelu, Gelu) F(gelu_tanh, GeluTanh) F(hardsigmoid, Hardsigmoid) F(hardswish, Hardswish)
#define NORCH_FUSED_GRAD(F)                                                                                          \
    F(relu_grad, ReluGrad) F(leaky_relu_grad, LeakyReluGrad) F(hardtanh_grad, HardtanhGrad) F(tanh_grad, TanhGrad)   \
    F(sigmoid_grad, SigmoidGrad) F(elu_grad, EluGrad) F(silu_grad, SiluGrad) F(softplus_grad, SoftplusGrad)          \
    F(gelu_grad, GeluGrad) F(gelu_tanh_grad, GeluTanhGrad) F(hardsigmoid_grad, HardsigmoidGrad)                        \
    F(hardswish_grad, HardswishGrad)
// Those that take many registers.
#define NORCH_FUSED_LONG_UNARY(F)                                                                                    \
    F(sin, ops::sin) F(cos, ops::cos) F(tan, ops::tan) F(asin, ops::asin) F(acos, ops::acos) F(atan, ops::atan)      \
    F(sinh, ops::sinh) F(cosh, ops::cosh) F(asinh, ops::asinh) F(acosh, ops::acosh) F(atanh, ops::atanh)
#define NORCH_FUSED_LONG_BINARY(F)                                                                                   \
    F(pow, Pow) F(atan2, Atan2) F(floor_divide, FloorDivide) F(remainder, Remainder)

}  // namespace norch::elementwise::fused
