// The steps of fused programs by code, for the interpreter.
#pragma once

#include <map>
#include <string>

#include "elementwise/fused_ops.cuh"

namespace norch::elementwise::fused {

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

/// What computes a step of a code, in C++.
inline const char* text_of(Code code) {
    switch (code) {
#define NORCH_FUSED_TEXT(name, op) case code_##name: return "Plain<" #op ">";
#define NORCH_FUSED_TEXTS(name, op)                              \
    case code_##name: return "Activated<" #op ", float>";        \
    case code_##name##_half: return "Activated<" #op ", Halves>";
        NORCH_FUSED_UNARY(NORCH_FUSED_TEXT)
        NORCH_FUSED_LONG_UNARY(NORCH_FUSED_TEXT)
        NORCH_FUSED_BINARY(NORCH_FUSED_TEXT)
        NORCH_FUSED_LONG_BINARY(NORCH_FUSED_TEXT)
        NORCH_FUSED_TERNARY(NORCH_FUSED_TEXT)
        NORCH_FUSED_ACTIVATION(NORCH_FUSED_TEXTS)
        NORCH_FUSED_GRAD(NORCH_FUSED_TEXTS)
#undef NORCH_FUSED_TEXT
#undef NORCH_FUSED_TEXTS
        default: return "";
    }
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
