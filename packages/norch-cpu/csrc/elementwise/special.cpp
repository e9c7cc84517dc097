// copysign, exp2, hypot, erfc, erfinv, the family of the gamma function, and modified Bessel functions.
#include "elementwise/double_functions.h"
#include "elementwise/functions.h"
#include "elementwise/loop.h"
#include "runtime/families.h"
#include "runtime/simd.h"
// After what it needs of norch::math.
#include "common/bessel.h"
#include "common/gamma.h"

namespace norch::elementwise {
namespace {

struct Exp2 {
    static double apply(double x) { return math::exp2(x); }
    static float apply(float x) { return math::exp2(x); }
};
struct Erfc {
    static float apply(float x) { return math::erfc(x); }
    static double apply(double x) { return math::erfc(x); }
};
struct Erfinv {
    static float apply(float x) { return math::erfinv(x); }
};
struct Copysign {
    template <class T>
    static T apply(T a, T b) {
        return math::with_sign(math::absolute(a), b);
    }
};
struct Hypot {
    static float apply(float a, float b) {
        const float y = float(std::sqrt(double(a) * double(a) + double(b) * double(b)));
        const bool infinite = (math::absolute(a) == math::infinity<float>) | (math::absolute(b) == math::infinity<float>);
        return infinite ? math::infinity<float> : y;
    }
};

void erfinv_loop(char* const* p, unsigned, int64_t n) {
    constexpr int64_t BLOCK = 64;
    double* out = reinterpret_cast<double*>(p[0]);
    const double* x = reinterpret_cast<const double*>(p[1]);
    double w[BLOCK], near[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK, out += BLOCK, x += BLOCK) {
        const int64_t size = std::min(n - begin, BLOCK);
        for (int64_t i = 0; i < size; ++i) w[i] = math::erfinv_w(x[i]);
        for (int64_t i = 0; i < size; ++i) near[i] = math::erfinv_near(x[i], w[i]);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < size; ++i) out[i] = math::erfinv_from(x[i], near[i]);
    }
}

/// Of the gamma function's family a formula for positive numbers, which is the shorter.
template <class F>
struct OfGamma {
    static bool is_usual(double x) { return !(x < 0); }
    static double usual(double x) { return F::positive(x); }
    static double any(double x) { return F::any(x); }
};

/// The formula for usual numbers where there are no others.
template <class F>
__attribute__((noinline)) void apply_block(double* x, int64_t eights, bool are_usual) {
    for (int64_t k = 0; k < eights; ++k, x += 8) {
        if (are_usual) {
            for (int j = 0; j < 8; ++j) x[j] = F::usual(x[j]);
        } else {
            for (int j = 0; j < 8; ++j) x[j] = F::any(x[j]);
        }
    }
}

/// Block by block in double.
template <class T, class F>
void double_loop(char* const* p, unsigned, int64_t n) {
    constexpr int64_t BLOCK = 256;
    T* out = reinterpret_cast<T*>(p[0]);
    const T* x = reinterpret_cast<const T*>(p[1]);
    double block[BLOCK];
    for (int64_t begin = 0; begin < n; begin += BLOCK, out += BLOCK, x += BLOCK) {
        const int64_t size = std::min(n - begin, BLOCK), eights = (size + 7) / 8;
        int64_t unusual = 0;
        for (int64_t i = 0; i < size; ++i) block[i] = double(x[i]);
        for (int64_t i = 0; i < size; ++i) unusual |= int64_t(!F::is_usual(block[i]));
        std::fill(block + size, block + 8 * eights, 1.0);
        apply_block<F>(block, eights, !unusual);
        for (int64_t i = 0; i < size; ++i) out[i] = T(block[i]);
    }
}

/// The costs are in nanoseconds for an element of one core; without a loop for float64 this is left to norch's formula.
[[gnu::cold]] KernelPtr floating(const Request& request, Loop in_float, double ns_float, Loop in_double = nullptr, double ns_double = 0) {
    for (const Operand& o : request.operands)
        if (!is_floating(o.dtype) || (o.dtype == DType::f64) != (request.operands[0].dtype == DType::f64)) return nullptr;
    if (request.operands[0].dtype != DType::f64) return elementwise_kernel(request, in_float, ns_float);
    return in_double ? elementwise_kernel(request, in_double, ns_double) : nullptr;
}

template <class F>
[[gnu::cold]] KernelPtr in_double(const Request& request) {
    return floating(request, double_loop<float, F>, 8, double_loop<double, F>, 8);
}

}  // namespace

void add_special(Registry& registry) {
    registry["copysign"] = [](const Request& r) {
        return floating(r, binary_loop<float, float, Copysign>, 0.15, binary_loop<double, double, Copysign>, 0.3);
    };
    registry["exp2"] = [](const Request& r) { return floating(r, unary_loop<float, Exp2>, 0.4, unary_loop<double, Exp2>, 6); };
    registry["erfc"] = [](const Request& r) { return floating(r, unary_loop<float, Erfc>, 0.8, unary_loop<double, Erfc>, 6); };
    registry["erfinv"] = [](const Request& r) { return floating(r, unary_loop<float, Erfinv>, 1.5, erfinv_loop, 12); };
    registry["hypot"] = [](const Request& r) { return floating(r, binary_loop<float, float, Hypot>, 1.2); };
    registry["lgamma"] = in_double<OfGamma<math::gamma::Lgamma>>;
    registry["digamma"] = in_double<OfGamma<math::gamma::Digamma>>;
    registry["trigamma"] = in_double<OfGamma<math::gamma::Trigamma>>;
    registry["i0"] = in_double<math::ModifiedBessel<0, false>>;
    registry["i1"] = in_double<math::ModifiedBessel<1, false>>;
    registry["i0e"] = in_double<math::ModifiedBessel<0, true>>;
    registry["i1e"] = in_double<math::ModifiedBessel<1, true>>;
}

}  // namespace norch::elementwise
