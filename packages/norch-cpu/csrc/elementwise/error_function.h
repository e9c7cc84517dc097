#pragma once

#include "elementwise/double_functions.h"

namespace norch::math {

inline float erf(float x) {
    const float a = absolute(x);
    const float z = a * a;
    const float p = polynomial(z, 0.128379166f, -0.376125991f, 0.112832919f, -0.026841443f, 0.00516486401f,
                               -0.000780579692f, 7.18800948e-05f);
    // 1 - erf by a polynomial about the middle of what is left until 3.9, where this makes it 1; odd and even terms apart.
    const float t = bounded_absolute(x, 3.9f) - 2.5f;
    const float u = t * t;
    const float even = polynomial(u, 0.000406939973f, 0.00544631155f, 0.0086175194f, 0.00281307381f, -0.000281234155f,
                                  -6.43738022e-05f, 9.56076201e-06f);
    const float odd = polynomial(u, -0.00217821123f, -0.00835132506f, -0.00611114968f, -0.000556452025f,
                                 0.000267048919f, -1.6217984e-05f, -7.52067308e-07f);
    return with_sign(a >= 1.1f ? 1.0f - (even + t * odd) : a + a * p, x);
}

inline double erf(double x) { return doubles::erf(x); }

}  // namespace norch::math
