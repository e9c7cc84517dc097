// The logarithm of the gamma function and its derivatives, in double arithmetic and free of branches, by the formulas of
// norch.ops.elementwise.gamma: Stirling's series from 10 on, the recurrence below, reflection for negative numbers.
#pragma once

#include "elementwise/double_functions.h"
#include "runtime/simd.h"

namespace norch::math::gamma {

/// c0 + c1 / x^2 + c2 / x^4 + ...
template <class... C>
NORCH_INLINE double series(double x, C... c) {
    return polynomial(1.0 / (x * x), c...);
}

/// sin and cos of pi t, for 0 <= t <= 1/4.
NORCH_INLINE double sine(double t) {
    const double x = t * M_PI, z = x * x;
    return x + x * z * polynomial(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                                  -1.0 / 1307674368000, 1.0 / 355687428096000);
}
NORCH_INLINE double cosine(double t) {
    const double x = t * M_PI, z = x * x;
    return 1.0 + z * polynomial(z, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                                -1.0 / 87178291200, 1.0 / 20922789888000);
}

/// pi x less a multiple of pi, in the first quadrant.
struct Angle {
    explicit NORCH_INLINE Angle(double x) {
        const double off = x - std::rint(x), size = absolute(off);
        const bool far = size > 0.25;
        const double t = far ? 0.5 - size : size, s = gamma::sine(t), c = gamma::cosine(t);
        sign = off;
        sine = far ? c : s;
        cosine = far ? s : c;
    }
    double sign, sine, cosine;  // of what has the sign of `sign`
};

// Each function twice: `positive` for x >= 0, `any`.

struct Lgamma {
    static NORCH_INLINE double positive(double x) {
        double product = x;
        NORCH_UNROLL
        for (int k = 1; k < 10; ++k) product *= x + k;
        const double z = x < 10.0 ? x + 10.0 : x;
        const double tail = series(z, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360,
                                   1.0 / 156, -3617.0 / 122400) / z;
        // Below 2.5 by Taylor's series about 2, whose zeros at 1 and 2 are exact.
        const double to_one = x < 1.5 ? x - 1.0 : x - 2.0, off = x < 0.5 ? x : to_one;
        const double taylor = polynomial(
            off, 0.42278433509846713, 0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986,
            0.0028905103307415234, -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939,
            9.945751278180853e-05, -4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06,
            4.374866789907488e-06, -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07,
            2.1207184805554665e-07, -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08,
            1.0838659214896955e-08, -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09,
            5.731367241678862e-10) * off;
        const double from_two = x < 2.5 ? 1.0 : product, from_one = x < 1.5 ? x : from_two;
        const double steps = x < 0.5 ? x * (x + 1.0) : from_one, taken = doubles::log(x < 10.0 ? steps : 1.0);
        const double stirling = (z - 0.5) * doubles::log(z) - z + 0.91893853320467274178 + tail;
        const double finite = (x < 2.5 ? taylor : stirling) - taken;
        return x == infinity<double> ? x : finite;
    }
    static NORCH_INLINE double any(double x) {
        const bool below = x < 0.0;
        const double found = positive(below ? 1.0 - x : x);
        const double reflected = 1.1447298858494001741 - doubles::log(Angle(x).sine) - found;
        const double finite = below ? reflected : found;
        return x == -infinity<double> ? infinity<double> : finite;
    }
};

struct Digamma {
    static NORCH_INLINE double positive(double x) {
        double sum = 1.0, product = x;  // their quotient: 1 / x + 1 / (x + 1) + ...
        NORCH_UNROLL
        for (int k = 1; k < 10; ++k) {
            sum = sum * (x + k) + product;
            product *= x + k;
        }
        const double z = x < 10.0 ? x + 10.0 : x;
        const double tail = series(z, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12,
                                   -3617.0 / 8160) / (z * z);
        return doubles::log(z) - 0.5 / z - tail - (x < 10.0 ? sum / product : 0.0);
    }
    static NORCH_INLINE double any(double x) {
        const bool below = x < 0.0;
        const Angle angle(x);
        const double found = positive(below ? 1.0 - x : x), size = M_PI * (angle.cosine / angle.sine);
        const double reflected = found - (angle.sign < 0.0 ? -size : size);
        const double finite = below ? reflected : found;
        return below & (x == std::rint(x)) ? nan<double> : finite;
    }
};

struct Trigamma {
    static NORCH_INLINE double positive(double x) {
        double sum = 1.0, product = x * x;  // their quotient: 1 / x^2 + 1 / (x + 1)^2 + ...
        NORCH_UNROLL
        for (int k = 1; k < 10; ++k) {
            const double square = (x + k) * (x + k);
            sum = sum * square + product;
            product *= square;
        }
        const double z = x < 10.0 ? x + 10.0 : x;
        const double tail = series(z, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6,
                                   -3617.0 / 510) / (z * z);
        return (1.0 + 0.5 / z + tail) / z + (x < 10.0 ? sum / product : 0.0);
    }
    static NORCH_INLINE double any(double x) {
        const bool below = x < 0.0;
        const double found = positive(below ? 1.0 - x : x), ratio = M_PI / Angle(x).sine;
        const double finite = below ? ratio * ratio - found : found;
        return below & (x == std::rint(x)) ? infinity<double> : finite;
    }
};

}  // namespace norch::math::gamma
