// Inner loops of 16-bit floats, which are float32 in registers alone. For elementwise_kernel's `narrow`.
#pragma once

#include <cstring>

#include "elementwise/elementwise.h"
#include "runtime/widen.h"

namespace norch::elementwise {

/// out = f(a, b) of vectors of float32.
template <class S, class A, class B, class F>
NORCH_INLINE void apply_narrow(S* out, const A& a, const B& b, int64_t n, const F& f) {
    constexpr int L = SIMD_WIDTH<float>;
    int64_t i = 0;
    for (; i + L <= n; i += L) store_narrow<L>(out + i, f(a(i, L), b(i, L)));
    if (i == n) return;
    S last[L];
    store_narrow<L>(last, f(a(i, n - i), b(i, n - i)));
    std::memcpy(out + i, last, size_t(n - i) * sizeof(S));
}

/// Some elements of a row from one on, at most a vector of them.
template <class S>
NORCH_INLINE auto narrow_row_at(const S* x) {
    return [x](int64_t i, int64_t count) NORCH_INLINE_LAMBDA {
        constexpr int L = SIMD_WIDTH<float>;
        if (count == L) return widen<L>(x + i);
        S last[L] = {};
        std::memcpy(last, x + i, size_t(count) * sizeof(S));
        return widen<L>(last);
    };
}

template <class S, class F>
void narrow_unary_loop(char* const* p, unsigned, int64_t n) {
    const auto x = narrow_row_at(reinterpret_cast<const S*>(p[1]));
    apply_narrow(reinterpret_cast<S*>(p[0]), x, x, n, [](auto v, auto) NORCH_INLINE_LAMBDA { return F::apply(v); });
}

/// What is broadcast is one float32.
template <class S, class F>
void narrow_binary_loop(char* const* p, unsigned broadcast, int64_t n) {
    S* out = reinterpret_cast<S*>(p[0]);
    const auto a = narrow_row_at(reinterpret_cast<const S*>(p[1])), b = narrow_row_at(reinterpret_cast<const S*>(p[2]));
    const auto everywhere = [](const char* x) {
        return [value = *reinterpret_cast<const float*>(x) - vector_t<float, SIMD_WIDTH<float>>{}](int64_t, int64_t)
                   NORCH_INLINE_LAMBDA { return value; };
    };
    const auto f = [](auto x, auto y) NORCH_INLINE_LAMBDA { return F::apply(x, y); };
    if (broadcast & 2) apply_narrow(out, everywhere(p[1]), b, n, f);
    else if (broadcast & 4) apply_narrow(out, a, everywhere(p[2]), n, f);
    else apply_narrow(out, a, b, n, f);
}

inline bool of_one_dtype(const Request& request) {
    for (const Operand& o : request.operands)
        if (o.dtype != request.operands[0].dtype) return false;
    return true;
}

/// A loop by dtype, or null where the processor does not convert it.
template <template <class> class Narrow>
Loop narrow_of(DType dtype) {
    if (dtype == DType::bf16) return Narrow<bfloat16>::loop;
    if constexpr (HAS_HALF)
        if (dtype == DType::f16) return Narrow<half>::loop;
    return nullptr;
}

}  // namespace norch::elementwise
