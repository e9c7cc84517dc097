// Activations and their gradients.
#include "common/activation_ops.h"
#include "elementwise/elementwise.cuh"
#include "elementwise/functions.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

template <class T>
struct ApplyActivation {
    // With 34 registers instead of 32 there would be 6, and gelu took 58 us instead of 54.
    static constexpr int BLOCKS = std::is_same_v<T, Halves> ? 8 : 1;
    Constants<computed<T>> k;

    template <class Op, class... X>
    __device__ computed<T> call(X... x) const {
        return Op::template apply<Functions<T>>(x..., k);
    }
};

struct Make {
    template <class Op>
    static KernelPtr simple(const Request& request) {
        return make<OpList<Relu, LeakyRelu, Hardtanh, Hardsigmoid, Hardswish>, 1, Op>(request);
    }
    template <class Op>
    static KernelPtr simple_grad(const Request& request) {
        return make<OpList<ReluGrad, LeakyReluGrad, HardtanhGrad, TanhGrad, SigmoidGrad, HardsigmoidGrad, HardswishGrad>, 2,
                    Op>(request);
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

void add_activations(Registry& registry) {
    add_activation_ops<Make>(registry);  // relu of integers is core's maximum
    registry["hardsigmoid"] = Make::simple<Hardsigmoid>;
    registry["hardsigmoid_grad"] = Make::simple_grad<HardsigmoidGrad>;
    registry["hardswish"] = Make::simple<Hardswish>;
    registry["hardswish_grad"] = Make::simple_grad<HardswishGrad>;
}

}  // namespace norch::elementwise
