// Remainders in vectors: exactly what std::fmod gives, where quotients are small enough.
#pragma once

#include "elementwise/loop.h"
#include "elementwise/polynomial.h"

namespace norch::elementwise {

#if defined(__FMA__) || defined(__aarch64__)
constexpr bool HAS_FMA = true;
#else
constexpr bool HAS_FMA = false;
#endif

/// Up to about which quotient `mod_within_limit` is exact.
template <class T>
constexpr T MOD_LIMIT = sizeof(T) == 4 ? T(1 << 28) : HAS_FMA ? T(int64_t(1) << 50) : T(-1);

/// `rest` with a's sign, or a itself where it is the smaller of a and b: by masks, since GCC makes branches of a choice.
template <class T>
NORCH_INLINE T rest_or_first(T rest, T a, T b) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const Bits is_rest = math::absolute(a) < math::absolute(b) ? Bits(0) : ~Bits(0);
    const Bits chosen = (bit_cast<Bits>(rest) & is_rest) | (bit_cast<Bits>(a) & ~is_rest);
    return math::with_sign(math::absolute(bit_cast<T>(chosen)), a);
}

/// The quotient of two floats is further than 2^-24 from any integer that it is not, so that of doubles has the same
/// integral part; and that times b is exact.
NORCH_INLINE float mod_within_limit(float a, float b) {
    const double quotient = std::trunc(double(a) / double(b));
    return rest_or_first(float(double(a) - quotient * double(b)), a, b);
}

/// The quotient may be one too large: rounded up to an integer.
NORCH_INLINE double mod_within_limit(double a, double b) {
    const double x = math::absolute(a), y = math::absolute(b), quotient = std::trunc(x / y);
    const double rest = std::fma(-quotient, y, x);
    return rest_or_first(rest + (rest < 0 ? y : 0.0), a, b);
}

/// Whether all quotients of n numbers are; the steps are 0 or 1.
template <class T>
__attribute__((noinline)) bool is_within_limit(const T* a, int64_t step_a, const T* b, int64_t step_b, int64_t n) {
    const auto beyond = [](T x, T y) NORCH_INLINE_LAMBDA {
        return unsigned(math::absolute(x) > math::absolute(y) * MOD_LIMIT<T>);
    };
    unsigned any = 0;
    if (step_a && step_b)
        for (int64_t i = 0; i < n; ++i) any |= beyond(a[i], b[i]);
    else
        for (int64_t i = 0; i < n; ++i) any |= beyond(a[i * step_a], b[i * step_b]);
    return !any;
}

template <class T, class F>
NORCH_INLINE void eight_within_limit(T* out, const T* a, const T* b) {
    NORCH_INDEPENDENT
    for (int j = 0; j < 8; ++j) out[j] = F::of_mod(a[j], b[j], mod_within_limit(a[j], b[j]));
}

/// F::of_mod(a, b, std::fmod(a, b)), block by block: few have a quotient beyond the limit.
template <class T, class F>
void mod_loop(char* const* p, unsigned broadcast, int64_t n) {
    constexpr int64_t BLOCK = 512;
    T* out = reinterpret_cast<T*>(p[0]);
    const T* a = reinterpret_cast<const T*>(p[1]);
    const T* b = reinterpret_cast<const T*>(p[2]);
    const int64_t step_a = broadcast & 2 ? 0 : 1, step_b = broadcast & 4 ? 0 : 1;
    T x[8], y[8], last[8];
    std::fill_n(x, 8, *a);
    std::fill_n(y, 8, *b);
    for (int64_t begin = 0; begin < n; begin += BLOCK, out += BLOCK, a += step_a * BLOCK, b += step_b * BLOCK) {
        const int64_t size = std::min(n - begin, BLOCK), whole = size / 8 * 8;
        if (!is_within_limit(a, step_a, b, step_b, size)) {
            for (int64_t i = 0; i < size; ++i) {
                const T first = a[i * step_a], second = b[i * step_b];
                out[i] = F::of_mod(first, second, std::fmod(first, second));
            }
            continue;
        }
        for (int64_t i = 0; i < whole; i += 8)
            eight_within_limit<T, F>(out + i, step_a ? a + i : x, step_b ? b + i : y);
        if (whole < size) {  // of the last block
            if (step_a) std::copy_n(a + whole, size - whole, x);
            if (step_b) std::copy_n(b + whole, size - whole, y);
            eight_within_limit<T, F>(last, x, y);
            std::copy_n(last, size - whole, out + whole);
        }
    }
}

}  // namespace norch::elementwise
