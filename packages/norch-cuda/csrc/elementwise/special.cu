// copysign, erfc, erfinv, the family of the gamma function, and modified Bessel functions: CUDA's own where it has them.
#include <limits>

#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::math {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();

template <class T>
NORCH_FN T polynomial(T, T c0) {
    return c0;
}
template <class T, class... Rest>
NORCH_FN T polynomial(T x, T c0, Rest... rest) {
    return c0 + x * polynomial(x, rest...);
}
NORCH_FN inline double absolute(double x) { return ::fabs(x); }
namespace doubles {
NORCH_FN inline double exp(double x) { return ::exp(x); }
NORCH_FN inline double log(double x) { return ::log(x); }
}  // namespace doubles

}  // namespace norch::math

#include "common/bessel.h"
#include "common/gamma.h"

namespace norch::elementwise {
namespace {

NORCH_BINARY(T, Copysign, ::copysign(a, b))

// Long functions are called: in each place that needs one it would be most of the kernel.
__device__ __noinline__ float positive_lgamma(float x) { return ::lgammaf(x); }
__device__ __noinline__ double any_lgamma(double x) { return math::gamma::Lgamma::any(x); }
__device__ __noinline__ double any_digamma(double x) { return math::gamma::Digamma::any(x); }
__device__ __noinline__ double any_trigamma(double x) { return math::gamma::Trigamma::any(x); }
__device__ __noinline__ double erfinv_of(double x) { return ::erfinv(x); }
__device__ __noinline__ double erfc_of(double x) { return ::erfc(x); }
__device__ __noinline__ float erfc_of(float x) { return ::erfcf(x); }

template <int ORDER, bool IS_SCALED>
__device__ __noinline__ double modified_bessel(double x) {
    using Bessel = math::ModifiedBessel<ORDER, IS_SCALED>;
    const double size = math::absolute(x);
    return Bessel::with_sign_of(x, size <= math::FAR_MODIFIED ? Bessel::near(size) : Bessel::far(size));
}

template <int ORDER, bool IS_SCALED>
struct ModifiedBessel {
    template <class T>
    __device__ static T apply(T x) {
        return T(modified_bessel<ORDER, IS_SCALED>(x));
    }
};

struct Lgamma {
    __device__ static double apply(double x) { return any_lgamma(x); }
    /// That of CUDA is exact to a few ulp for positive numbers alone: below 0 there are zeros between the poles.
    __device__ static float apply(float x) { return x < 0.0f ? float(any_lgamma(x)) : positive_lgamma(x); }
};
struct Digamma {
    template <class T>
    __device__ static T apply(T x) {
        return T(any_digamma(x));
    }
};
struct Trigamma {
    template <class T>
    __device__ static T apply(T x) {
        return T(any_trigamma(x));
    }
};
struct Erfc {
    template <class T>
    __device__ static T apply(T x) {
        return erfc_of(x);
    }
};
struct Erfinv {
    __device__ static double apply(double x) { return erfinv_of(x); }
    __device__ static float apply(float x) { return ::erfinvf(x); }
};

template <class List, int INPUTS, class Op>
KernelPtr make_special(const Request& request) {
    for (const Operand& o : request.operands)
        if (o.dtype != request.operands[0].dtype) return nullptr;
    if (!is_floating(request.operands[0].dtype)) return nullptr;
    return visit_floating_groups(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return map(request, OneOf<T, T, INPUTS, List>(List::template index<Op>()));
    });
}

using I0 = ModifiedBessel<0, false>;
using I1 = ModifiedBessel<1, false>;
using I0e = ModifiedBessel<0, true>;
using I1e = ModifiedBessel<1, true>;
using Special = OpList<Lgamma, Digamma, Trigamma, Erfc, Erfinv, I0, I1, I0e, I1e>;
template <class Op>
constexpr Factory unary = make_special<Special, 1, Op>;

}  // namespace

void add_special(Registry& registry) {
    registry["copysign"] = make_special<OpList<Copysign>, 2, Copysign>;
    registry["lgamma"] = unary<Lgamma>;
    registry["digamma"] = unary<Digamma>;
    registry["trigamma"] = unary<Trigamma>;
    registry["erfc"] = unary<Erfc>;
    registry["erfinv"] = unary<Erfinv>;
    registry["i0"] = unary<I0>;
    registry["i1"] = unary<I1>;
    registry["i0e"] = unary<I0e>;
    registry["i1e"] = unary<I1e>;
}

}  // namespace norch::elementwise
