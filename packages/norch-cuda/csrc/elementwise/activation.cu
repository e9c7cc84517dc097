// Activations and their gradients, by the formulas of norch.ops.activation.
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

enum class Op {
    relu, leaky_relu, hardtanh, elu, gelu, gelu_tanh, silu, softplus,
    tanh, sigmoid,  // gradients only
};

constexpr double ROOT_HALF = 0.70710678118654752440, NORMAL_DENSITY = 0.39894228040143267794;  // 1 / sqrt(2 pi)
constexpr double TANH_SCALE = 0.79788456080286535588, CUBIC = 0.044715;                        // sqrt(2 / pi)

/// An op's number attributes.
template <class C>
struct Constants {
    C a, b, c;
};

/// For 16-bit results the fast functions do: their error, 2**-20 or so, is lost in the rounding.
template <class T, class C = computed<T>>
__device__ inline C exponential(C x) {
    if constexpr (sizeof(T) == 2) return __expf(x);
    else return ::exp(x);
}
template <class T, class C = computed<T>>
__device__ inline C sigmoid(C x) {
    if constexpr (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + __expf(-x));
    else return C(1) / (C(1) + ::exp(-x));
}
/// The normal distribution's value at x, and exp(-x * x / 2).
template <class T, class C = computed<T>>
__device__ inline C normal_below(C x, C& density) {
    if constexpr (sizeof(T) == 2) {
        // erfc to 1.5e-7: M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 7.1.26.
        const float z = fabsf(x) * float(ROOT_HALF), t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
        density = __expf(-z * z);
        const float p = 1.421413741f + t * (-1.453152027f + t * 1.061405429f);
        const float above = 0.5f * density * (t * (0.254829592f + t * (-0.284496736f + t * p)));
        return x < 0.0f ? above : 1.0f - above;
    } else {
        density = ::exp(x * x * C(-0.5));
        return (::erf(x * C(ROOT_HALF)) + C(1)) * C(0.5);
    }
}
template <class T, class C = computed<T>>
__device__ inline C gelu(C x) {
    C density;
    return x * normal_below<T>(x, density);
}
/// (tanh(y) + 1) / 2 is sigmoid(2 y), and that without cancellation.
template <class T, class C = computed<T>>
__device__ inline C gelu_gate(C x) {
    return sigmoid<T>((x + x * x * x * C(CUBIC)) * C(2 * TANH_SCALE));
}
template <class C>
__device__ inline C negative_part(C x) {
    return x > C(0) ? C(0) : x;
}

template <class C>
__device__ inline C elu(C x, const Constants<C>& k) {
    const C below = ::expm1(negative_part(x) * k.c) * k.a;
    return (x > C(0) ? x : below) * k.b;
}
template <class C>
__device__ inline C elu_slope(C x, const Constants<C>& k) {
    return x > C(0) ? k.b : ::exp(negative_part(x) * k.c) * (k.a * k.b * k.c);
}

template <class T, class C = computed<T>>
__device__ inline C gelu_slope(C x) {
    C density;
    const C below = normal_below<T>(x, density);
    return below + x * density * C(NORMAL_DENSITY);
}
template <class T, class C = computed<T>>
__device__ inline C gelu_tanh_slope(C x) {
    const C s = gelu_gate<T>(x), inner = (x * x * C(3 * CUBIC) + C(1)) * C(2 * TANH_SCALE);
    return s + x * (s * (C(1) - s)) * inner;
}

template <class T, class C = computed<T>>
__device__ inline C silu_slope(C x) {
    const C s = sigmoid<T>(x);
    return s * (x * (C(1) - s) + C(1));
}

/// k: beta, the threshold, 1 / beta.
template <class T, class C = computed<T>>
__device__ inline C softplus(C x, const Constants<C>& k) {
    const C scaled = x * k.a;
    const C soft = (scaled < C(0) ? C(0) : scaled) + ::log1p(exponential<T>(-::fabs(scaled)));
    return scaled > k.b ? x : soft * k.c;
}

/// In pieces.
template <class T>
struct Simple {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 1;
    Op op;
    Constants<computed<T>> k;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[1][K]) const {
        using C = computed<T>;
        switch (op) {
            case Op::leaky_relu: NORCH_EACH(x[0][i] > C(0) ? x[0][i] : C(x[0][i] * k.a))
            case Op::hardtanh: NORCH_EACH(x[0][i] < k.a ? k.a : x[0][i] > k.b ? k.b : x[0][i])
            default: NORCH_EACH(x[0][i] <= C(0) ? C(0) : x[0][i])
        }
    }
};

