#pragma once

#include "elementwise/exponential.h"
#include "elementwise/logarithm.h"

namespace norch::math {

/// erf(a) / a - 1 of z = a^2 for a < 1.1.
inline float erf_centre(float z) {
    return polynomial(z, 0.128379166f, -0.376125991f, 0.112832919f, -0.026841443f, 0.00516486401f, -0.000780579692f,
                      7.18800948e-05f);
}

inline float erf(float x) {
    const float a = absolute(x);
    const float p = erf_centre(a * a);
    // 1 - erf by a polynomial about the middle of what is left until 3.9, where this makes it 1; odd and even terms apart.
    const float t = bounded_absolute(x, 3.9f) - 2.5f;
    const float u = t * t;
    const float even = polynomial(u, 0.000406939973f, 0.00544631155f, 0.0086175194f, 0.00281307381f, -0.000281234155f,
                                  -6.43738022e-05f, 9.56076201e-06f);
    const float odd = polynomial(u, -0.00217821123f, -0.00835132506f, -0.00611114968f, -0.000556452025f,
                                 0.000267048919f, -1.6217984e-05f, -7.52067308e-07f);
    return with_sign(a >= 1.1f ? 1.0f - (even + t * odd) : a + a * p, x);
}

/// (1 + erf(x / sqrt 2)) / 2 to 2^-23, of which a polynomial of x^2 is enough: odd and even terms apart, for a chain of so
/// many waits for itself.
inline float normal_cdf(float x) {
    const float z = x * x, u = z - 14.8512497f;
    const float v = u * u;
    const float even = polynomial(v, 0.129729271f, 0.000218164816f, 6.5981078e-07f, 1.86812676e-09f, 4.16140516e-12f,
                                  8.20593576e-15f, 5.89624887e-18f, 2.14149952e-20f);
    const float odd = polynomial(v, -0.00435961969f, -1.19080742e-05f, -3.58284282e-08f, -9.16694082e-11f, -1.83518443e-13f,
                                 -2.88686801e-16f, -2.71433321e-19f, -5.41896803e-22f);
    return 0.5f + (z >= 29.2f ? with_sign(0.5f, x) : x * (even + u * odd));
}

/// e^(-a^2) / a times a polynomial of (a - 2) / (a + 2), where that is not large. The square is taken in two parts, of
/// which the first is exact.
inline float erfc(float x) {
    const float a = bounded_absolute(x, 10.6f);
    const float high = bit_cast<float>(bit_cast<uint32_t>(a) & 0xfffff000u);
    const ExpReduction<254> e(-high * high, (a - high) * (a + high));
    const float scaled = polynomial((a - 2.0f) / (a + 2.0f), 0.510791361f, 0.167211041f, -0.203844398f,
                                    0.121513739f, -0.0289742537f, -0.00750065828f, 0.00476654712f, 0.00105232885f,
                                    -0.000682946295f, -0.000167915001f);
    const uint32_t half = e.shifted >> 1;
    const float raised = (scaled + scaled * (e.r * e.q)) / a;
    const float tail = raised * power_of_two(half) * power_of_two(e.shifted - half);
    const float outer = x < 0.0f ? 2.0f - tail : tail;
    return mend_nan(a < 0.65f ? 1.0f - (x + x * erf_centre(a * a)) : outer, x);
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
inline double normal_cdf(double x) { return (erf(x * M_SQRT1_2) + 1.0) * 0.5; }
inline double erfc(double x) { return doubles::erfc(x); }

/// erfinv is norch's formula, with one step of Halley's method, which leaves the cube of what the approximations are off
/// by. In three parts, since as one chain of steps it keeps the processor waiting: first the w of the approximations.
inline double erfinv_bounded(double x) { return absolute(x) < 1.0 ? absolute(x) : 0.5; }
inline double erfinv_w(double x) {
    const double bounded = erfinv_bounded(x);
    return -log((1.0 - bounded) * (1.0 + bounded));
}
/// The approximation.
inline double erfinv_near(double x, double w) {
    const double centre = polynomial(w - 2.5, 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
                                     -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08);
    const double tail = polynomial(std::sqrt(w) - 3.0, 2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773,
                                   -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257);
    const double far = polynomial(std::sqrt(w) - 5.0, 4.84990641, 1.01030032, -0.000138848524, -0.000213917679,
                                  7.62205061e-05, -2.17170677e-05, 4.66369701e-06);
    const double outer = w < 16.0 ? tail : far;
    return (w < 5.0 ? centre : outer) * erfinv_bounded(x);
}
/// The step from there.
inline double erfinv_from(double x, double near) {
    const double a = absolute(x), step = doubles::erfinv_step(near, erfinv_bounded(x));
    const double y = near - step / (1.0 + near * step);
    const double beyond = a == 1.0 ? infinity<double> : nan<double>;
    return with_sign(a < 1.0 ? y : beyond, x);
}

}  // namespace norch::math
