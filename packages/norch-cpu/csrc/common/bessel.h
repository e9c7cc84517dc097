// The modified Bessel functions of the orders 0 and 1, in double arithmetic, by the formulas of
// norch.special_functions.bessel. Of norch::math who includes it has `absolute` and `doubles::exp`.
#pragma once

#include <cmath>
#include <utility>

#include "common/arithmetic_ops.h"

namespace norch::math {

constexpr double FAR_MODIFIED = 25;

struct BesselTerms {
    static constexpr int NEAR = 42, FAR = 30;
    double near[NEAR], far[FAR];
};
/// The power series (9.6.10 of Abramowitz and Stegun), and the expansion 9.7.1.
NORCH_FN constexpr BesselTerms bessel_terms(int order) {
    BesselTerms out = {};
    double product = 1;
    for (int k = 0; k < BesselTerms::NEAR; ++k) {
        out.near[k] = product;
        product /= double(k + 1) * (k + 1 + order);
    }
    out.far[0] = 1;
    for (int k = 1; k < BesselTerms::FAR; ++k)
        out.far[k] = out.far[k - 1] * (4 * order * order - (2 * k - 1) * (2 * k - 1)) / (8 * k);
    return out;
}

/// Of an order, 0 or 1; `IS_SCALED`, over exp(|x|). Free of branches, but for who calls the parts.
template <int ORDER, bool IS_SCALED>
struct ModifiedBessel {
    template <int... K>
    static NORCH_FN double near_sum(double z, std::integer_sequence<int, K...>) {
        constexpr BesselTerms terms = bessel_terms(ORDER);
        double sum = terms.near[BesselTerms::NEAR - 1];
        ((sum = sum * z + terms.near[BesselTerms::NEAR - 2 - K]), ...);
        return sum;
    }
    template <int... K>
    static NORCH_FN double far_sum(double y, std::integer_sequence<int, K...>) {
        constexpr BesselTerms terms = bessel_terms(ORDER);
        double sum = terms.far[BesselTerms::FAR - 1];
        ((sum = sum * y + terms.far[BesselTerms::FAR - 2 - K]), ...);
        return sum;
    }
    /// Of |x| up to FAR_MODIFIED.
    static NORCH_FN double near(double size) {
        double sum = near_sum(size * size * 0.25, std::make_integer_sequence<int, BesselTerms::NEAR - 1>());
        if (ORDER) sum *= size * 0.5;
        return IS_SCALED ? sum * doubles::exp(-size) : sum;
    }
    /// Of |x| from there on.
    static NORCH_FN double far(double size) {
        const double sum = far_sum(-1 / size, std::make_integer_sequence<int, BesselTerms::FAR - 1>());
        const double found = sum / std::sqrt(size * (2 * M_PI));
        if (IS_SCALED) return found;
        const double half = doubles::exp(size * 0.5);  // its square may overflow where the result does not
        return found * half * half;
    }
    /// What is found of |x|, with the sign that it has at x.
    static NORCH_FN double with_sign_of(double x, double found) {
        if (!ORDER) return found;
        const double is_signed = x < 0 ? -found : found;
        return x == 0 ? x : is_signed;
    }

    static NORCH_FN bool is_usual(double x) { return absolute(x) <= FAR_MODIFIED; }
    static NORCH_FN double usual(double x) { return with_sign_of(x, near(absolute(x))); }
    static NORCH_FN double any(double x) {
        const double size = absolute(x), close = near(size), distant = far(size);
        return with_sign_of(x, size <= FAR_MODIFIED ? close : distant);
    }
};

}  // namespace norch::math
