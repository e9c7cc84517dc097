// What reductions share: the operations, and folding a row.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/arithmetic_ops.h"
#include "common/dtype.h"
#include "reduction/plan.h"
#include "runtime/simd.h"
#include "runtime/widen.h"

namespace norch::reduction {

KernelPtr amax(const Request& request);  // extremes.cpp
KernelPtr amin(const Request& request);
KernelPtr argmax(const Request& request);  // argreduction.cpp
KernelPtr argmin(const Request& request);

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

/// Op lane by lane; of integers, sums and products wrap around.
template <class Op, class A, int LANES>
NORCH_INLINE vector_t<A, LANES> fold_vectors(vector_t<A, LANES> a, vector_t<A, LANES> b) {
    if constexpr (std::is_integral_v<A> && (std::is_same_v<Op, Sum> || std::is_same_v<Op, Prod>)) {
        using U = vector_t<std::make_unsigned_t<A>, LANES>;
        return vector_t<A, LANES>(Op::apply(U(a), U(b)));
    } else {
        return Op::apply(a, b);
    }
}

/// fold_lanes of a vector.
template <int N, class Op, class A, int LANES>
NORCH_INLINE A fold_vector(vector_t<A, LANES> v) {
    if constexpr (N == 1) {
        return v[0];
    } else {
        const auto upper = rotate<N / 2, LANES>(v);
        return fold_vector<N / 2, Op, A, LANES>(fold_vectors<Op, A, LANES>(v, upper));
    }
}

/// Folds the n elements at p, fewer than 2 * VECTORS vectors, into `acc`, which is so many vectors, and that into one
/// number. Without HAS_ACC there is none yet, and there is at least one vector of elements.
template <class T, class Op, int VECTORS, bool HAS_ACC, class V>
NORCH_INLINE compute_t<T> fold_rest(const T* p, int64_t n, V* acc) {
    using A = compute_t<T>;
    constexpr int LANES = SIMD_WIDTH<A>;
    const auto combine = [](V a, V b) NORCH_INLINE_LAMBDA { return fold_vectors<Op, A, LANES>(a, b); };
    const auto at = [&](int i) NORCH_INLINE_LAMBDA { return widen<LANES>(p + i * LANES); };
    if (n >= VECTORS * LANES) {
        V next[VECTORS];
        for (int i = 0; i < VECTORS; ++i) next[i] = HAS_ACC ? combine(acc[i], at(i)) : at(i);
        p += VECTORS * LANES;
        n -= VECTORS * LANES;
        if constexpr (VECTORS > 1) {
            V half[VECTORS / 2];
            for (int i = 0; i < VECTORS / 2; ++i) half[i] = combine(next[i], next[i + VECTORS / 2]);
            return fold_rest<T, Op, VECTORS / 2, true>(p, n, half);
        } else {
            acc[0] = next[0];
        }
    } else if constexpr (VECTORS > 1) {
        V half[VECTORS / 2];
        if (HAS_ACC)
            for (int i = 0; i < VECTORS / 2; ++i) half[i] = combine(acc[i], acc[i + VECTORS / 2]);
        return fold_rest<T, Op, VECTORS / 2, HAS_ACC>(p, n, half);
    }
    if (n > 0) {
        // The vector that ends where the elements do, without those that were there before.
        const V last = widen<LANES>(p + n - LANES);
        const V none = Op::template identity<A> - V{};  // -0.0 + V{} would be 0.0
        acc[0] = combine(acc[0], first_lanes<A, LANES>(LANES - int(n)) ? none : last);
    }
    return fold_vector<LANES, Op, A, LANES>(acc[0]);
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
    } else {
        constexpr int LANES = SIMD_WIDTH<A>, AT_ONCE = 8 * LANES;
        if (n < LANES) {
            A lanes[LANES];
            for (int j = 0; j < LANES; ++j) lanes[j] = j < n ? load(p[j]) : Op::template identity<A>;
            return fold_lanes<LANES, Op>(lanes);
        }
        vector_t<A, LANES> acc[8];
        if (n < AT_ONCE) return fold_rest<T, Op, 4, false>(p, n, acc);
        for (int i = 0; i < 8; ++i) acc[i] = widen<LANES>(p + i * LANES);
        int64_t done = AT_ONCE;
        for (; done + AT_ONCE <= n; done += AT_ONCE)
            for (int i = 0; i < 8; ++i)
                acc[i] = fold_vectors<Op, A, LANES>(acc[i], widen<LANES>(p + done + i * LANES));
        for (int i = 0; i < 4; ++i) acc[i] = fold_vectors<Op, A, LANES>(acc[i], acc[i + 4]);
        return fold_rest<T, Op, 4, true>(p + done, n - done, acc);
    }
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

/// Two contiguous rows of n elements, or of their squares, whole times four vectors, as one number each.
template <class T, class Op, bool SQUARES>
inline void fold_pair(const T* p, const T* q, int64_t n, compute_t<T>& first, compute_t<T>& second) {
    using A = compute_t<T>;
    constexpr int LANES = SIMD_WIDTH<A>, VECTORS = 4;
    const auto combine = [](auto a, auto b) NORCH_INLINE_LAMBDA { return fold_vectors<Op, A, LANES>(a, b); };
    const auto load = [](const T* from) NORCH_INLINE_LAMBDA {
        const auto x = widen<LANES>(from);
        if constexpr (SQUARES) return x * x;
        else return x;
    };
    vector_t<A, LANES> a[VECTORS], b[VECTORS];
    NORCH_UNROLL
    for (int i = 0; i < VECTORS; ++i) a[i] = load(p + i * LANES), b[i] = load(q + i * LANES);
    for (int64_t done = VECTORS * LANES; done < n; done += VECTORS * LANES) {
        NORCH_UNROLL
        for (int i = 0; i < VECTORS; ++i) {
            a[i] = combine(a[i], load(p + done + i * LANES));
            b[i] = combine(b[i], load(q + done + i * LANES));
        }
    }
    first = fold_vector<LANES, Op, A, LANES>(combine(combine(a[0], a[1]), combine(a[2], a[3])));
    second = fold_vector<LANES, Op, A, LANES>(combine(combine(b[0], b[1]), combine(b[2], b[3])));
}

}  // namespace norch::reduction
