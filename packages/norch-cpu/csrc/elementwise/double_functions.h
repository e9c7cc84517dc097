// The elementary functions of double for processors with vectors of four or more of them, by the formulas that those of
// float have, within 2 ulp (tanh, and sin and cos of large arguments, within 2.2). The coefficients are Chebyshev
// interpolations, rounded.
#pragma once

#include "elementwise/polynomial.h"

namespace norch::math::wide {

/// 2^(n - 1023), where n is in the low bits of `shifted`.
inline double power_of_two(uint64_t shifted) { return bit_cast<double>(shifted << 52); }

/// x = n ln 2 + r with |r| <= ln 2 / 2; n + bias is in the low bits of `shifted`, and e^r is 1 + r q.
template <int bias>
struct ExpReduction {
    explicit ExpReduction(double x) {
        constexpr double zero = round_double + double(bias);
        const double sum = x * 0x1.71547652b82fep+0 + zero;
        const double n = sum - zero;
        const double high = x - n * 0x1.62e42fefa2000p-1;
        r = high - n * 0x1.9ef35793c7673p-41;
        lost = (high - r) - n * 0x1.9ef35793c7673p-41;
        p = polynomial(r, 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136, 0.0013888888888883748,
                       0.00019841269874820627, 2.4801587325547743e-05, 2.7557255400206422e-06, 2.75572736431103e-07,
                       2.5105217004720745e-08, 2.0914686968086876e-09);
        q = 1.0 + r * p;
        shifted = bit_cast<uint64_t>(sum);
    }
    double power() const { return 1.0 + r * q; }
    double power_less_1() const { return r + (r * (r * p) + lost); }

