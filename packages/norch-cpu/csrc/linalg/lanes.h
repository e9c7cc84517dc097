// Small matrices as the lanes of vectors: as many of a batch at a time as a vector has lanes. Element (i, j) of all is
// vector i * columns + j.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/staging.h"
#include "linalg/linalg.h"
#include "runtime/parallel.h"
#include "runtime/row_lanes.h"

namespace norch::linalg {

constexpr int64_t MOST_LANE_ROWS = 16;
constexpr int64_t MOST_LANE_BYTES = 1 << 15;  // of the numbers of a group

/// Whether lanes are quicker than matrices one by one.
template <class T>
bool suits_lanes(const Matrices& a) {
    return a.rows <= 4 || (a.rows <= MOST_LANE_ROWS && 4 * a.batch >= SIMD_WIDTH<T>);
}

template <class T>
struct Lanes {
    static constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    using I = vector_t<std::conditional_t<sizeof(T) == 8, int64_t, int32_t>, L>;  // numbers of rows; what is chosen

    static NORCH_INLINE V absolute(V x) { return x < T(0) ? -x : x; }
    static NORCH_INLINE V root(V x) {
        V out;
        for (int l = 0; l < L; ++l) out[l] = std::sqrt(x[l]);
        return out;
    }

    struct Pivots {
        V sign{};  // of the exchanges
        I info{};  // which pivot was 0 first, from 1; or 0
    };

    /// Elimination with partial pivoting: a (n, n) becomes its upper factor, and b (n, k) what stands beside it.
    /// N: n, where it is known to the compiler, else 0; so with K.
    template <int N, int K>
    static NORCH_INLINE Pivots eliminate(V* a, int rows, V* b, int columns) {
        const int n = N ? N : rows, k = K >= 0 ? K : columns;
        Pivots out;
        out.sign = T(1) + out.sign;
        V factors[MOST_LANE_ROWS];
        NORCH_UNROLL
        for (int j = 0; j < n; ++j) {
            V largest = absolute(a[j * n + j]), pivot = a[j * n + j];
            I chosen = I{} + j;
            NORCH_UNROLL
            for (int i = j + 1; i < n; ++i) {
                const V x = a[i * n + j], size = absolute(x);
                const I larger = size > largest;
                largest = larger ? size : largest;
                pivot = larger ? x : pivot;
                chosen = larger ? I{} + i : chosen;
            }
            out.info = ((pivot == T(0)) & (out.info == 0)) ? I{} + (j + 1) : out.info;
            out.sign = chosen == j ? out.sign : -out.sign;
            const V divisor = pivot == T(0) ? V{} + T(1) : pivot;
            NORCH_UNROLL
            for (int i = j + 1; i < n; ++i) factors[i] = (chosen == i ? a[j * n + j] : a[i * n + j]) / divisor;
            a[j * n + j] = pivot;
            const auto update = [&](V* column, int step) NORCH_INLINE_LAMBDA {
                const V replaced = column[j * step];
                V row = replaced;
                NORCH_UNROLL
                for (int i = j + 1; i < n; ++i) row = chosen == i ? column[i * step] : row;
                column[j * step] = row;
                NORCH_UNROLL
                for (int i = j + 1; i < n; ++i)
                    column[i * step] = (chosen == i ? replaced : column[i * step]) - factors[i] * row;
            };
            NORCH_UNROLL
            for (int c = j + 1; c < n; ++c) update(a + c, n);
            NORCH_UNROLL
            for (int c = 0; c < k; ++c) update(b + c, k);
        }
        return out;
    }

    /// The X with a @ X = b in place of b (n, k), for a lower or an upper triangle of `a`.
    template <int N, int K, bool UPPER>
    static NORCH_INLINE void substitute(const V* a, int rows, V* b, int columns, bool unitriangular) {
        const int n = N ? N : rows, k = K >= 0 ? K : columns;
        NORCH_UNROLL
        for (int step = 0; step < n; ++step) {
            const int i = UPPER ? n - 1 - step : step;
            NORCH_UNROLL
            for (int c = 0; c < k; ++c) {
                V x = b[i * k + c];
                NORCH_UNROLL
                for (int other = 0; other < step; ++other) {
                    const int j = UPPER ? n - 1 - other : other;
                    x -= a[i * n + j] * b[j * k + c];
                }
                b[i * k + c] = unitriangular ? x : x / a[i * n + i];
            }
        }
    }

