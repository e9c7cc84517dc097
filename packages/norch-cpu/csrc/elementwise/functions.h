// The elementary functions as inline functions without branches, so that loops over them vectorise: float by formulas
// of our own, within 2 ulp over the whole range (log2 within 2.2, erfc and erfinv within 3); double likewise, or by the
// C library.
#pragma once

#include "elementwise/error_function.h"
#include "elementwise/exponential.h"
#include "elementwise/logarithm.h"
#include "elementwise/power.h"
#include "elementwise/trigonometric.h"

namespace norch {

/// The same for the formulas of common/activation_ops.h.
struct Functions {
    static auto exp(auto x) { return math::exp(x); }
    static auto expm1(auto x) { return math::expm1(x); }
    static auto log1p(auto x) { return math::log1p(x); }
    static auto tanh(auto x) { return math::tanh(x); }
    static auto sigmoid(auto x) { return math::sigmoid(x); }
    static auto twice_sigmoid(auto x) { return (math::tanh(x) + decltype(x)(1)) * decltype(x)(0.5); }
    template <class C>
    static C normal_cdf(C x, C& exponential) {
        exponential = math::exp_normal(x * x * C(-0.5), C(-60));  // nor are gradients times this subnormal, as a rule
        return math::normal_cdf(x);
    }
};

}  // namespace norch
