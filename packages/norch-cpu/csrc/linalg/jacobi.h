// Jacobi's methods: singular values by rotations of rows, eigenvalues by rotations of rows and columns. Of one matrix,
// whose rows are vectors, or of the lanes of vectors, as many as those have.
#pragma once

#include <cmath>
#include <limits>

#include "linalg/lanes.h"

namespace norch::linalg {

constexpr int MOST_SWEEPS = 40;

/// A matrix for each lane: sums along a row are vectors.
template <class T>
struct ManyMatrices {
    using V = typename Lanes<T>::V;
    using Number = V;
    using Scalar = T;
    static NORCH_INLINE Number total(V sum) { return sum; }
    static NORCH_INLINE Number root(Number x) { return Lanes<T>::root(x); }
    static NORCH_INLINE Number absolute(Number x) { return Lanes<T>::absolute(x); }
    static NORCH_INLINE bool any(typename Lanes<T>::I chosen) {
        bool found = false;
        for (int l = 0; l < Lanes<T>::L; ++l) found |= chosen[l] != 0;
        return found;
    }
};

/// One matrix, of whose rows a vector holds a part.
template <class T>
struct OneMatrix {
    using V = typename Lanes<T>::V;
    using Number = T;
    using Scalar = T;
    static NORCH_INLINE Number total(V sum) {
        T out = 0;
        for (int l = 0; l < Lanes<T>::L; ++l) out += sum[l];
        return out;
    }
    static NORCH_INLINE Number root(Number x) { return std::sqrt(x); }
    static NORCH_INLINE Number absolute(Number x) { return std::abs(x); }
    static NORCH_INLINE bool any(bool chosen) { return chosen; }
};

/// The tangent of the angle by which rows or columns turn that have the products a and b with themselves, d with each
/// other; 0 unless `turns`.
template <class S, class Turns>
NORCH_INLINE typename S::Number tangent(typename S::Number a, typename S::Number b, typename S::Number d, Turns turns) {
    using N = typename S::Number;
    const N zeta = (b - a) / (turns ? d + d : N{} + 1), size = S::absolute(zeta);
    const N t = N{} + 1 / (size + S::root(1 + zeta * zeta));
    return turns ? (zeta < 0 ? -t : t) : N{};
}

/// Turns n rows of `width` vectors until they are orthogonal, the longest first (M. Hestenes, "Inversion of matrices by
/// biorthogonalization and related results", 1958); and those of `with`, if it is not null, with them.
template <class S>
void orthogonalise(typename S::V* x, int n, int width, typename S::V* with, int with_width, typename S::Scalar tolerance) {
    using V = typename S::V;
    using N = typename S::Number;
    for (int sweep = 0; sweep < MOST_SWEEPS; ++sweep) {
        bool has_turned = false;
        for (int p = 0; p < n; ++p)
            for (int q = p + 1; q < n; ++q) {
                V *const first = x + p * width, *const second = x + q * width;
                V squares{}, others{}, products{};
                for (int i = 0; i < width; ++i) {
                    squares += first[i] * first[i];
                    others += second[i] * second[i];
                    products += first[i] * second[i];
                }
                const N a = S::total(squares), b = S::total(others), d = S::total(products);
                const auto turns = S::absolute(d) > tolerance * S::root(a) * S::root(b);
                const auto exchanges = a < b;
                if (!S::any(turns | exchanges)) continue;
                has_turned |= S::any(turns);
                const N t = tangent<S>(a, b, d, turns), c = 1 / S::root(1 + t * t), s = c * t;
                const N half = s / (1 + c);  // the tangent of half the angle: c is 1 - s * half, but for rounding
                const auto turn = [&](V* one, V* other, int count) NORCH_INLINE_LAMBDA {
                    for (int i = 0; i < count; ++i) {
                        const V u = one[i], v = other[i];
                        const V less = u - s * (v + half * u), more = v + s * (u - half * v);
                        one[i] = exchanges ? more : less;
                        other[i] = exchanges ? less : more;
                    }
                };
                turn(first, second, width);
                if (with) turn(with + p * with_width, with + q * with_width, with_width);
            }
        if (!has_turned) return;
    }
}

/// The eigenvalues of n rows and columns on their diagonal, ascending; and in the rows of `with` the eigenvectors.
template <class T>
void diagonalise(typename Lanes<T>::V* x, int n, typename Lanes<T>::V* with) {
    using S = ManyMatrices<T>;
    using V = typename S::V;
    for (int sweep = 0; sweep < MOST_SWEEPS; ++sweep) {
        bool has_turned = false;
        for (int p = 0; p < n; ++p)
            for (int q = p + 1; q < n; ++q) {
                const V a = x[p * n + p], b = x[q * n + q], d = x[p * n + q], size = S::absolute(d);
                const auto turns = (S::absolute(a) + size != S::absolute(a)) | (S::absolute(b) + size != S::absolute(b));
                if (!S::any(turns)) continue;
                has_turned = true;
                const V t = tangent<S>(a, b, d, turns), c = 1 / S::root(1 + t * t), s = c * t, half = s / (1 + c);
                for (int k = 0; k < n; ++k) {
                    const V u = x[k * n + p], v = x[k * n + q], one = with[p * n + k], other = with[q * n + k];
                    x[k * n + p] = x[p * n + k] = u - s * (v + half * u);
                    x[k * n + q] = x[q * n + k] = v + s * (u - half * v);
                    with[p * n + k] = one - s * (other + half * one);
                    with[q * n + k] = other + s * (one - half * other);
                }
                x[p * n + p] = a - t * d;
                x[q * n + q] = b + t * d;
                x[p * n + q] = x[q * n + p] = turns ? V{} : d;
            }
        if (!has_turned) break;
    }
    for (int p = 0; p < n; ++p)
        for (int q = p + 1; q < n; ++q) {
            const V a = x[p * n + p], b = x[q * n + q];
            const auto exchanges = a > b;
            x[p * n + p] = exchanges ? b : a;
            x[q * n + q] = exchanges ? a : b;
            for (int k = 0; k < n; ++k) {
                const V one = with[p * n + k], other = with[q * n + k];
                with[p * n + k] = exchanges ? other : one;
                with[q * n + k] = exchanges ? one : other;
            }
        }
}

/// What is shorter, beside a longest row of about 1, has no direction; its square is a number.
template <class T>
constexpr T TINY = sizeof(T) == 4 ? T(1e-17) : T(1e-150);

/// Rows from `first` on become such that all n are orthonormal.
template <class T>
void complete(T* x, int64_t row, int64_t n, int64_t width, int64_t first) {
    for (int64_t z = first; z < n; ++z) {
        int64_t axis = 0;  // the one that the others are farthest from
        T most = -1;
        for (int64_t i = 0; i < width; ++i) {
            T rest = 1;
            for (int64_t r = 0; r < z; ++r) rest -= x[r * row + i] * x[r * row + i];
            if (rest > most) most = rest, axis = i;
        }
        T* const own = x + z * row;
        for (int64_t i = 0; i < width; ++i) own[i] = T(i == axis);
        for (int turn = 0; turn < 3; ++turn) {
            for (int64_t r = 0; r < z && turn < 2; ++r) {
                T product = 0;
                for (int64_t i = 0; i < width; ++i) product += x[r * row + i] * own[i];
                for (int64_t i = 0; i < width; ++i) own[i] -= product * x[r * row + i];
            }
            T squares = 0;
            for (int64_t i = 0; i < width; ++i) squares += own[i] * own[i];
            for (int64_t i = 0; i < width; ++i) own[i] /= std::sqrt(squares);
        }
    }
}

}  // namespace norch::linalg
