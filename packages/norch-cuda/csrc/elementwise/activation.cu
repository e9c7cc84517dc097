// Activations and their gradients.
#include "common/activation_ops.h"
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

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

template <class T>
struct ApplyActivation {
    Constants<computed<T>> k;

    template <class Op, class... X>
    __device__ computed<T> call(X... x) const {
        return Op::template apply<Functions<T>>(x..., k);
    }
};

struct Make {
    template <class Op>
    static KernelPtr simple(const Request& request) {
        return make<OpList<Relu, LeakyRelu, Hardtanh>, 1, Op>(request);
    }
    template <class Op>
    static KernelPtr simple_grad(const Request& request) {
        return make<OpList<ReluGrad, LeakyReluGrad, HardtanhGrad, TanhGrad, SigmoidGrad>, 2, Op>(request);
    }
    template <class Op, int>
    static KernelPtr smooth(const Request& request) {
        return make<OpList<Elu, Gelu, GeluTanh, Silu, Softplus>, 1, Op>(request);
    }
    template <class Op, int>
    static KernelPtr smooth_grad(const Request& request) {
        return make<OpList<EluGrad, GeluGrad, GeluTanhGrad, SiluGrad, SoftplusGrad>, 2, Op>(request);
    }

private:
    template <class List, int INPUTS, class Op>
    static KernelPtr make(const Request& request) {
        const DType dtype = request.operands[0].dtype;
        if (!is_floating(dtype)) return nullptr;
        std::vector<double> k = activation_constants(request);
        k.resize(3);
        return visit_floating_groups(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
            using C = computed<T>;
            const ApplyActivation<T> call{{C(k[0]), C(k[1]), C(k[2])}};
            return map(request, OneOf<T, T, INPUTS, List, ApplyActivation<T>>(List::template index<Op>(), call));
        });
    }
};

}  // namespace

void add_activations(Registry& registry) { add_activation_ops<Make>(registry); }  // relu of integers is core's maximum

}  // namespace norch::elementwise
