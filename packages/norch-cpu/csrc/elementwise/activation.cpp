// Activations, and the gradients of elementwise ops: one loop each, with the op's attributes as constant inputs.
#include <algorithm>
#include <cmath>

#include "elementwise/functions.h"
#include "elementwise/loop.h"

namespace norch::elementwise {
namespace {

/// An elementwise kernel whose loop gets constants as inputs after the request's own.
class WithConstants final : public Kernel {
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
        char* all[MOST] = {};
        Scalar values[MOST];
        for (size_t i = 0; i < given_; ++i) {
            all[i] = data[i];
            values[i] = scalars[i];
        }
        for (size_t i = 0; i < constants_.size(); ++i) values[given_ + i].f = constants_[i];
        inner_->run(all, values);
    }

private:
    static constexpr int MOST = 6;
    size_t given_;
    std::vector<double> constants_;
    KernelPtr inner_;
};

/// F is made from the loop's constants, and takes the one input.
template <class T, class F>
void activation_loop(char* const* p, unsigned, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* x = reinterpret_cast<const T*>(p[1]);
    const F f(p + 2);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}

/// F takes the gradient of the result and a saved tensor.
template <class T, class F>
void gradient_loop(char* const* p, unsigned single, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* g = reinterpret_cast<const T*>(p[1]);
    const T* x = reinterpret_cast<const T*>(p[2]);
    const F f(p + 3);
    if (single & 2) {
        const T value = *g;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = f(value, x[i]);
    } else if (single & 4) {
        const T value = *x;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = f(g[i], value);
    } else {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = f(g[i], x[i]);
    }
}

/// The gradient of (a - b) ** 2 by a; the gradient of a mean is the same for all elements.
template <class T>
void difference_loop(char* const* p, unsigned single, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* g = reinterpret_cast<const T*>(p[1]);
    const T* a = reinterpret_cast<const T*>(p[2]);
    const T* b = reinterpret_cast<const T*>(p[3]);
    const T factor = *reinterpret_cast<const T*>(p[4]);
    const int64_t step_a = single & 4 ? 0 : 1, step_b = single & 8 ? 0 : 1;
    if ((single & 2) && step_a && step_b) {
        const T scale = *g * factor;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = (a[i] - b[i]) * scale;
    } else {
        const int64_t step_g = single & 2 ? 0 : 1;
        for (int64_t i = 0; i < n; ++i) out[i] = (a[i * step_a] - b[i * step_b]) * (g[i * step_g] * factor);
    }
}

template <class T>
T constant(char* const* p, int i) {
    return *reinterpret_cast<const T*>(p[i]);
}

struct NoConstants {
    explicit NoConstants(char* const*) {}
};

template <class T>
struct Relu : NoConstants {
    using NoConstants::NoConstants;
    T operator()(T x) const { return x <= T(0) ? T(0) : x; }
};
template <class T>
struct ReluGrad : NoConstants {
    using NoConstants::NoConstants;
    T operator()(T g, T y) const { return y <= T(0) ? T(0) : g; }
};

template <class T>
struct LeakyRelu {
    explicit LeakyRelu(char* const* p) : slope(constant<T>(p, 0)) {}
    T operator()(T x) const { return x > 0 ? x : x * slope; }
    T operator()(T g, T x) const { return x > 0 ? g : g * slope; }
    T slope;
};

template <class T>
struct Elu {
    explicit Elu(char* const* p)
        : alpha(constant<T>(p, 0)), scale(constant<T>(p, 1)), input_scale(constant<T>(p, 2)) {}
    T operator()(T x) const {
        T below = math::expm1((x > 0 ? T(0) : x) * input_scale) * alpha;
        return (x > 0 ? x : below) * scale;
    }
    T operator()(T g, T x) const {
        T below = math::exp((x > 0 ? T(0) : x) * input_scale) * (alpha * scale * input_scale);
        return g * (x > 0 ? scale : below);
    }
    T alpha, scale, input_scale;
};

template <class T>
struct Hardtanh {
    explicit Hardtanh(char* const* p) : low(constant<T>(p, 0)), high(constant<T>(p, 1)) {}
    T operator()(T x) const {
        T raised = x < low ? low : x;
        return raised > high ? high : raised;
    }
    T operator()(T g, T y) const { return (y <= low) | (y >= high) ? T(0) : g; }
    T low, high;
};

template <class T>
struct Gelu : NoConstants {
    using NoConstants::NoConstants;
    T operator()(T x) const { return x * T(0.5) * (math::erf(x * T(M_SQRT1_2)) + T(1)); }
    T operator()(T g, T x) const {
        constexpr T density = T(0.39894228040143267794);  // 1 / sqrt(2 pi)
        T below = (math::erf(x * T(M_SQRT1_2)) + T(1)) * T(0.5);
        return g * (below + x * math::exp(x * x * T(-0.5)) * density);
    }
};

template <class T>
struct GeluTanh : NoConstants {
    using NoConstants::NoConstants;
    static constexpr T scale = T(0.79788456080286535588), cubic = T(0.044715);  // scale: sqrt(2 / pi)
    T operator()(T x) const { return x * T(0.5) * (math::tanh((x + x * x * x * cubic) * scale) + T(1)); }
    T operator()(T g, T x) const {
        T t = math::tanh((x + x * x * x * cubic) * scale);
        T inner = (x * x * (3 * cubic) + T(1)) * scale;
        return g * ((t + T(1)) * T(0.5) + x * (T(1) - t * t) * inner * T(0.5));
    }
};

template <class T>
struct Silu : NoConstants {
    using NoConstants::NoConstants;
    T operator()(T x) const { return x * math::sigmoid(x); }
    T operator()(T g, T x) const {
        T s = math::sigmoid(x);
        return g * (s * (x * (T(1) - s) + T(1)));
    }
};

template <class T>
struct Softplus {
    explicit Softplus(char* const* p) : beta(constant<T>(p, 0)), threshold(constant<T>(p, 1)) {}
    T operator()(T x) const {
        T scaled = x * beta;
        T soft = (scaled < 0 ? T(0) : scaled) + math::log1p(math::exp(-std::fabs(scaled)));
        return scaled > threshold ? x : soft / beta;
    }
    T operator()(T g, T x) const {
        T scaled = x * beta;
        return scaled > threshold ? g : g * math::sigmoid(scaled);
    }
    T beta, threshold;
};

template <class T>
struct TanhGrad : NoConstants {
    using NoConstants::NoConstants;
    T operator()(T g, T y) const { return g * (T(1) - y * y); }
};
template <class T>
struct SigmoidGrad : NoConstants {
    using NoConstants::NoConstants;
    T operator()(T g, T y) const { return g * (y * (T(1) - y)); }
};

/// The loop of a function for the dtype that a floating request is computed in.
template <template <class> class F>
Loop forward(DType dtype) {
    return dtype == DType::f64 ? activation_loop<double, F<double>> : activation_loop<float, F<float>>;
}
template <template <class> class F>
Loop gradient(DType dtype) {
    return dtype == DType::f64 ? gradient_loop<double, F<double>> : gradient_loop<float, F<float>>;
}

/// A kernel of a floating dtype; `attrs` names the constants that F is made from.
KernelPtr floating(const Request& request, Loop loop, double ns, std::initializer_list<const char*> attrs = {}) {
    if (!is_floating(request.operands[0].dtype)) return nullptr;
    if (!attrs.size()) return elementwise_kernel(request, loop, ns);
    std::vector<double> constants;
    for (const char* name : attrs) constants.push_back(request.attrs.number(name));
    return std::make_unique<WithConstants>(request, loop, ns, std::move(constants));
}

template <template <class> class F>
KernelPtr plain_gradient(const Request& request) {
    return floating(request, gradient<F>(request.operands[0].dtype), 0.2);
}

KernelPtr relu(const Request& request) {
    DType dtype = request.operands[0].dtype;
    if (dtype == DType::boolean) return nullptr;
    return visit(dtype, [&](auto tag) {
        using T = compute_t<typename decltype(tag)::type>;
        return elementwise_kernel(request, activation_loop<T, Relu<T>>, 0.2);
    });
}

KernelPtr leaky_relu(const Request& request) {
    return floating(request, forward<LeakyRelu>(request.operands[0].dtype), 0.2, {"negative_slope"});
}
KernelPtr leaky_relu_grad(const Request& request) {
    return floating(request, gradient<LeakyRelu>(request.operands[0].dtype), 0.2, {"negative_slope"});
}
KernelPtr elu(const Request& request) {
    return floating(request, forward<Elu>(request.operands[0].dtype), 1, {"alpha", "scale", "input_scale"});
}
KernelPtr elu_grad(const Request& request) {
    return floating(request, gradient<Elu>(request.operands[0].dtype), 1, {"alpha", "scale", "input_scale"});
}
KernelPtr hardtanh(const Request& request) {
    return floating(request, forward<Hardtanh>(request.operands[0].dtype), 0.2, {"min_val", "max_val"});
}
KernelPtr hardtanh_grad(const Request& request) {
    return floating(request, gradient<Hardtanh>(request.operands[0].dtype), 0.2, {"min_val", "max_val"});
}
KernelPtr softplus(const Request& request) {
    return floating(request, forward<Softplus>(request.operands[0].dtype), 2, {"beta", "threshold"});
}
KernelPtr softplus_grad(const Request& request) {
    return floating(request, gradient<Softplus>(request.operands[0].dtype), 1, {"beta", "threshold"});
}
KernelPtr silu(const Request& request) { return floating(request, forward<Silu>(request.operands[0].dtype), 1); }
KernelPtr silu_grad(const Request& request) { return floating(request, gradient<Silu>(request.operands[0].dtype), 1); }

KernelPtr gelu(const Request& request) {
    DType dtype = request.operands[0].dtype;
    bool exact = request.attrs.text("approximate") == "none";
    return floating(request, exact ? forward<Gelu>(dtype) : forward<GeluTanh>(dtype), 1);
}
KernelPtr gelu_grad(const Request& request) {
    DType dtype = request.operands[0].dtype;
    bool exact = request.attrs.text("approximate") == "none";
    return floating(request, exact ? gradient<Gelu>(dtype) : gradient<GeluTanh>(dtype), exact ? 2 : 1);
}

KernelPtr mse_loss_grad(const Request& request) {
    const Operand& out = request.operands[0];
    if (!is_floating(out.dtype)) return nullptr;
    bool mean = request.attrs.text("reduction") == "mean";
    double factor = mean ? 2.0 / double(std::max<int64_t>(out.numel(), 1)) : 2.0;
    Loop loop = out.dtype == DType::f64 ? difference_loop<double> : difference_loop<float>;
    return std::make_unique<WithConstants>(request, loop, 0.3, std::vector<double>{factor});
}

}  // namespace

void add_activations(Registry& registry) {
    registry["relu"] = relu;
    registry["relu_grad"] = plain_gradient<ReluGrad>;
    registry["tanh_grad"] = plain_gradient<TanhGrad>;
    registry["sigmoid_grad"] = plain_gradient<SigmoidGrad>;
    registry["leaky_relu"] = leaky_relu;
    registry["leaky_relu_grad"] = leaky_relu_grad;
    registry["elu"] = elu;
    registry["elu_grad"] = elu_grad;
    registry["hardtanh"] = hardtanh;
    registry["hardtanh_grad"] = hardtanh_grad;
    registry["softplus"] = softplus;
    registry["softplus_grad"] = softplus_grad;
    registry["silu"] = silu;
    registry["silu_grad"] = silu_grad;
    registry["gelu"] = gelu;
    registry["gelu_grad"] = gelu_grad;
    registry["mse_loss_grad"] = mse_loss_grad;
}

}  // namespace norch::elementwise
