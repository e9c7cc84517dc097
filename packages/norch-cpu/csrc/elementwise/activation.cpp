// Activations, and the gradients of elementwise ops: one loop each, with the op's attributes as constant inputs.
#include "common/activation_ops.h"
#include "common/losses.h"
#include "elementwise/functions.h"
#include "elementwise/loop.h"
#include "elementwise/narrow.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

/// An elementwise kernel whose loop gets constants as inputs after the request's own.
class WithConstants final : public ElementwiseKernel {
public:
    WithConstants(Request request, Loop loop, double ns, std::vector<double> constants)
        : given_(request.operands.size()), constants_(std::move(constants)) {
        Operand constant;
        constant.dtype = request.operands[0].dtype;
        constant.is_scalar = true;
        request.operands.resize(given_ + constants_.size(), constant);
        inner_ = elementwise_kernel(request, loop, ns);
        work = inner_->work;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        char* all[MAX_OPERANDS] = {};
        Scalar values[MAX_OPERANDS];
        for (size_t i = 0; i < given_; ++i) {
            all[i] = data[i];
            values[i] = scalars[i];
        }
        for (size_t i = 0; i < constants_.size(); ++i) values[given_ + i].f = constants_[i];
        inner_->run(all, values);
    }

    Inner inner() const override {
        Inner found = static_cast<const ElementwiseKernel&>(*inner_).inner();
        found.constants = constants_;
        return found;
    }

private:
    static constexpr int MAX_OPERANDS = 6;
    size_t given_;
    std::vector<double> constants_;
    KernelPtr inner_;
};

/// The op's constants, which WithConstants gives as inputs from `p` on.
template <class T, bool HAS_CONSTANTS>
Constants<T> constants_at(char* const* p) {
    if constexpr (!HAS_CONSTANTS) return {};
    else return {*reinterpret_cast<const T*>(p[0]), *reinterpret_cast<const T*>(p[1]), *reinterpret_cast<const T*>(p[2])};
}

template <class T, class Op, bool HAS_CONSTANTS>
void activation_loop(char* const* p, unsigned, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* x = reinterpret_cast<const T*>(p[1]);
    const auto k = constants_at<T, HAS_CONSTANTS>(p + 2);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = Op::template apply<Functions>(x[i], k);
}

/// Of the gradient of the result and a saved tensor.
template <class T, class Op, bool HAS_CONSTANTS>
void gradient_loop(char* const* p, unsigned broadcast, int64_t n) {
    const auto k = constants_at<T, HAS_CONSTANTS>(p + 3);
    apply_alike<T>(p, broadcast, n, [=](T g, T x) NORCH_INLINE_LAMBDA { return Op::template apply<Functions>(g, x, k); });
}

/// The gradient of (a - b) ** 2 by a; the gradient of a mean is the same for all elements.
template <class T>
void difference_loop(char* const* p, unsigned broadcast, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* g = reinterpret_cast<const T*>(p[1]);
    const T* a = reinterpret_cast<const T*>(p[2]);
    const T* b = reinterpret_cast<const T*>(p[3]);
    const T factor = *reinterpret_cast<const T*>(p[4]);
    const int64_t step_a = broadcast & 4 ? 0 : 1, step_b = broadcast & 8 ? 0 : 1;
    if ((broadcast & 2) && step_a && step_b) {
        const T scale = *g * factor;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = (a[i] - b[i]) * scale;
    } else {
        const int64_t step_g = broadcast & 2 ? 0 : 1;
        for (int64_t i = 0; i < n; ++i) out[i] = (a[i * step_a] - b[i * step_b]) * (g[i * step_g] * factor);
    }
}

NORCH_ACTIVATION(NanToNum, choose(x != x, k.a, choose(x == math::infinity<C>, k.b, choose(x == -math::infinity<C>, k.c, x))))

template <class Op, class... Ops>
constexpr bool IS_ONE_OF = (std::is_same_v<Op, Ops> || ...);
/// Whether `activation_constants` has some for it.
template <class Op>
constexpr bool HAS_CONSTANTS = IS_ONE_OF<Op, LeakyRelu, LeakyReluGrad, Hardtanh, HardtanhGrad, Elu, EluGrad, Softplus,
                                         SoftplusGrad, Threshold, ThresholdGrad, NanToNum>;

