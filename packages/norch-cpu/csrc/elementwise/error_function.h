#pragma once

#include "elementwise/double_functions.h"
#include "elementwise/logarithm.h"

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

/// erfinv(x) / x as polynomials of w = -log(1 - x^2), as Giles (2011) has them.
inline float erfinv(float x) {
    const float a = absolute(x), w = -log((1.0f - a) * (1.0f + a));
    const float centre = polynomial(w - 2.5f, 1.50140936f, 0.246640278f, -0.00417738847f, -0.00125272523f, 0.000218345887f,
                                    -4.97306967e-06f, -3.46309307e-06f, 4.68266973e-07f, 2.32648001e-08f, -8.94141405e-09f);
    const float tail = polynomial(std::sqrt(w) - 3.0f, 2.83297679f, 1.00167509f, 0.0094458209f, -0.00763948628f,
                                  0.00568204909f, -0.00358626702f, 0.00149881633f, -7.87915239e-05f, -0.000321171991f,
                                  0.000130970294f);
    const float y = (w < 5.0f ? centre : tail) * a;
    return with_sign(a == 1.0f ? infinity<float> : y, x);
}

inline double erf(double x) { return doubles::erf(x); }

}  // namespace norch::math
