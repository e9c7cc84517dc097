// exp, log, sin and their kin, pow and atan2, for the floating dtypes.
#include "common/arithmetic_ops.h"
#include "common/elementary_ops.h"
#include "elementwise/functions.h"
#include "elementwise/loop.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

namespace functions {
#define NORCH_FUNCTION(name, ...) NORCH_UNARY(name, math::name(x))
NORCH_EXPONENTIAL_OPS(NORCH_FUNCTION)
NORCH_INVERSE_OPS(NORCH_FUNCTION)
NORCH_BINARY(T, atan2, math::atan2(a, b))
NORCH_BINARY(T, pow, math::pow(a, b))

/// `fast` holds up to a limit.
#define NORCH_LIMITED(name, float_limit, double_limit)                          \
    struct name {                                                               \
        template <class T>                                                      \
        static constexpr T limit = sizeof(T) == 4 ? T(float_limit) : T(double_limit); \
        static double apply(double x) { return math::name(x); }                 \
        static float apply(float x) { return math::name(x); }                   \
        template <class T>                                                      \
        static T fast(T x) { return math::name##_within_limit(x); }             \
    };
#define NORCH_PERIODIC(name, ...) NORCH_LIMITED(name, math::trigonometric_limit, math::double_trigonometric_limit)
NORCH_PERIODIC_OPS(NORCH_PERIODIC)
namespace limited {
NORCH_LIMITED(exp, math::exp_limit, 0)
}
}  // namespace functions

/// Block by block: by the fast formula where all of a block is within the limit, which few blocks are not.
template <class T, class F>
void limited_loop(char* const* p, unsigned, int64_t n) {
    constexpr int64_t block = 512;
    T* out = reinterpret_cast<T*>(p[0]);
    const T* x = reinterpret_cast<const T*>(p[1]);
    for (int64_t begin = 0; begin < n; begin += block, out += block, x += block) {
        const int64_t size = n - begin < block ? n - begin : block;
        using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;  // ordered as magnitudes are, NaN above all
        Bits most = 0;
        for (int64_t i = 0; i < size; ++i) most = std::max(most, bit_cast<Bits>(math::absolute(x[i])));
        if (most > bit_cast<Bits>(F::template limit<T>)) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < size; ++i) out[i] = F::apply(x[i]);
        } else {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < size; ++i) out[i] = F::fast(x[i]);
        }
    }
}

NORCH_UNARY(Square, x * x)
NORCH_UNARY(Cube, x * x * x)
NORCH_UNARY(Reciprocal, T(1) / x)
// pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0.0.
NORCH_UNARY(SquareRoot, x == -math::infinity<T> ? math::infinity<T> : std::sqrt(x + T(0)))
// pow(-inf, -0.5) is 0.0 and pow(-0.0, -0.5) is inf.
NORCH_UNARY(InverseRoot, x == -math::infinity<T> ? T(0) : T(1) / std::sqrt(x + T(0)))
NORCH_UNARY(InverseSquare, (T(1) / x) * (T(1) / x))
NORCH_UNARY(One, (void(x), T(1)))

/// One loop, whatever is repeated: much code for each.
template <class T, class F>
void long_loop(char* const* p, unsigned broadcast, int64_t n) {
    apply_alike<T>(p, broadcast, n, [](T a, T b) NORCH_INLINE_LAMBDA { return F::apply(a, b); });
}

template <class T>
void pow_loop(char* const* p, unsigned broadcast, int64_t n) {
    if (broadcast & 4) {
        const T exponent = *reinterpret_cast<const T*>(p[2]);
        Loop loop = nullptr;
        if (exponent == T(2)) loop = unary_loop<T, Square>;
        if (exponent == T(3)) loop = unary_loop<T, Cube>;
        if (exponent == T(0.5)) loop = unary_loop<T, SquareRoot>;
        if (exponent == T(-0.5)) loop = unary_loop<T, InverseRoot>;
        if (exponent == T(-1)) loop = unary_loop<T, Reciprocal>;
        if (exponent == T(-2)) loop = unary_loop<T, InverseSquare>;
        if (exponent == T(1)) loop = unary_loop<T, Identity>;
        if (exponent == T(0)) loop = unary_loop<T, One>;
        if (loop) return loop(p, 0, n);
    }
    long_loop<T, functions::pow>(p, broadcast, n);
}

[[gnu::cold]] KernelPtr floating(const Request& request, Loop in_float, double ns_float, Loop in_double, double ns_double) {
    const bool is_double = request.operands[0].dtype == DType::f64;
    return is_double ? elementwise_kernel(request, in_double, ns_double) : elementwise_kernel(request, in_float, ns_float);
}

/// The costs are in picoseconds for an element of one core.
template <class F, int ps_float, int ps_double>
[[gnu::cold]] KernelPtr unary(const Request& request) {
    return floating(request, unary_loop<float, F>, ps_float * 1e-3, unary_loop<double, F>, ps_double * 1e-3);
}

template <class F, int ps_float, int ps_double>
[[gnu::cold]] KernelPtr periodic(const Request& request) {
    return floating(request, limited_loop<float, F>, ps_float * 1e-3, limited_loop<double, F>, ps_double * 1e-3);
}

[[gnu::cold]] KernelPtr atan2(const Request& request) {
    using F = functions::atan2;
    return floating(request, long_loop<float, F>, 3.0, long_loop<double, F>, 20.0);
}

}  // namespace

[[gnu::cold]] KernelPtr floating_pow(const Request& request) {
    return floating(request, pow_loop<float>, 2.0, pow_loop<double>, 15.0);
}

void add_transcendental(Registry& registry) {
#define NORCH_ADD(name, ps_float, ps_double) registry[#name] = unary<functions::name, ps_float, ps_double>;
    NORCH_EXPONENTIAL_OPS(NORCH_ADD)
    NORCH_INVERSE_OPS(NORCH_ADD)
#define NORCH_ADD_PERIODIC(name, ps_float, ps_double) registry[#name] = periodic<functions::name, ps_float, ps_double>;
    NORCH_PERIODIC_OPS(NORCH_ADD_PERIODIC)
    registry["exp"] = [](const Request& request) {
        return floating(request, limited_loop<float, functions::limited::exp>, 0.3, unary_loop<double, functions::exp>, 4.0);
    };
    registry["atan2"] = atan2;
}

}  // namespace norch::elementwise