/// What the loops of the activations become kernels by; floating dtypes only.
struct Make {
    template <class Op>
    static KernelPtr simple(const Request& request) {
        return smooth<Op, 200>(request);
    }
    template <class Op>
    static KernelPtr simple_grad(const Request& request) {
        return smooth_grad<Op, 200>(request);
    }
    template <class Op, int PS>
    static KernelPtr smooth(const Request& request) {
        return with_loops<Op, activation_loop<double, Op, HAS_CONSTANTS<Op>>, activation_loop<float, Op, HAS_CONSTANTS<Op>>>(
            request, PS * 1e-3);
    }
    template <class Op, int PS>
    static KernelPtr smooth_grad(const Request& request) {
        return with_loops<Op, gradient_loop<double, Op, HAS_CONSTANTS<Op>>, gradient_loop<float, Op, HAS_CONSTANTS<Op>>>(
            request, PS * 1e-3);
    }

private:
    template <class Op, Loop IN_DOUBLE, Loop IN_FLOAT>
    static KernelPtr with_loops(const Request& request, double ns) {
        const DType dtype = request.operands[0].dtype;
        if (!is_floating(dtype)) return nullptr;
        const Loop loop = dtype == DType::f64 ? IN_DOUBLE : IN_FLOAT;
        if constexpr (!HAS_CONSTANTS<Op>) return elementwise_kernel(request, loop, ns);
        else return std::make_unique<WithConstants>(request, loop, ns, activation_constants(request));
    }
};

struct NarrowRelu {
    template <class V>
    static NORCH_INLINE V apply(V x) {
        return x <= 0 ? V{} : x;
    }
    template <class S>
    struct Of {
        static constexpr Loop loop = narrow_unary_loop<S, NarrowRelu>;
    };
};

[[gnu::cold]] KernelPtr relu(const Request& request) {
    DType dtype = request.operands[0].dtype;
    if (dtype == DType::boolean) return nullptr;
    const Loop narrow = of_one_dtype(request) ? narrow_of<NarrowRelu::Of>(dtype) : nullptr;
    return visit(dtype, [&]<class S>(Tag<S>) {
        return elementwise_kernel(request, activation_loop<compute_t<S>, Relu, false>, 0.2, 0, narrow);
    });
}

struct NarrowReluGrad {
    template <class V>
    static NORCH_INLINE V apply(V g, V y) {
        return y <= 0 ? V{} : g;
    }
    template <class S>
    struct Of {
        static constexpr Loop loop = narrow_binary_loop<S, NarrowReluGrad>;
    };
};

[[gnu::cold]] KernelPtr relu_grad(const Request& request) {
    const DType dtype = request.operands[0].dtype;
    const Loop narrow = of_one_dtype(request) ? narrow_of<NarrowReluGrad::Of>(dtype) : nullptr;
    if (!narrow) return Make::simple_grad<ReluGrad>(request);
    return elementwise_kernel(request, gradient_loop<float, ReluGrad, false>, 0.2, 0, narrow);
}

NORCH_BINARY(T, Prelu, a > 0 ? a : a * b)

[[gnu::cold]] KernelPtr prelu(const Request& request) {
    for (const Operand& o : request.operands)
        if (!is_floating(o.dtype) || o.dtype != request.operands[0].dtype) return nullptr;
    const bool is_double = request.operands[0].dtype == DType::f64;
    return elementwise_kernel(request, is_double ? binary_loop<double, double, Prelu> : binary_loop<float, float, Prelu>, 0.2);
}

[[gnu::cold]] KernelPtr mse_loss_grad(const Request& request) {
    const Operand& out = request.operands[0];
    if (!is_floating(out.dtype)) return nullptr;
    Loop loop = out.dtype == DType::f64 ? difference_loop<double> : difference_loop<float>;
    return std::make_unique<WithConstants>(request, loop, 0.3, std::vector<double>{mse_loss_factor(request)});
}

}  // namespace

void add_activations(Registry& registry) {
    add_activation_ops<Make>(registry);
    registry["relu"] = relu;  // of integers too
    registry["relu_grad"] = relu_grad;
    registry["hardsigmoid"] = Make::simple<Hardsigmoid>;
    registry["hardsigmoid_grad"] = Make::simple_grad<HardsigmoidGrad>;
    registry["hardswish"] = Make::simple<Hardswish>;
    registry["hardswish_grad"] = Make::simple_grad<HardswishGrad>;
    registry["nan_to_num"] = Make::simple<NanToNum>;
    registry["threshold"] = Make::simple<Threshold>;
    registry["threshold_grad"] = Make::simple_grad<ThresholdGrad>;
    registry["prelu"] = prelu;
    registry["mse_loss_grad"] = mse_loss_grad;
}

}  // namespace norch::elementwise
