// What reductions share: the operations, and folding a row.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/arithmetic_ops.h"
#include "common/dtype.h"
#include "reduction/plan.h"
#include "runtime/simd.h"

namespace norch::reduction {

KernelPtr amax(const Request& request);  // extremes.cpp
KernelPtr amin(const Request& request);
KernelPtr argmax(const Request& request);  // argreduction.cpp
KernelPtr argmin(const Request& request);

inline namespace NORCH_SIMD {

// The operations. `identity` leaves every number as it is, `empty` is what no elements give, partial results are
// combined in `upcast`, and bools, which are bytes, have an operation of their own.
#define NORCH_REDUCTION(Name, formula, unit, none, Upcast, BoolOp)     \
    struct Name {                                                      \
        template <class T>                                             \
        static NORCH_INLINE T apply(T a, T b) {                        \
            return formula;                                            \
        }                                                              \
        template <class T>                                             \
        static constexpr T identity = unit;                            \
        template <class T>                                             \
        static constexpr T empty = none;                               \
        template <class T>                                             \
        using upcast = Upcast;                                         \
        using Bool = BoolOp;                                           \
    };

template <class T>
using sum_t = std::conditional_t<std::is_same_v<T, float>, double, T>;
template <class T>
constexpr T lowest = std::is_integral_v<T> ? std::numeric_limits<T>::lowest() : -std::numeric_limits<T>::infinity();
template <class T>
constexpr T highest = std::is_integral_v<T> ? std::numeric_limits<T>::max() : std::numeric_limits<T>::infinity();

NORCH_REDUCTION(Or, T(a | b), 0, 0, T, Or)
NORCH_REDUCTION(And, T(a & b), 1, 1, T, And)
NORCH_REDUCTION(Sum, Add::apply(a, b), std::is_integral_v<T> ? T(0) : T(-0.0), 0, sum_t<T>, Or)
NORCH_REDUCTION(Prod, Mul::apply(a, b), 1, 1, T, And)
/// A NaN wins: in b by the test, in a because every comparison with it is false. Both numbers are there before the test,
/// so that it vectorises.
template <class T>
NORCH_INLINE T unless_nan(T b, T chosen) {
    return b != b ? b : chosen;
}
NORCH_REDUCTION(Largest, unless_nan(b, T(b > a ? b : a)), lowest<T>, lowest<T>, T, Largest)
NORCH_REDUCTION(Smallest, unless_nan(b, T(b < a ? b : a)), highest<T>, highest<T>, T, Smallest)

/// Numbers that are folded by a plain loop: the order does not matter, and the compiler knows how to vectorise it.
template <class A>
constexpr bool is_plain = std::is_integral_v<A> && sizeof(A) < 8;

/// The N numbers of `acc` as one, in a tree.
template <int N, class Op, class A>
NORCH_INLINE A fold_lanes(const A* acc) {
    if constexpr (N == 1) {
        return acc[0];
    } else {
        A half[N / 2];
        for (int j = 0; j < N / 2; ++j) half[j] = Op::apply(acc[j], acc[j + N / 2]);
        return fold_lanes<N / 2, Op>(half);
    }
}

/// Folds the n elements at p, fewer than 2 * VECTORS vectors, into `acc`, which is so many vectors, and that into one
/// number. Without HAS_ACC there is none yet.
template <class T, class Op, int VECTORS, bool HAS_ACC>
NORCH_INLINE compute_t<T> fold_rest(const T* p, int64_t n, compute_t<T>* acc) {
    using A = compute_t<T>;
    constexpr int LANES = VECTORS * SIMD_WIDTH<A>;
    if (!HAS_ACC && n >= LANES) {
        A first[LANES];
        for (int j = 0; j < LANES; ++j) first[j] = load(p[j]);
        if constexpr (VECTORS == 1) {
            return n == LANES ? fold_lanes<LANES, Op>(first) : fold_rest<T, Op, 1, true>(p + LANES, n - LANES, first);
        } else {
            A half[LANES / 2];
            for (int j = 0; j < LANES / 2; ++j) half[j] = Op::apply(first[j], first[j + LANES / 2]);
            return fold_rest<T, Op, VECTORS / 2, true>(p + LANES, n - LANES, half);
        }
    }
    if (HAS_ACC && n >= LANES) {
        for (int j = 0; j < LANES; ++j) acc[j] = Op::apply(acc[j], A(load(p[j])));
        p += LANES;
        n -= LANES;
    }
    if constexpr (VECTORS > 1) {
        A half[LANES / 2];
        if (HAS_ACC)
            for (int j = 0; j < LANES / 2; ++j) half[j] = Op::apply(acc[j], acc[j + LANES / 2]);
        return fold_rest<T, Op, VECTORS / 2, HAS_ACC>(p, n, half);
    } else {
        A last[LANES];
        int rest = int(n);
        for (int j = 0; j < LANES; ++j) last[j] = j < rest ? load(p[j]) : Op::template identity<A>;
        if (HAS_ACC)
            for (int j = 0; j < LANES; ++j) last[j] = Op::apply(acc[j], last[j]);
        return fold_lanes<LANES, Op>(last);
    }
}

/// A contiguous row, at most some thousand elements: partial results in eight vectors, so that the error of a sum stays
/// that of a pairwise one.
template <class T, class Op>
inline compute_t<T> fold_block(const T* p, int64_t n) {
    using A = compute_t<T>;
    if constexpr (is_plain<A>) {
        A all = Op::template identity<A>;
        for (int64_t i = 0; i < n; ++i) all = Op::apply(all, A(p[i]));
        return all;
    }
    constexpr int LANES = 8 * SIMD_WIDTH<A>;
    if (n < LANES) return fold_rest<T, Op, 4, false>(p, n, nullptr);
    A lanes[LANES], half[LANES / 2];
    for (int j = 0; j < LANES; ++j) lanes[j] = load(p[j]);
    int64_t i = LANES;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; ++j) lanes[j] = Op::apply(lanes[j], A(load(p[i + j])));
    for (int j = 0; j < LANES / 2; ++j) half[j] = Op::apply(lanes[j], lanes[j + LANES / 2]);
    return fold_rest<T, Op, 4, true>(p + i, n - i, half);
}

/// The same for elements `stride` bytes apart.
template <class T, class Op>
inline compute_t<T> fold_block(const char* p, int64_t stride, int64_t n) {
    using A = compute_t<T>;
    auto at = [=](int64_t i) { return A(load(*reinterpret_cast<const T*>(p + i * stride))); };
    if constexpr (is_plain<A>) {
        A all = Op::template identity<A>;
        for (int64_t i = 0; i < n; ++i) all = Op::apply(all, at(i));
        return all;
    }
    A acc[8];
    for (int j = 0; j < 8; ++j) acc[j] = j < n ? at(j) : Op::template identity<A>;
    int64_t i = 8;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; ++j) acc[j] = Op::apply(acc[j], at(i + j));
    for (; i < n; ++i) acc[i & 7] = Op::apply(acc[i & 7], at(i));
    return fold_lanes<8, Op>(acc);
}

}  // inline namespace NORCH_SIMD

}  // namespace norch::reduction
