// exp, log, sin and their kin, pow and atan2, for the floating dtypes: CUDA's own functions, of at most 2 to 3 ulp.
#include "elementwise/transcendental.h"

#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

enum class Op {
    exp, expm1, log, log1p, log2, log10, tanh, sigmoid, erf,
    sin, cos, tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh,
    pow, atan2,
};

template <class T>
__device__ T sigmoid(T x) {
    return T(1) / (T(1) + exp(-x));
}

/// The common ones.
template <class T>
struct Exponential {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 1;
    Op op;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[1][K]) const {
        switch (op) {
            case Op::exp: NORCH_EACH(::exp(x[0][i]))
            case Op::expm1: NORCH_EACH(::expm1(x[0][i]))
            case Op::log: NORCH_EACH(::log(x[0][i]))
            case Op::log1p: NORCH_EACH(::log1p(x[0][i]))
            case Op::log2: NORCH_EACH(::log2(x[0][i]))
            case Op::log10: NORCH_EACH(::log10(x[0][i]))
            case Op::tanh: NORCH_EACH(::tanh(x[0][i]))
            case Op::sigmoid: NORCH_EACH(sigmoid(x[0][i]))
            default: NORCH_EACH(::erf(x[0][i]))
        }
    }
};

/// Those that take many registers.
template <class T>
struct Trigonometric {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 1;
    Op op;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[1][K]) const {
        switch (op) {
            case Op::sin: NORCH_EACH(::sin(x[0][i]))
            case Op::cos: NORCH_EACH(::cos(x[0][i]))
            case Op::tan: NORCH_EACH(::tan(x[0][i]))
            case Op::asin: NORCH_EACH(::asin(x[0][i]))
            case Op::acos: NORCH_EACH(::acos(x[0][i]))
            case Op::atan: NORCH_EACH(::atan(x[0][i]))
            case Op::sinh: NORCH_EACH(::sinh(x[0][i]))
            case Op::cosh: NORCH_EACH(::cosh(x[0][i]))
            case Op::asinh: NORCH_EACH(::asinh(x[0][i]))
            case Op::acosh: NORCH_EACH(::acosh(x[0][i]))
            default: NORCH_EACH(::atanh(x[0][i]))
        }
    }
};

template <class T>
struct OfTwo {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 2;
    Op op;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[2][K]) const {
        if (op == Op::pow) {
#pragma unroll
            for (int i = 0; i < K; ++i) {
                const computed<T> b = x[1][i];  // the common exponents exactly, and fast
                y[i] = b == 2 ? x[0][i] * x[0][i] : b == 1 ? x[0][i] : ::pow(x[0][i], b);
            }
        } else {
#pragma unroll
            for (int i = 0; i < K; ++i) y[i] = ::atan2(x[0][i], x[1][i]);
        }
    }
};

template <template <class> class Family>
KernelPtr make(const Request& request, Op op) {
    return visit_floating_device(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return map(request, Family<T>{op});
    });
}

template <Op op>
KernelPtr unary(const Request& request) {
    return op < Op::sin ? make<Exponential>(request, op) : make<Trigonometric>(request, op);
}

}  // namespace

KernelPtr floating_pow(const Request& request) { return make<OfTwo>(request, Op::pow); }

void add_transcendental(Registry& registry) {
    registry["exp"] = unary<Op::exp>;
    registry["expm1"] = unary<Op::expm1>;
    registry["log"] = unary<Op::log>;
    registry["log1p"] = unary<Op::log1p>;
    registry["log2"] = unary<Op::log2>;
    registry["log10"] = unary<Op::log10>;
    registry["tanh"] = unary<Op::tanh>;
    registry["sigmoid"] = unary<Op::sigmoid>;
    registry["erf"] = unary<Op::erf>;
    registry["sin"] = unary<Op::sin>;
    registry["cos"] = unary<Op::cos>;
    registry["tan"] = unary<Op::tan>;
    registry["asin"] = unary<Op::asin>;
    registry["acos"] = unary<Op::acos>;
    registry["atan"] = unary<Op::atan>;
    registry["sinh"] = unary<Op::sinh>;
    registry["cosh"] = unary<Op::cosh>;
    registry["asinh"] = unary<Op::asinh>;
    registry["acosh"] = unary<Op::acosh>;
    registry["atanh"] = unary<Op::atanh>;
    registry["atan2"] = [](const Request& request) { return make<OfTwo>(request, Op::atan2); };
}

}  // namespace norch::elementwise