    uint64_t shifted;
    double r, p, q, lost;  // lost: what rounding took of r
};

inline double clamp(double x, double least, double most) {
    const double above = x < least ? least : x;
    return above > most ? most : above;
}

inline double exp(double x) {
    const ExpReduction<2046> e(clamp(x, -746.0, 710.0));
    const uint64_t half = e.shifted >> 1;  // two steps: 2^n alone may be out of range
    return e.power() * power_of_two(half) * power_of_two(e.shifted - half);
}

/// 2^64 exp(x) for x <= 0: never subnormal, and 0 below -753.
inline double exp_raised(double x) {
    const ExpReduction<1023 + 64> e(x < -753.5 ? -753.5 : x);
    return e.power() * power_of_two(e.shifted);
}

inline double expm1(double x) {
    const ExpReduction<1022> e(clamp(x, -40.0, 709.9));
    const double scale = power_of_two(e.shifted);
    const double y = 2.0 * (scale * e.power_less_1() + (scale - 0.5));
    return absolute(x) >= 1e-17 ? y : x;
}

/// Of u = exp(-2 |x|): (1 - u) / (1 + u), or 1 - 2 u / (1 + u) where u is small.
inline double tanh(double x) {
    const double a = absolute(x);
    const ExpReduction<1022> e(a > 20.0 ? -40.0 : -2.0 * a);
    const double scale = power_of_two(e.shifted);
    const double u = 2.0 * scale * e.power(), less_1 = 2.0 * (scale * e.power_less_1() + (scale - 0.5));
    const bool small = a < 0.5493;  // there y is 1/2
    const double ratio = (small ? -less_1 : 2.0 * u) / (small ? less_1 + 2.0 : 1.0 + u);
    const double y = small ? ratio : 1.0 - ratio;
    return a >= 1e-17 ? with_sign(y, x) : x;
}

/// 2^-100 / (2^-100 + 2^-100 exp(-x)): that exponential is normal wherever sigmoid is neither 1 nor 0.
inline double sigmoid(double x) {
    const ExpReduction<1023 - 100> e(-clamp(x, -746.0, 40.0));
    const double scale = power_of_two(e.shifted);
    return 0x1p-100 / ((e.r * scale * e.q + 0x1p-100) + scale);
}

/// log(1 + f) - f for 2/3 <= 1 + f < 4/3, by the series of atanh(f / (2 + f)).
inline double log1p_tail(double f) {
    const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    const double p = polynomial(z, 0.6666666666666666, 0.3999999999999991, 0.2857142857148925, 0.22222222206682107,
                                0.1818182017275879, 0.153844723884678, 0.13339346334595528, 0.11618297031888691,
                                0.12417905987914865);
    return s * (half + z * p) - half;
}

/// x = 2^n (1 + f) with 2/3 <= 1 + f < 4/3, for x > 0; log(1 + f) = f + tail.
struct LogReduction {
    double n, f, tail;
};

// An offset of 1024 keeps the exponent positive: AVX2 has no arithmetic shift of 64 bits and no conversion of them.
inline uint64_t offset_bits(double x) { return bit_cast<uint64_t>(x) - 0x3fe5555555555555u + (uint64_t(1024) << 52); }
inline double exponent_of(uint64_t bits) { return bit_cast<double>((bits >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1024.0); }
inline double fraction_of(uint64_t bits) { return bit_cast<double>((bits & 0xfffffffffffffu) + 0x3fe5555555555555u) - 1.0; }

inline LogReduction reduce_log(double x) {
    const bool subnormal = x < 0x1p-1022;
    const uint64_t bits = offset_bits(x * (subnormal ? 0x1p54 : 1.0));
    const double f = fraction_of(bits);
    return {exponent_of(bits) - (subnormal ? 54.0 : 0.0), f, log1p_tail(f)};
}

/// The value `y` of a logarithm at x, mended where x is not positive and finite.
inline double log_domain(double x, double y) {
    const double above = x == 0.0 ? -infinity<double> : y;
    const double below = x == infinity<double> ? x : above;
    return x >= 0.0 ? below : nan<double>;
}

inline double log(double x) {
    const LogReduction r = reduce_log(x);
    return log_domain(x, r.n * 0x1.62e42fefa2000p-1 + (r.f + (r.tail + r.n * 0x1.9ef35793c7673p-41)));
}

inline double log2(double x) {
    const LogReduction r = reduce_log(x);
    constexpr double log2e_less_1 = 0x1.c551d94ae0bf8p-2;
    const double small = (r.tail * log2e_less_1 + r.f * log2e_less_1) + r.tail;
    return log_domain(x, r.n + (r.f + small));
}

inline double log10(double x) {
    const LogReduction r = reduce_log(x);
    constexpr double high = 0x1.bcb7b15000000p-2, low = 0x1.37287195355bbp-33;
    const double rest = r.n * 0x1.cff7988f8959bp-41 + (r.tail + r.f) * low;
    return log_domain(x, r.n * 0x1.34413509f4000p-2 + (r.f * high + (r.tail * high + rest)));
}

inline double log1p(double x) {
    const double u = 1.0 + x;
    const uint64_t bits = offset_bits(u);
    // What the rounding of 1 + x lost is added to the reduced argument.
    const double lost = (x - (u - 1.0)) * bit_cast<double>((2047u - (bits >> 52)) << 52);
    const double n = exponent_of(bits), f = fraction_of(bits) + lost;
    const double y = n * 0x1.62e42fefa2000p-1 + (f + (log1p_tail(f) + n * 0x1.9ef35793c7673p-41));
    return x == 0.0 ? x : log_domain(u, y);
}

/// x - n pi = r + tail. n, a multiple of 1/2, is below 2^20 in magnitude, so that n times the first three parts of pi is
/// exact.
struct PiReduction {
    PiReduction(double x, double n) {
        constexpr double a = 0x1.921fb54400000p+1, b = 0x1.0b4611a000000p-33, c = 0x1.898cc51700000p-63;
        const double first = x - n * a, second = first - n * b;
        r = second - n * c;
        tail = (((first - second) - n * b) + ((second - r) - n * c)) - n * 0x1.b839a252049c1p-103;
    }
    /// sin(x - n pi) for |r| <= pi / 2, negated where the lowest bit of `odd` is set.
    double sin(uint64_t odd) const {
        const double z = r * r;
        const double p = polynomial(z, -0.16666666666666666, 0.008333333333333333, -0.00019841269841269806,
                                    2.7557319223971247e-06, -2.5052108382388368e-08, 1.6059043479134437e-10,
                                    -7.647139107307692e-13, 2.8104683856171073e-15, -8.006027518524349e-18);
        const double correction = tail * (1.0 - 0.405 * z);  // about tail cos r
        return bit_cast<double>(bit_cast<uint64_t>(r + (r * (z * p) + correction)) ^ (odd << 63));
    }
    double r, tail;
};

inline double sin(double x) {
    const double shifted = x * 0.31830988618379067 + round_double;
    return PiReduction(x, shifted - round_double).sin(bit_cast<uint64_t>(shifted));
}

/// cos(x) = -(-1)^n sin(x - (n + 1/2) pi).
inline double cos(double x) {
    const double shifted = (x * 0.31830988618379067 - 0.5) + round_double;
    return PiReduction(x, (shifted - round_double) + 0.5).sin(bit_cast<uint64_t>(shifted) + 1);
}

/// erf(a) / a - 1 of z = a^2 for a < 1.
inline double erf_centre(double z) {
    return polynomial(z, 0.12837916709551256, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777,
                      0.0052239776071164225, -0.0008548325975389692, 0.00012055294904839707, -1.492473690741966e-05,
                      1.6447424703317362e-06, -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10);
}

/// e^(a^2) (1 - erf(a)), from 1 to 6, as a polynomial of (a - 3) / (a + 3).
inline double erfc_scaled(double a) {
    return polynomial((a - 3.0) / (a + 3.0), 0.17900115118138996, -0.3262335600430372, 0.2456038017123309,
                      -0.15011593650077742, 0.07166583719797347, -0.024392499318655416, 0.004269136333148302,
                      0.0007077464385177353, -0.0005970619586158305, 4.5255298034073955e-05, 6.405673342206844e-05,
                      -1.2860318447907675e-05, -7.979817704348727e-06, 2.1169509641489688e-06, 1.2598817267482604e-06,
                      -2.7269500546476834e-07, -2.389387463474792e-07, -2.5925894581233316e-08);
}

/// a e^(a^2) (1 - erf(a)), from 0.58 to 27.3, where erfc ends, as a polynomial of (a - 3) / (a + 3).
inline double erfc_scaled_wide(double a) {
    return polynomial((a - 3.0) / (a + 3.0), 0.5370034535441698, 0.09530622695922791, -0.14658304803288502,
                      0.13988054760178398, -0.09546975030703063, 0.046350263330749805, -0.014019825615597016,
                      0.0009108226980121066, 0.0012428760171094937, -0.0004125438627890604, -8.460710339674478e-05,
                      6.898024350324409e-05, 6.458586218586733e-06, -1.111073442619581e-05, -9.759561299112565e-07,
                      1.8818595296658178e-06, 2.6493333058990756e-07, -3.161155811725384e-07, -5.918189773063258e-08,
                      4.024174618131022e-08, 4.4701648713257205e-09);
}

inline double erf(double x) {
    const double a = absolute(x), z = a * a, bounded = a > 6.0 ? 6.0 : a;
    const double p = erf_centre(z);
    const ExpReduction<1023> e(-bounded * bounded);
    const double outer = 1.0 - e.power() * power_of_two(e.shifted) * erfc_scaled(bounded);
    return with_sign(a >= 1.0 ? outer : a + a * p, x);
}

inline double erfc(double x) {
    const double a = absolute(x), bounded = a > 27.3 ? 27.3 : a, square = bounded * bounded;
    const ExpReduction<2046> e(-square);
    const uint64_t half = e.shifted >> 1;
    const double scaled = erfc_scaled_wide(bounded), part = e.r * e.q - std::fma(bounded, bounded, -square) * e.power();
    const double tail = (scaled + scaled * part) / bounded * power_of_two(half) * power_of_two(e.shifted - half);
    const double outer = x < 0.0 ? 2.0 - tail : tail;
    const double y = a < 0.6 ? 1.0 - (x + x * erf_centre(square)) : outer;
    return x == x ? y : x;
}

/// (erf(y) - a) / erf'(y) and the same by what is left to 1, each where it is exact; 0 <= y <= 6.
inline double erfinv_step(double y, double a) {
    constexpr double half_root_pi = 0.88622692545275801;
    const double square = y * y;
    // With the rounding of the square made good, to which e^(-y^2) owes most of its error.
    const ExpReduction<1023> e(-square);
    const double lost = std::fma(y, y, -square);
    const double density = e.power() * power_of_two(e.shifted) * (1.0 - lost);
    const double left = density * erfc_scaled(y < 1.0 ? 1.0 : y), off = (1.0 - a) - left;
    const double near = (y + y * erf_centre(square)) - a;
    return (y < 1.0 ? near : off) * (half_root_pi / density);
}

}  // namespace norch::math::wide

namespace norch::math {

/// Where vectors of doubles are short, the C library is as fast.
namespace library {
using std::cos, std::erf, std::erfc, std::exp, std::expm1, std::log, std::log10, std::log1p, std::log2, std::sin;
using std::tanh;
inline double exp_raised(double x) { return 0x1p64 * std::exp(x); }
inline double sigmoid(double x) {
    const double e = std::exp(-absolute(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
inline double erfinv_step(double y, double a) {
    const double off = y < 1.0 ? std::erf(y) - a : (1.0 - a) - std::erfc(y);
    return off * std::exp(y * y) * 0.88622692545275801;
}
}  // namespace library
#if defined(__AVX2__)
namespace doubles = wide;
#else
namespace doubles = library;
#endif

}  // namespace norch::math
