// The inner loops of elementwise kernels: contiguous, in one dtype; layouts and 16-bit floats are the driver's affair.
#pragma once

#include <algorithm>
#include <utility>

#include "common/arithmetic_ops.h"
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

/// Whether f(a, b) is f(b, a): fewer loops then.
template <class F>
constexpr bool COMMUTES = std::is_same_v<F, Add> || std::is_same_v<F, Mul> || std::is_same_v<F, And> || std::is_same_v<F, Or> ||
                          std::is_same_v<F, Xor> || std::is_same_v<F, Equal> || std::is_same_v<F, NotEqual>;

/// out = f(a, b), of which one may be broadcast.
template <class Out, class T, bool COMMUTE = false, class F>
NORCH_INLINE void apply_to_two(char* const* p, unsigned broadcast, int64_t n, const F& f) {
    Out* out = reinterpret_cast<Out*>(p[0]);
    const T* a = reinterpret_cast<const T*>(p[1]);
    const T* b = reinterpret_cast<const T*>(p[2]);
    if constexpr (COMMUTE) {
        if (broadcast & 2) std::swap(a, b), broadcast = 4;
    }
    if (!COMMUTE && broadcast & 2) {
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
    apply_to_two<Out, T, COMMUTES<F>>(p, broadcast, n, [](T a, T b) NORCH_INLINE_LAMBDA { return F::apply(a, b); });
}

/// F of (b, a).
template <class Out, class T, class F>
void swapped_loop(char* const* p, unsigned broadcast, int64_t n) {
    char* const swapped[] = {p[0], p[2], p[1]};
    binary_loop<Out, T, F>(swapped, (broadcast & 2) << 1 | (broadcast & 4) >> 1, n);
}

/// The same in one loop, which is less code, and gives the same bits whether an input is broadcast or not: one element for all
/// is repeated. Of a formula of it alone, taken out of the loop, the compiler makes other multiply-adds.
template <class T, class F>
NORCH_INLINE void apply_alike(char* const* p, unsigned broadcast, int64_t n, const F& f) {
    constexpr int64_t BLOCK = 256;
    T* const out = reinterpret_cast<T*>(p[0]);
    const T *const a = reinterpret_cast<const T*>(p[1]), *const b = reinterpret_cast<const T*>(p[2]);
    T repeated[BLOCK];
    int64_t most = n;
    if (broadcast) {
        most = std::min(n, BLOCK);
        std::fill_n(repeated, most, broadcast & 2 ? *a : *b);
        asm volatile("" : : "r"(repeated) : "memory");  // the compiler forgets that they are alike
    }
    for (int64_t from = 0; from < n; from += most) {
        const T *const x = broadcast & 2 ? repeated : a + from, *const y = broadcast & 4 ? repeated : b + from;
        T* const to = out + from;
        const int64_t count = std::min(n - from, most);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) to[i] = f(x[i], y[i]);
    }
}

/// The last input is a scalar.
template <class T, class F>
void ternary_loop(char* const* p, unsigned broadcast, int64_t n) {
    const T c = *reinterpret_cast<const T*>(p[3]);
    apply_alike<T>(p, broadcast, n, [=](T a, T b) NORCH_INLINE_LAMBDA { return F::apply(a, b, c); });
}

}  // namespace norch::elementwise
