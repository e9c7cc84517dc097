// sinh, cosh and the inverses of the hyperbolic functions, of double, as double_functions.h has the others.
#pragma once

#include "elementwise/double_functions.h"

namespace norch::math::wide {

/// Of e^a / 4, and a little less than 711, from where on both are infinite.
constexpr double hyperbolic_limit = 710.6;

inline double sinh(double x) {
    const double a = absolute(x);
    const ExpReduction<1021> e(a > hyperbolic_limit ? hyperbolic_limit : a);
    const double scale = power_of_two(e.shifted), quarter = scale * e.power_less_1() + (scale - 0.25);  // (e^a - 1) / 4
    const double y = 2.0 * (quarter + quarter / (4.0 * quarter + 1.0));
    return a >= 1e-17 ? with_sign(y, x) : x;
}

inline double cosh(double x) {
    const double a = absolute(x);
    const ExpReduction<1021> e(a > hyperbolic_limit ? hyperbolic_limit : a);
    const double quarter = power_of_two(e.shifted) * e.power();
    return 2.0 * (quarter + 0.0625 / quarter);
}

// Of large numbers the logarithm of twice as much.
constexpr double hyperbolic_large = 0x1p28, ln_2 = 0x1.62e42fefa39efp-1;

inline double asinh(double x) {
    const double a = absolute(x), z = a * a;
    const bool is_large = a > hyperbolic_large;
    const double y = log1p(is_large ? a - 1.0 : a + z / (1.0 + std::sqrt(z + 1.0)));
    return with_sign(is_large ? y + ln_2 : y, x);
}

inline double acosh(double x) {
    const double t = x - 1.0;
    const bool is_large = x > hyperbolic_large;
    const double y = log1p(is_large ? t : t + std::sqrt(2.0 * t + t * t));
    return x >= 1.0 ? (is_large ? y + ln_2 : y) : nan<double>;
}

inline double atanh(double x) {
    const double a = absolute(x), twice = a + a, ratio = a / (1.0 - a);
    return with_sign(0.5 * log1p(a < 0.5 ? twice + twice * ratio : twice / (1.0 - a)), x);
}

}  // namespace norch::math::wide

namespace norch::math::library {
using std::acosh, std::asinh, std::atanh, std::cosh, std::sinh;
}
