// exp, log, sin and their kin, pow and atan2, for the floating dtypes.
#include "elementwise/transcendental.h"

#include "elementwise/functions.h"
#include "elementwise/loop.h"

namespace norch::elementwise {

namespace {

#define NORCH_UNARY(name)             \
    struct name {                     \
        template <class T>            \
        static T apply(T x) {         \
            return math::name(x);     \
        }                             \
    };

namespace functions {
NORCH_UNARY(exp)
NORCH_UNARY(expm1)
NORCH_UNARY(log)
NORCH_UNARY(log1p)
NORCH_UNARY(log2)
NORCH_UNARY(log10)
NORCH_UNARY(asin)
NORCH_UNARY(acos)
NORCH_UNARY(atan)
NORCH_UNARY(sinh)
NORCH_UNARY(cosh)
NORCH_UNARY(tanh)
NORCH_UNARY(asinh)
NORCH_UNARY(acosh)
NORCH_UNARY(atanh)
NORCH_UNARY(sigmoid)
NORCH_UNARY(erf)

/// Periodic functions: `fast` holds up to a limit.
struct sin {
    static double apply(double x) { return math::sin(x); }
    static float apply(float x) { return math::sin(x); }
    static float fast(float x) { return math::sin_within_limit(x); }
};
struct cos {
    static double apply(double x) { return math::cos(x); }
    static float apply(float x) { return math::cos(x); }
    static float fast(float x) { return math::cos_within_limit(x); }
};
struct tan {
    static double apply(double x) { return math::tan(x); }
    static float apply(float x) { return math::tan(x); }
    static float fast(float x) { return math::tan_within_limit(x); }
};

struct atan2 {
    template <class T>
    static T apply(T y, T x) {
        return math::atan2(y, x);
    }
};
struct pow {
    template <class T>
    static T apply(T a, T b) {
        return math::pow(a, b);
    }
};
}  // namespace functions

/// Block by block: without branches where all of a block is within the limit, one by one in the rare other blocks.
template <class F>
void periodic_loop(char* const* p, unsigned, int64_t n) {
    constexpr int64_t block = 512;
    float* out = reinterpret_cast<float*>(p[0]);
    const float* x = reinterpret_cast<const float*>(p[1]);
    for (int64_t begin = 0; begin < n; begin += block, out += block, x += block) {
        const int64_t size = n - begin < block ? n - begin : block;
        int32_t beyond = 0;
        for (int64_t i = 0; i < size; ++i) beyond |= math::absolute(x[i]) > math::trigonometric_limit ? 1 : 0;
        if (beyond) {
            for (int64_t i = 0; i < size; ++i) out[i] = F::apply(x[i]);
        } else {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < size; ++i) out[i] = F::fast(x[i]);
        }
    }
}

template <class T>
struct Square {
    static T apply(T x) { return x * x; }
};
template <class T>
struct Cube {
    static T apply(T x) { return x * x * x; }
};
template <class T>
struct Reciprocal {
    static T apply(T x) { return T(1) / x; }
};
template <class T>
struct SquareRoot {
    // pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0.0.
    static T apply(T x) { return x == -math::infinity<T> ? math::infinity<T> : std::sqrt(x + T(0)); }
};
template <class T>
struct One {
    static T apply(T) { return T(1); }
};
template <class T>
struct Same {
    static T apply(T x) { return x; }
};

template <class T>
void pow_loop(char* const* p, unsigned single, int64_t n) {
    if (single & 4) {
        const T exponent = *reinterpret_cast<const T*>(p[2]);
        Loop loop = nullptr;
        if (exponent == T(2)) loop = unary_loop<T, Square<T>>;
        if (exponent == T(3)) loop = unary_loop<T, Cube<T>>;
        if (exponent == T(0.5)) loop = unary_loop<T, SquareRoot<T>>;
        if (exponent == T(-1)) loop = unary_loop<T, Reciprocal<T>>;
        if (exponent == T(1)) loop = unary_loop<T, Same<T>>;
        if (exponent == T(0)) loop = unary_loop<T, One<T>>;
        if (loop) return loop(p, 0, n);
    }
    binary_loop<T, T, functions::pow>(p, single, n);
}

KernelPtr floating(const Request& request, Loop in_float, double ns_float, Loop in_double, double ns_double) {
    const bool is_double = request.operands[0].dtype == DType::f64;
    return is_double ? elementwise_kernel(request, in_double, ns_double) : elementwise_kernel(request, in_float, ns_float);
}

/// The costs are in picoseconds for an element of one core.
template <class F, int ps_float, int ps_double>
KernelPtr unary(const Request& request) {
    return floating(request, unary_loop<float, F>, ps_float * 1e-3, unary_loop<double, F>, ps_double * 1e-3);
}

template <class F, int ps_float, int ps_double>
KernelPtr periodic(const Request& request) {
    return floating(request, periodic_loop<F>, ps_float * 1e-3, unary_loop<double, F>, ps_double * 1e-3);
}

KernelPtr atan2(const Request& request) {
    using F = functions::atan2;
    return floating(request, binary_loop<float, float, F>, 3.0, binary_loop<double, double, F>, 20.0);
}

}  // namespace

KernelPtr floating_pow(const Request& request) {
    return floating(request, pow_loop<float>, 2.0, pow_loop<double>, 15.0);
}

void add_transcendental(Registry& registry) {
    registry["exp"] = unary<functions::exp, 300, 4000>;
    registry["expm1"] = unary<functions::expm1, 300, 8000>;
    registry["log"] = unary<functions::log, 400, 4000>;
    registry["log1p"] = unary<functions::log1p, 500, 8000>;
    registry["log2"] = unary<functions::log2, 400, 4000>;
    registry["log10"] = unary<functions::log10, 400, 8000>;
    registry["sin"] = periodic<functions::sin, 700, 8000>;
    registry["cos"] = periodic<functions::cos, 700, 8000>;
    registry["tan"] = periodic<functions::tan, 2000, 12000>;
    registry["asin"] = unary<functions::asin, 500, 8000>;
    registry["acos"] = unary<functions::acos, 500, 8000>;
    registry["atan"] = unary<functions::atan, 600, 8000>;
    registry["sinh"] = unary<functions::sinh, 1500, 12000>;
    registry["cosh"] = unary<functions::cosh, 1500, 10000>;
    registry["tanh"] = unary<functions::tanh, 600, 10000>;
    registry["asinh"] = unary<functions::asinh, 2500, 15000>;
    registry["acosh"] = unary<functions::acosh, 2500, 12000>;
    registry["atanh"] = unary<functions::atanh, 2500, 12000>;
    registry["sigmoid"] = unary<functions::sigmoid, 500, 5000>;
    registry["erf"] = unary<functions::erf, 600, 8000>;
    registry["atan2"] = atan2;
}

}  // namespace norch::elementwise