template <class T>
struct Smooth {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 1;
    Op op;
    Constants<computed<T>> k;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[1][K]) const {
        using C = computed<T>;
        switch (op) {
            case Op::elu: NORCH_EACH(elu(x[0][i], k))
            case Op::gelu: NORCH_EACH(gelu<T>(x[0][i]))
            case Op::gelu_tanh: NORCH_EACH(x[0][i] * gelu_gate<T>(x[0][i]))
            case Op::silu: NORCH_EACH(x[0][i] * sigmoid<T>(x[0][i]))
            default: NORCH_EACH(softplus<T>(x[0][i], k))
        }
    }
};

/// Of the gradient of the result, and the result (relu, hardtanh, tanh, sigmoid) or the input.
template <class T>
struct SimpleGrad {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 2;
    Op op;
    Constants<computed<T>> k;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[2][K]) const {
        using C = computed<T>;
        switch (op) {
            case Op::leaky_relu: NORCH_EACH(x[1][i] > C(0) ? x[0][i] : x[0][i] * k.a)
            case Op::hardtanh: NORCH_EACH(x[1][i] <= k.a || x[1][i] >= k.b ? C(0) : x[0][i])
            case Op::tanh: NORCH_EACH(x[0][i] * (C(1) - x[1][i] * x[1][i]))
            case Op::sigmoid: NORCH_EACH(x[0][i] * (x[1][i] * (C(1) - x[1][i])))
            default: NORCH_EACH(x[1][i] <= C(0) ? C(0) : x[0][i])
        }
    }
};

template <class T>
struct SmoothGrad {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 2;
    Op op;
    Constants<computed<T>> k;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[2][K]) const {
        switch (op) {
            case Op::elu: NORCH_EACH(x[0][i] * elu_slope(x[1][i], k))
            case Op::gelu: NORCH_EACH(x[0][i] * gelu_slope<T>(x[1][i]))
            case Op::gelu_tanh: NORCH_EACH(x[0][i] * gelu_tanh_slope<T>(x[1][i]))
            case Op::silu: NORCH_EACH(x[0][i] * silu_slope<T>(x[1][i]))
            default: NORCH_EACH(x[1][i] * k.a > k.b ? x[0][i] : x[0][i] * sigmoid<T>(x[1][i] * k.a))
        }
    }
};

/// A kernel for floats; `names` are the op's number attributes.
template <template <class> class Family>
KernelPtr make(const Request& request, Op op, std::initializer_list<const char*> names = {}) {
    if (!is_floating(request.operands[0].dtype)) return nullptr;
    double numbers[3] = {};
    int count = 0;
    for (const char* name : names) numbers[count++] = request.attrs.number(name);
    if (op == Op::softplus) numbers[2] = 1 / numbers[0];
    return visit_floating_device(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        using C = computed<T>;
        return map(request, Family<T>{op, {C(numbers[0]), C(numbers[1]), C(numbers[2])}});
    });
}

Op gelu_of(const Request& request) {
    return request.attrs.text("approximate") == "none" ? Op::gelu : Op::gelu_tanh;
}

template <template <class> class Family, Op op>
KernelPtr plain(const Request& request) {
    return make<Family>(request, op);
}
template <template <class> class Family>
KernelPtr leaky_relu(const Request& request) {
    return make<Family>(request, Op::leaky_relu, {"negative_slope"});
}
template <template <class> class Family>
KernelPtr hardtanh(const Request& request) {
    return make<Family>(request, Op::hardtanh, {"min_val", "max_val"});
}
template <template <class> class Family>
KernelPtr elu(const Request& request) {
    return make<Family>(request, Op::elu, {"alpha", "scale", "input_scale"});
}
template <template <class> class Family>
KernelPtr softplus(const Request& request) {
    return make<Family>(request, Op::softplus, {"beta", "threshold"});
}
template <template <class> class Family>
KernelPtr gelu(const Request& request) {
    return make<Family>(request, gelu_of(request));
}

}  // namespace

void add_activations(Registry& registry) {
    registry["relu"] = plain<Simple, Op::relu>;  // of integers: core takes the maximum
    registry["relu_grad"] = plain<SimpleGrad, Op::relu>;
    registry["tanh_grad"] = plain<SimpleGrad, Op::tanh>;
    registry["sigmoid_grad"] = plain<SimpleGrad, Op::sigmoid>;
    registry["leaky_relu"] = leaky_relu<Simple>;
    registry["leaky_relu_grad"] = leaky_relu<SimpleGrad>;
    registry["hardtanh"] = hardtanh<Simple>;
    registry["hardtanh_grad"] = hardtanh<SimpleGrad>;
    registry["elu"] = elu<Smooth>;
    registry["elu_grad"] = elu<SmoothGrad>;
    registry["gelu"] = gelu<Smooth>;
    registry["gelu_grad"] = gelu<SmoothGrad>;
    registry["silu"] = plain<Smooth, Op::silu>;
    registry["silu_grad"] = plain<SmoothGrad, Op::silu>;
    registry["softplus"] = softplus<Smooth>;
    registry["softplus_grad"] = softplus<SmoothGrad>;
}

}  // namespace norch::elementwise
