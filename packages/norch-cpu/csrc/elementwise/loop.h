// The inner loops of elementwise kernels: contiguous, in one dtype; layouts and 16-bit floats are the driver's affair.
#pragma once

#include <algorithm>

#include "elementwise/elementwise.h"
#include "runtime/simd.h"

namespace norch::elementwise {

template <class T, class F>
void unary_loop(char* const* p, unsigned, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* x = reinterpret_cast<const T*>(p[1]);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = F::apply(x[i]);
}

/// out = f(a, b), of which one may be broadcast.
template <class Out, class T, class F>
NORCH_INLINE void apply_to_two(char* const* p, unsigned broadcast, int64_t n, const F& f) {
    Out* out = reinterpret_cast<Out*>(p[0]);
    const T* a = reinterpret_cast<const T*>(p[1]);
    const T* b = reinterpret_cast<const T*>(p[2]);
    if (broadcast & 2) {
        const T value = *a;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = f(value, b[i]);
    } else if (broadcast & 4) {
        const T value = *b;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], value);
    } else {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
    }
}

template <class Out, class T, class F>
void binary_loop(char* const* p, unsigned broadcast, int64_t n) {
    apply_to_two<Out, T>(p, broadcast, n, [](T a, T b) NORCH_INLINE_LAMBDA { return F::apply(a, b); });
}

/// The same with the same bits whether b is broadcast or not: one element for all is repeated, since of a formula of it
/// alone, taken out of the loop, the compiler makes other multiply-adds.
template <class T, class F>
NORCH_INLINE void apply_alike(char* const* p, unsigned broadcast, int64_t n, const F& f) {
    if (!(broadcast & 4)) return apply_to_two<T, T>(p, broadcast, n, f);
    constexpr int64_t BLOCK = 256;
    T repeated[BLOCK];
    std::fill_n(repeated, std::min(n, BLOCK), *reinterpret_cast<const T*>(p[2]));
    asm volatile("" : : "r"(repeated) : "memory");  // the compiler forgets that they are alike
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t moved = i * int64_t(sizeof(T));
        char* const at[] = {p[0] + moved, p[1] + moved, reinterpret_cast<char*>(repeated)};
        apply_to_two<T, T>(at, 0, std::min(n - i, BLOCK), f);
    }
}

/// The last input is a scalar.
template <class T, class F>
void ternary_loop(char* const* p, unsigned broadcast, int64_t n) {
    const T c = *reinterpret_cast<const T*>(p[3]);
    apply_alike<T>(p, broadcast, n, [=](T a, T b) NORCH_INLINE_LAMBDA { return F::apply(a, b, c); });
}

}  // namespace norch::elementwise
