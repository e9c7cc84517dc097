// Eigenvalues alone of a symmetric matrix: three diagonals by Householder's reflections, whose values lie between numbers
// that are halved (J. Wilkinson, "Calculation of the eigenvalues of a symmetric tridiagonal matrix by the method of
// bisection", 1962), as many at a time as vectors have lanes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "linalg/lanes.h"

namespace norch::linalg {

/// From a symmetric matrix (n, n), in rows `row` apart with zeros behind them, to its diagonal d and what is beside it, e.
/// v, w: rooms for a row each, of zeros.
template <class T>
void tridiagonalise(T* a, int64_t row, int64_t n, T* d, T* e, T* v, T* w) {
    constexpr int L = SIMD_WIDTH<T>, MANY = 4;
    using V = vector_t<T, L>;
    const auto total = [](V sum) {
        T out = 0;
        for (int l = 0; l < L; ++l) out += sum[l];
        return out;
    };
    for (int64_t k = 0; k < n; ++k) {
        const T* const own = a + k * row;
        d[k] = own[k];
        if (k + 1 == n) return;
        const int64_t first = k + 1, begin = first / L * L;
        const T alpha = own[first];
        V sum{};
        auto before = first_lanes<T, L>(int(first % L + 1));
        for (int64_t j = begin; j < n; j += L, before = before & ~before) {
            const V x = load_vector<L>(own + j), rest = before ? V{} : x;
            store_vector(v + j, rest);
            sum += rest * rest;
        }
        const T squares = total(sum);
        e[k] = alpha;
        if (squares == T(0)) continue;
        const T beta = -std::copysign(std::sqrt(alpha * alpha + squares), alpha), tau = (beta - alpha) / beta;
        e[k] = beta;
        for (int64_t j = begin; j < n; j += L) store_vector(v + j, load_vector<L>(v + j) / (alpha - beta));
        v[first] = 1;
        int64_t j = begin;
        for (; j < n && j + MANY * L <= row; j += MANY * L) {
            V sums[MANY] = {};
            for (int64_t i = first; i < n; ++i) {
                NORCH_UNROLL
                for (int c = 0; c < MANY; ++c) sums[c] += v[i] * load_vector<L>(a + i * row + j + c * L);
            }
            NORCH_UNROLL
            for (int c = 0; c < MANY; ++c) store_vector(w + j + c * L, tau * sums[c]);
        }
        for (; j < n; j += L) {
            V one{};
            for (int64_t i = first; i < n; ++i) one += v[i] * load_vector<L>(a + i * row + j);
            store_vector(w + j, tau * one);
        }
        V product{};
        for (j = begin; j < n; j += L) product += load_vector<L>(w + j) * load_vector<L>(v + j);
        const T half = tau * total(product) / 2;
        for (j = begin; j < n; j += L) store_vector(w + j, load_vector<L>(w + j) - half * load_vector<L>(v + j));
        for (int64_t i = first; i < n; ++i) {
            const T x = v[i], y = w[i];
            for (j = begin; j < n; j += L) {
                T* const at = a + i * row + j;
                store_vector(at, load_vector<L>(at) - x * load_vector<L>(w + j) - y * load_vector<L>(v + j));
            }
        }
    }
}

/// The eigenvalues, ascending, of the matrix that has d on its diagonal and e (n - 1) beside it. e becomes its squares.
/// values: with room for whole vectors, several of them.
template <class T>
void bisect(const T* d, T* e, int64_t n, T* values) {
    constexpr int L = SIMD_WIDTH<T>, GROUPS = 4, STEPS = std::numeric_limits<T>::digits + 4;
    using V = vector_t<T, L>;
    using I = typename Lanes<T>::I;
    T least = d[0], most = d[0], largest = 1;
    for (int64_t i = 0; i < n; ++i) {
        const T around = (i ? std::abs(e[i - 1]) : T(0)) + (i + 1 < n ? std::abs(e[i]) : T(0));
        least = std::min(least, d[i] - around);
        most = std::max(most, d[i] + around);
    }
    const T margin = std::max(std::abs(least), std::abs(most)) * std::numeric_limits<T>::epsilon() * T(2);
    for (int64_t i = 0; i + 1 < n; ++i) {
        e[i] *= e[i];
        largest = std::max(largest, e[i]);
    }
    const T tiny = std::numeric_limits<T>::min() * largest * 4;
    for (int64_t first = 0; first < n; first += GROUPS * L) {
        V low[GROUPS], high[GROUPS];
        I number[GROUPS];
        for (int g = 0; g < GROUPS; ++g) {
            low[g] = V{} + (least - margin), high[g] = V{} + (most + margin);
            for (int l = 0; l < L; ++l) number[g][l] = decltype(number[g][l] + 0)(first + g * L + l);
        }
        for (int step = 0; step < STEPS; ++step) {
            V middle[GROUPS], q[GROUPS];
            I below[GROUPS] = {};  // how many values are
            const auto count = [&](int g) NORCH_INLINE_LAMBDA {
                q[g] = Lanes<T>::absolute(q[g]) < tiny ? V{} - tiny : q[g];
                below[g] -= q[g] < T(0);
            };
            NORCH_UNROLL
            for (int g = 0; g < GROUPS; ++g) {
                middle[g] = low[g] + (high[g] - low[g]) / T(2);
                q[g] = d[0] - middle[g];
                count(g);
            }
            for (int64_t i = 1; i < n; ++i) {
                NORCH_UNROLL
                for (int g = 0; g < GROUPS; ++g) {
                    q[g] = d[i] - middle[g] - e[i - 1] / q[g];
                    count(g);
                }
            }
            NORCH_UNROLL
            for (int g = 0; g < GROUPS; ++g) {
                const auto is_above = below[g] <= number[g];
                low[g] = is_above ? middle[g] : low[g];
                high[g] = is_above ? high[g] : middle[g];
            }
        }
        for (int g = 0; g < GROUPS; ++g) store_vector(values + first + g * L, low[g] + (high[g] - low[g]) / T(2));
    }
}

}  // namespace norch::linalg
