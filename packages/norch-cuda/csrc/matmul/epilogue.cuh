// The activations that a matrix product can end with.
#pragma once

#include <string>

#include "runtime/device.cuh"

namespace norch::matmul {

enum class Activation { none, relu, gelu, silu, tanh, sigmoid };

inline Activation activation_named(const std::string& name) {
    if (name == "none") return Activation::none;
    if (name == "relu") return Activation::relu;
    if (name == "gelu") return Activation::gelu;
    if (name == "silu") return Activation::silu;
    if (name == "tanh") return Activation::tanh;
    if (name == "sigmoid") return Activation::sigmoid;
    throw std::invalid_argument("there is no activation " + name);
}

/// C is float or double. NaN stays NaN.
template <class C>
__device__ C activate(C x, Activation activation) {
    switch (activation) {
        case Activation::relu: return x <= C(0) ? C(0) : x;
        case Activation::gelu: return C(0.5) * x * (C(1) + ::erf(x * C(0.70710678118654752440)));
        case Activation::silu: return x / (C(1) + ::exp(-x));
        case Activation::tanh: return ::tanh(x);
        case Activation::sigmoid: return C(1) / (C(1) + ::exp(-x));
        default: return x;
    }
}

}  // namespace norch::matmul
