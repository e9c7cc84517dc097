// The logarithm of the gamma function and its derivatives, in double arithmetic and free of branches, by the formulas of
// norch.ops.elementwise.gamma: Stirling's series from 10 on, the recurrence below, reflection for negative numbers. Of
// norch::math who includes it has `polynomial`, `absolute`, `infinity`, `nan` and `doubles::log`.
#pragma once

#include <cmath>

#include "common/arithmetic_ops.h"

#ifndef NORCH_UNROLL
#ifdef __CUDA_ARCH__
#define NORCH_UNROLL _Pragma("unroll")
#else
#define NORCH_UNROLL
#endif
#endif

namespace norch::math::gamma {

/// sin(pi t) for 0 <= t <= 1/2.
NORCH_FN double half_turn(double t) {
    const double x = t * M_PI, z = x * x;
    return x + x * z * polynomial(z, -0.16666666666666666, 0.008333333333333333, -0.00019841269841269806,
                                  2.7557319223971247e-06, -2.5052108382388368e-08, 1.6059043479134437e-10,
                                  -7.647139107307692e-13, 2.8104683856171073e-15, -8.006027518524349e-18);
}

/// pi x less a multiple of pi, in the first quadrant.
struct Angle {
    explicit NORCH_FN Angle(double x) : off(x - std::rint(x)) {}
    NORCH_FN double sine() const { return half_turn(absolute(off)); }
    NORCH_FN double cosine() const { return half_turn(0.5 - absolute(off)); }
    double off;
};

// Each function twice: `positive` for x >= 0, `any`.

struct Lgamma {
    /// Below 10 by Taylor's series about 2, whose zeros at 1 and 2 are exact, and the logarithm of the steps to there.
    static NORCH_FN double positive(double x) {
        const double whole = std::rint(x), off = x - whole, y = off * off;
        const double even = polynomial(y, 0.42278433509846713, -0.0673523010531981, -0.007385551028673986,
                                       -0.001192753911703261, -0.00022315475845357939, -4.492623673813314e-05,
                                       -9.439488275268397e-06, -2.039215753801366e-06, -4.492469198764566e-07,
                                       -1.0043224823968099e-07, -2.2711094608943164e-08, -5.183475041970047e-09,
                                       -1.1921401405860912e-09);
        const double odd = polynomial(y, 0.3224670334241132, 0.020580808427784546, 0.0028905103307415234,
                                      0.0005096695247430425, 9.945751278180853e-05, 2.050721277567069e-05,
                                      4.374866789907488e-06, 9.55141213040742e-07, 2.1207184805554665e-07,
                                      4.7698101693639804e-08, 1.0838659214896955e-08, 2.4836745438024785e-09,
                                      5.731367241678862e-10);
        double down = 1.0;
        NORCH_UNROLL
        for (int k = 1; k <= 8; ++k) down *= whole >= k + 2 ? x - k : 1.0;
        const double up = whole < 1.0 ? x * (x + 1.0) : x, steps = whole < 2.0 ? up : down;
        const double logarithm = doubles::log(x < 10.0 ? steps : x);
        const double near = (even + off * odd) * off + (whole < 2.0 ? -logarithm : logarithm);
        const double inverse = 1.0 / x;
        const double tail = polynomial(inverse * inverse, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188,
                                       -691.0 / 360360, 1.0 / 156, -3617.0 / 122400) * inverse;
        const double stirling = (x - 0.5) * logarithm - x + 0.91893853320467274178 + tail;
        const double finite = x < 10.0 ? near : stirling;
        return x == infinity<double> ? x : finite;
    }
    static NORCH_FN double any(double x) {
        const bool below = x < 0.0;
        const double found = positive(below ? 1.0 - x : x);
        const double reflected = 1.1447298858494001741 - doubles::log(Angle(x).sine()) - found;
        const double finite = below ? reflected : found;
        return x == -infinity<double> ? infinity<double> : finite;
    }
};

struct Digamma {
    static NORCH_FN double positive(double x) {
        double sum = 1.0, product = x;  // their quotient: 1 / x + 1 / (x + 1) + ...
        NORCH_UNROLL
        for (int k = 1; k < 10; ++k) {
            sum = sum * (x + k) + product;
            product *= x + k;
        }
        const double z = x < 10.0 ? x + 10.0 : x;
        const double inverse = 1.0 / z, y = inverse * inverse;
        const double tail = polynomial(y, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12,
                                       -3617.0 / 8160);
        return doubles::log(z) - 0.5 * inverse - tail * y - (x < 10.0 ? sum / product : 0.0);
    }
    static NORCH_FN double any(double x) {
        const bool below = x < 0.0;
        const Angle angle(x);
        const double found = positive(below ? 1.0 - x : x), size = M_PI * (angle.cosine() / angle.sine());
        const double reflected = found - (angle.off < 0.0 ? -size : size);
        const double finite = below ? reflected : found;
        return below & (x == std::rint(x)) ? nan<double> : finite;
    }
};

struct Trigamma {
    static NORCH_FN double positive(double x) {
        double sum = 1.0, product = x * x;  // their quotient: 1 / x^2 + 1 / (x + 1)^2 + ...
        NORCH_UNROLL
        for (int k = 1; k < 10; ++k) {
            const double square = (x + k) * (x + k);
            sum = sum * square + product;
            product *= square;
        }
        const double z = x < 10.0 ? x + 10.0 : x;
        const double inverse = 1.0 / z, y = inverse * inverse;
        const double tail = polynomial(y, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6,
                                       -3617.0 / 510);
        return (1.0 + (0.5 * inverse + tail * y)) * inverse + (x < 10.0 ? sum / product : 0.0);
    }
    static NORCH_FN double any(double x) {
        const bool below = x < 0.0;
        const double found = positive(below ? 1.0 - x : x), ratio = M_PI / Angle(x).sine();
        const double finite = below ? ratio * ratio - found : found;
        return below & (x == std::rint(x)) ? infinity<double> : finite;
    }
};

}  // namespace norch::math::gamma