    /// The lower factor in place of a's lower triangle, and 0 in place of the other.
    template <int N>
    static NORCH_INLINE I factorise_positive(V* a, int rows) {
        const int n = N ? N : rows;
        I info{};
        NORCH_UNROLL
        for (int j = 0; j < n; ++j) {
            V square = a[j * n + j];
            NORCH_UNROLL
            for (int k = 0; k < j; ++k) square -= a[j * n + k] * a[j * n + k];
            info = ((square > T(0)) | (info != 0)) ? info : I{} + (j + 1);
            const V diagonal = root(square);
            a[j * n + j] = diagonal;
            NORCH_UNROLL
            for (int i = j + 1; i < n; ++i) {
                V x = a[i * n + j];
                NORCH_UNROLL
                for (int k = 0; k < j; ++k) x -= a[i * n + k] * a[j * n + k];
                a[i * n + j] = x / diagonal;
                a[j * n + i] = V{};
            }
        }
        return info;
    }
};

/// The lanes of a group: `size` elements of each matrix, which lie one behind the other.
template <class T>
RowLanes<T> lanes_of(char* data, int64_t size, int64_t batch, int64_t group) {
    constexpr int64_t L = SIMD_WIDTH<T>;
    RowLanes<T> out{{}, 1, int(std::min(L, batch - group * L))};
    for (int64_t l = 0; l < L; ++l) out.at[l] = reinterpret_cast<T*>(data) + (group * L + (l < out.count ? l : 0)) * size;
    return out;
}
template <class T>
NORCH_INLINE void read_lanes(char* data, int64_t size, int64_t batch, int64_t group, vector_t<T, SIMD_WIDTH<T>>* to) {
    lanes_of<T>(data, size, batch, group).read(size, [&](int64_t j, auto v) NORCH_INLINE_LAMBDA { to[j] = v; });
}
template <class T>
NORCH_INLINE void write_lanes(char* data, int64_t size, int64_t batch, int64_t group,
                              const vector_t<T, SIMD_WIDTH<T>>* from) {
    lanes_of<T>(data, size, batch, group).write(size, [&](int64_t j) NORCH_INLINE_LAMBDA { return from[j]; });
}
template <class I>
void write_info(char* data, int64_t batch, int64_t group, I info) {
    constexpr int64_t L = int64_t(sizeof(I) / sizeof(info[0]));
    auto* const to = reinterpret_cast<int32_t*>(data) + group * L;
    for (int64_t l = 0; l < std::min(L, batch - group * L); ++l) to[l] = int32_t(info[l]);
}

/// body(data, batch, group, room) for each group of lanes, `room` of `vectors` vectors. The operands from `inputs` on are
/// seen without gaps.
template <class T, class Body>
KernelPtr lane_kernel(const Request& request, size_t inputs, int64_t vectors, double ns_per_group, Body body) {
    using V = vector_t<T, SIMD_WIDTH<T>>;
    const int64_t batch = matrices_of(request.operands[inputs]).batch;
    const int64_t groups = (batch + SIMD_WIDTH<T> - 1) / SIMD_WIDTH<T>;
    auto run = [=](char* const* data, const Scalar*) {
        parallel_for(groups, ns_per_group, [&](int64_t begin, int64_t end) {
            const Scratch<V> room(vectors);
            for (int64_t group = begin; group < end; ++group) body(data, batch, group, room.data());
        });
    };
    std::vector<DType> dtypes;
    for (const Operand& o : request.operands) dtypes.push_back(o.dtype);
    return Staged::make(request, int(inputs), dtypes, make_kernel(double(groups) * ns_per_group, run));
}

}  // namespace norch::linalg
