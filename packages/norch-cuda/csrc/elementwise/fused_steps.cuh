// The steps that a fused program knows, by code: each is the op's own device function on values that are computed in
// float32, and bools as 0 and 1.
#pragma once

#include <map>
#include <string>

#include "common/activation_ops.h"
#include "elementwise/functions.cuh"

namespace norch::elementwise::fused {

/// Calls f(Op) with what the op's own kernel calls, of the constants of a step and its elements.
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
    F(gelu, Gelu) F(gelu_tanh, GeluTanh)
#define NORCH_FUSED_GRAD(F)                                                                                          \
    F(relu_grad, ReluGrad) F(leaky_relu_grad, LeakyReluGrad) F(hardtanh_grad, HardtanhGrad) F(tanh_grad, TanhGrad)   \
    F(sigmoid_grad, SigmoidGrad) F(elu_grad, EluGrad) F(silu_grad, SiluGrad) F(softplus_grad, SoftplusGrad)          \
    F(gelu_grad, GeluGrad) F(gelu_tanh_grad, GeluTanhGrad)
// Those that take many registers.
#define NORCH_FUSED_LONG_UNARY(F)                                                                                    \
    F(sin, ops::sin) F(cos, ops::cos) F(tan, ops::tan) F(asin, ops::asin) F(acos, ops::acos) F(atan, ops::atan)      \
    F(sinh, ops::sinh) F(cosh, ops::cosh) F(asinh, ops::asinh) F(acosh, ops::acosh) F(atanh, ops::atanh)
#define NORCH_FUSED_LONG_BINARY(F)                                                                                   \
    F(pow, Pow) F(atan2, Atan2) F(floor_divide, FloorDivide) F(remainder, Remainder)

#define NORCH_FUSED_CODE(name, op) code_##name,
#define NORCH_FUSED_CODES(name, op) code_##name, code_##name##_half,
enum Code : uint8_t {
    NORCH_FUSED_UNARY(NORCH_FUSED_CODE)
    NORCH_FUSED_ACTIVATION(NORCH_FUSED_CODES)
    NORCH_FUSED_BINARY(NORCH_FUSED_CODE)
    NORCH_FUSED_GRAD(NORCH_FUSED_CODES)
    NORCH_FUSED_TERNARY(NORCH_FUSED_CODE)
    first_long,
    NORCH_FUSED_LONG_UNARY(NORCH_FUSED_CODE)
    NORCH_FUSED_LONG_BINARY(NORCH_FUSED_CODE)
};

struct Found {
    Code code;
    int arity;
};

/// The code of a step by its name ("gelu_tanh" for gelu's approximation); arity 0 where there is none.
inline Found find_code(const std::string& name, bool is_half) {
#define NORCH_FUSED_1(name, op) {#name, {code_##name, 1}},
#define NORCH_FUSED_2(name, op) {#name, {code_##name, 2}},
#define NORCH_FUSED_3(name, op) {#name, {code_##name, 3}},
    static const std::map<std::string, Found> plain = {
        NORCH_FUSED_UNARY(NORCH_FUSED_1) NORCH_FUSED_LONG_UNARY(NORCH_FUSED_1) NORCH_FUSED_BINARY(NORCH_FUSED_2)
        NORCH_FUSED_LONG_BINARY(NORCH_FUSED_2) NORCH_FUSED_TERNARY(NORCH_FUSED_3)};
    static const std::map<std::string, Found> doubled = {
        NORCH_FUSED_ACTIVATION(NORCH_FUSED_1) NORCH_FUSED_GRAD(NORCH_FUSED_2)};
#undef NORCH_FUSED_1
#undef NORCH_FUSED_2
#undef NORCH_FUSED_3
    if (const auto found = plain.find(name); found != plain.end()) return found->second;
    const auto found = doubled.find(name);
    if (found == doubled.end()) return {code_copy, 0};
    return {Code(found->second.code + is_half), found->second.arity};
}

template <class Call, int K, class... X>
__device__ inline void each(float (&y)[K], const float* k, const X (&... x)[K]) {
#pragma unroll
    for (int i = 0; i < K; ++i) y[i] = Call::call(k, x[i]...);
}

/// y of up to three operands.
template <bool HAS_LONG, int K>
__device__ inline void step(Code code, float (&y)[K], const float* k, const float (&a)[K], const float (&b)[K],
                            const float (&c)[K]) {
    switch (code) {
#define NORCH_FUSED_1(name, op) case code_##name: return each<Plain<op>>(y, k, a);
#define NORCH_FUSED_2(name, op) case code_##name: return each<Plain<op>>(y, k, a, b);
#define NORCH_FUSED_3(name, op) case code_##name: return each<Plain<op>>(y, k, a, b, c);
#define NORCH_FUSED_A(name, op)                                        \
    case code_##name: return each<Activated<op, float>>(y, k, a);      \
    case code_##name##_half: return each<Activated<op, Halves>>(y, k, a);
#define NORCH_FUSED_G(name, op)                                        \
    case code_##name: return each<Activated<op, float>>(y, k, a, b);   \
    case code_##name##_half: return each<Activated<op, Halves>>(y, k, a, b);
        NORCH_FUSED_UNARY(NORCH_FUSED_1)
        NORCH_FUSED_BINARY(NORCH_FUSED_2)
        NORCH_FUSED_TERNARY(NORCH_FUSED_3)
        NORCH_FUSED_ACTIVATION(NORCH_FUSED_A)
        NORCH_FUSED_GRAD(NORCH_FUSED_G)
        default: break;
    }
    if constexpr (HAS_LONG) {
        switch (code) {
            NORCH_FUSED_LONG_UNARY(NORCH_FUSED_1)
            NORCH_FUSED_LONG_BINARY(NORCH_FUSED_2)
            default: break;
        }
    }
#undef NORCH_FUSED_1
#undef NORCH_FUSED_2
#undef NORCH_FUSED_3
#undef NORCH_FUSED_A
#undef NORCH_FUSED_G
}

}  // namespace norch::elementwise::fused
