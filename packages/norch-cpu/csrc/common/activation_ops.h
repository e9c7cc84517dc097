// Activations and their gradients for one element, on any processor, by the formulas of norch.ops.activation. M has the
// elementary functions for the type that is computed in: exp, expm1, log1p, tanh, sigmoid, normal_cdf, twice_sigmoid.
#pragma once

#include <cmath>
#ifndef __CUDACC_RTC__  // where a device's compiler runs, only what is computed is of use
#include <map>
#include <string>
#include <vector>

#include "common/kernel.h"
#endif

#include "common/arithmetic_ops.h"

namespace norch {

/// An op's number attributes, in the order of `activation_constants`.
template <class C>
struct Constants {
    C a, b, c;
};

#ifndef __CUDACC_RTC__
inline std::vector<double> activation_constants(const Request& request) {
    static const std::map<std::string, std::vector<const char*>> names = {
        {"leaky_relu", {"negative_slope"}},
        {"hardtanh", {"min_val", "max_val"}},
        {"elu", {"alpha", "scale", "input_scale"}},
        {"softplus", {"beta", "threshold"}},
        {"threshold", {"threshold", "value"}},
        {"nan_to_num", {"nan", "posinf", "neginf"}},
    };
    std::vector<double> out;
    const auto found = names.find(request.op.substr(0, request.op.find("_grad")));
    if (found == names.end()) return out;
    for (const char* name : found->second) out.push_back(request.attrs.number(name));
    out.resize(3);
    if (found->first == "softplus") out[2] = 1 / out[0];
    return out;
}
#endif

/// `Name::apply<M>(x, k)` for an activation; `Name::apply<M>(g, x, k)` for the gradient, of the gradient g of the result
/// and of the input or, where a comment says so, of the result.
#define NORCH_ACTIVATION(Name, formula)                                                    \
    struct Name {                                                                          \
        template <class M, class C>                                                        \
        NORCH_FN static C apply(C x, [[maybe_unused]] const Constants<C>& k) {             \
            return formula;                                                                \
        }                                                                                  \
    };
#define NORCH_ACTIVATION_GRAD(Name, formula)                                               \
    struct Name {                                                                          \
        template <class M, class C>                                                        \
        NORCH_FN static C apply(C g, C x, [[maybe_unused]] const Constants<C>& k) {        \
            return formula;                                                                \
        }                                                                                  \
    };

/// Both numbers are computed, so that loops vectorise.
template <class C>
NORCH_FN C choose(bool first, C a, C b) {
    return first ? a : b;
}
template <class C>
NORCH_FN C clamp(C x, C low, C high) {
    const C raised = x < low ? low : x;
    return raised > high ? high : raised;
}
template <class C>
NORCH_FN C negative_part(C x) {
    return x > C(0) ? C(0) : x;
}

NORCH_ACTIVATION(Relu, x <= C(0) ? C(0) : x)
NORCH_ACTIVATION_GRAD(ReluGrad, x <= C(0) ? C(0) : g)  // of the result
NORCH_ACTIVATION(LeakyRelu, x > C(0) ? x : x * k.a)
NORCH_ACTIVATION_GRAD(LeakyReluGrad, x > C(0) ? g : g * k.a)
NORCH_ACTIVATION(Hardtanh, clamp(x, k.a, k.b))
NORCH_ACTIVATION_GRAD(HardtanhGrad, (x <= k.a) | (x >= k.b) ? C(0) : g)
NORCH_ACTIVATION(Tanh, M::tanh(x))
NORCH_ACTIVATION_GRAD(TanhGrad, g * (C(1) - x * x))  // of the result
NORCH_ACTIVATION(Sigmoid, M::sigmoid(x))
NORCH_ACTIVATION_GRAD(SigmoidGrad, g * (x * (C(1) - x)))  // of the result
NORCH_ACTIVATION(Elu, choose(x > C(0), x, C(M::expm1(negative_part(x) * k.c) * k.a)) * k.b)
NORCH_ACTIVATION_GRAD(EluGrad, g * choose(x > C(0), k.b, C(M::exp(negative_part(x) * k.c) * (k.a * k.b * k.c))))

NORCH_ACTIVATION(Hardsigmoid, clamp(x + C(3), C(0), C(6)) * C(1.0 / 6))
NORCH_ACTIVATION_GRAD(HardsigmoidGrad, (x > C(-3)) & (x < C(3)) ? g * C(1.0 / 6) : C(0))
NORCH_ACTIVATION(Hardswish, x * (clamp(x + C(3), C(0), C(6)) * C(1.0 / 6)))
NORCH_ACTIVATION_GRAD(HardswishGrad, choose(x <= C(-3), C(0), choose(x >= C(3), g, C(g * (x * C(1.0 / 3) + C(0.5))))))
NORCH_ACTIVATION(Threshold, x <= k.a ? k.b : x)
NORCH_ACTIVATION_GRAD(ThresholdGrad, x <= k.a ? C(0) : g)

template <class M, class C>
NORCH_FN C silu_slope(C x) {
    const C s = M::sigmoid(x);
    return s * (x * (C(1) - s) + C(1));
}
NORCH_ACTIVATION(Silu, x * M::sigmoid(x))
NORCH_ACTIVATION_GRAD(SiluGrad, g * silu_slope<M>(x))

template <class M, class C>
NORCH_FN C softplus(C x, const Constants<C>& k) {
    const C scaled = x * k.a, soft = (scaled < C(0) ? C(0) : scaled) + M::log1p(M::exp(-std::fabs(scaled)));
    return scaled > k.b ? x : soft * k.c;
}
NORCH_ACTIVATION(Softplus, softplus<M>(x, k))
NORCH_ACTIVATION_GRAD(SoftplusGrad, choose(x * k.a > k.b, g, C(g * M::sigmoid(x * k.a))))

template <class M, class C>
NORCH_FN C gelu_slope(C x) {
    C exponential;  // exp(-x * x / 2)
    const C below = M::normal_cdf(x, exponential);
    return below + x * exponential * C(0.39894228040143267794);  // 1 / sqrt(2 pi)
}
template <class M, class C>
NORCH_FN C gelu(C x) {
    C exponential;
    return x * M::normal_cdf(x, exponential);
}
NORCH_ACTIVATION(Gelu, gelu<M>(x))
NORCH_ACTIVATION_GRAD(GeluGrad, g * gelu_slope<M>(x))

constexpr double GELU_SCALE = 0.79788456080286535588, GELU_CUBIC = 0.044715;  // GELU_SCALE: sqrt(2 / pi)
/// (tanh(y) + 1) / 2, of y = sqrt(2 / pi) (x + 0.044715 x^3).
template <class M, class C>
NORCH_FN C gelu_gate(C x) {
    return M::twice_sigmoid((x + x * x * x * C(GELU_CUBIC)) * C(GELU_SCALE));
}
template <class M, class C>
NORCH_FN C gelu_tanh_slope(C x) {
    const C s = gelu_gate<M>(x), inner = (x * x * C(3 * GELU_CUBIC) + C(1)) * C(2 * GELU_SCALE);
    return s + x * (s * (C(1) - s)) * inner;
}
NORCH_ACTIVATION(GeluTanh, x * gelu_gate<M>(x))
NORCH_ACTIVATION_GRAD(GeluTanhGrad, g * gelu_tanh_slope<M>(x))

#ifndef __CUDACC_RTC__
/// Adds them. Those in pieces are `simple`, the others `smooth`; the number is what an element of the latter costs a core,
/// in picoseconds.
template <class Make>
void add_activation_ops(Registry& registry) {
    registry["relu"] = Make::template simple<Relu>;
    registry["relu_grad"] = Make::template simple_grad<ReluGrad>;
    registry["tanh_grad"] = Make::template simple_grad<TanhGrad>;
    registry["sigmoid_grad"] = Make::template simple_grad<SigmoidGrad>;
    registry["leaky_relu"] = Make::template simple<LeakyRelu>;
    registry["leaky_relu_grad"] = Make::template simple_grad<LeakyReluGrad>;
    registry["hardtanh"] = Make::template simple<Hardtanh>;
    registry["hardtanh_grad"] = Make::template simple_grad<HardtanhGrad>;
    registry["elu"] = Make::template smooth<Elu, 1000>;
    registry["elu_grad"] = Make::template smooth_grad<EluGrad, 1000>;
    registry["silu"] = Make::template smooth<Silu, 1000>;
    registry["silu_grad"] = Make::template smooth_grad<SiluGrad, 1000>;
    registry["softplus"] = Make::template smooth<Softplus, 2000>;
    registry["softplus_grad"] = Make::template smooth_grad<SoftplusGrad, 1000>;
    registry["gelu"] = [](const Request& r) {
        const bool is_exact = r.attrs.text("approximate") == "none";
        return is_exact ? Make::template smooth<Gelu, 1000>(r) : Make::template smooth<GeluTanh, 1000>(r);
    };
    registry["gelu_grad"] = [](const Request& r) {
        const bool is_exact = r.attrs.text("approximate") == "none";
        return is_exact ? Make::template smooth_grad<GeluGrad, 2000>(r) : Make::template smooth_grad<GeluTanhGrad, 1000>(r);
    };
}
#endif

}  // namespace norch
