// 16-bit floats as vectors of float32, and back with one rounding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/dtype.h"
#include "runtime/simd.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace norch {

/// Whether the processor converts float16.
#if defined(__F16C__)
constexpr bool HAS_HALF = true;
#else
constexpr bool HAS_HALF = false;
#endif

/// L numbers in what they are computed in.
template <int L, class S>
NORCH_INLINE vector_t<compute_t<S>, L> widen(const S* p) {
    if constexpr (std::is_same_v<S, bfloat16>) {
#if defined(__AVX512F__)
        if constexpr (L == 16)
            return bit_cast<vector_t<float, L>>(_mm512_maskz_slli_epi32(0xffff,
                _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
#endif
#if defined(__AVX2__)
        if constexpr (L == 8)
            return bit_cast<vector_t<float, L>>(
                _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
#endif
        const auto bits = load_vector<L>(&p->bits);
        return bit_cast<vector_t<float, L>>(__builtin_convertvector(bits, vector_t<uint32_t, L>) << 16);
    } else if constexpr (std::is_same_v<S, half>) {
#if defined(__AVX512F__)
        if constexpr (L == 16)
            return bit_cast<vector_t<float, L>>(
                _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#endif
#if defined(__F16C__)
        if constexpr (L == 8)
            return bit_cast<vector_t<float, L>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#endif
        float out[L];
        for (int i = 0; i < L; ++i) out[i] = to_float(p[i]);
        return load_vector<L>(out);
    } else {
        return load_vector<L>(p);
    }
}

/// L numbers rounded to S.
template <int L, class S>
NORCH_INLINE void store_narrow(S* p, vector_t<float, L> x) {
    if constexpr (std::is_same_v<S, bfloat16>) {
        typedef vector_t<uint32_t, L> Bits;
        const Bits u = bit_cast<Bits>(x), rounded = u + 0x7fff + ((u >> 16) & 1);
        const Bits out = (x != x ? u | 0x400000 : rounded) >> 16;
#if defined(__AVX512F__)
        if constexpr (L == 16) return store_vector(p, _mm512_maskz_cvtepi32_epi16(0xffff, bit_cast<__m512i>(out)));
#endif
        store_vector(p, __builtin_convertvector(out, vector_t<uint16_t, L>));
    } else if constexpr (std::is_same_v<S, half>) {
#if defined(__AVX512F__)
        if constexpr (L == 16) return store_vector(p, _mm512_maskz_cvtps_ph(0xffff, bit_cast<__m512>(x), 0));
#endif
#if defined(__F16C__)
        if constexpr (L == 8) return store_vector(p, _mm256_cvtps_ph(bit_cast<__m256>(x), 0));
#endif
        for (int i = 0; i < L; ++i) p[i] = to_half(x[i]);
    } else {
        store_vector(p, x);
    }
}

/// Calls move(i) for i in steps of L up to n, the last of which goes back over what is done; of few elements each alone.
template <int L, class Move, class One>
NORCH_INLINE void move_row(int64_t n, const Move& move, const One& one) {
    int64_t i = 0;
    for (; i + L <= n; i += L) move(i);
    if (i < n && n >= L) return move(n - L);
    for (; i < n; ++i) one(i);
}

/// to[i] = from[i], rounded to S; both lie apart.
template <class S>
inline void narrow_row(const float* from, int64_t n, S* to) {
    const auto one = [=](int64_t i) { to[i] = store<S>(from[i]); };
    const auto some = [=]<int L>(std::integral_constant<int, L>) NORCH_INLINE_LAMBDA {
        move_row<L>(n, [=](int64_t i) NORCH_INLINE_LAMBDA { store_narrow<L>(to + i, load_vector<L>(from + i)); }, one);
    };
    constexpr int L = SIMD_WIDTH<float>;
    if (L > 8 && n < L) some(std::integral_constant<int, 8>());
    else some(std::integral_constant<int, L>());
}

/// The same to places that are `step` apart; or of a type as it is.
template <class S, class T>
inline void narrow_to(const T* from, int64_t n, S* to, int64_t step) {
    if constexpr (std::is_same_v<S, T>) {
        if (step == 1) return std::copy_n(from, n, to), void();
    } else if (step == 1) {
        return narrow_row(from, n, to);
    }
    for (int64_t i = 0; i < n; ++i) to[i * step] = store<S>(from[i]);
}

/// to[i] = from[i] as float32; both lie apart.
template <class S>
inline void widen_row(const S* from, int64_t n, float* to) {
    const auto one = [=](int64_t i) { to[i] = load(from[i]); };
    const auto some = [=]<int L>(std::integral_constant<int, L>) NORCH_INLINE_LAMBDA {
        move_row<L>(n, [=](int64_t i) NORCH_INLINE_LAMBDA { store_vector(to + i, widen<L>(from + i)); }, one);
    };
    constexpr int L = SIMD_WIDTH<float>;
    if (L > 8 && n < L) some(std::integral_constant<int, 8>());
    else some(std::integral_constant<int, L>());
}

}  // namespace norch
