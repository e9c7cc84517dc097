// Small matrices as the lanes of vectors: as many of a batch at a time as a vector has lanes. Element (i, j) of all is
// vector i * columns + j.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/staging.h"
#include "elementwise/logarithm.h"
#include "linalg/linalg.h"
#include "runtime/parallel.h"
#include "runtime/row_lanes.h"

namespace norch::linalg {

constexpr int64_t MOST_LANE_ROWS = 16;
constexpr int64_t MOST_LANE_BYTES = 1 << 15;  // of the numbers of a group

/// Whether lanes are quicker than matrices one by one. columns: what stands beside a matrix.
inline bool suits_lanes(DType dtype, const Matrices& a, int64_t columns = 0) {
    if (a.rows * (a.rows + columns) * VECTOR_BYTES > MOST_LANE_BYTES) return false;
    return a.rows <= 4 || (a.rows <= MOST_LANE_ROWS && 4 * a.batch >= VECTOR_BYTES / size_of(dtype));
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
    static V logarithm(V x) {
        V out;
        for (int l = 0; l < L; ++l) out[l] = math::log(x[l]);
        return out;
    }

    struct Pivots {
        V sign{};  // of the exchanges
        I info{};  // which pivot was 0 first, from 1; or 0
    };

    /// Elimination with partial pivoting: a (n, n) becomes its upper factor, and b (n, k) what stands beside it.
    static Pivots eliminate(V* a, int n, V* b, int k) {
        Pivots out;
        out.sign = T(1) + out.sign;
        V factors[MOST_LANE_ROWS];
        for (int j = 0; j < n; ++j) {
            V largest = absolute(a[j * n + j]), pivot = a[j * n + j];
            I chosen = I{} + j;
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
            for (int i = j + 1; i < n; ++i) factors[i] = (chosen == i ? a[j * n + j] : a[i * n + j]) / divisor;
            a[j * n + j] = pivot;
            const auto update = [&](V* column, int step) NORCH_INLINE_LAMBDA {
                const V replaced = column[j * step];
                V row = replaced;
                for (int i = j + 1; i < n; ++i) row = chosen == i ? column[i * step] : row;
                column[j * step] = row;
                for (int i = j + 1; i < n; ++i)
                    column[i * step] = (chosen == i ? replaced : column[i * step]) - factors[i] * row;
            };
            for (int c = j + 1; c < n; ++c) update(a + c, n);
            for (int c = 0; c < k; ++c) update(b + c, k);
        }
        return out;
    }

    /// The X with a @ X = b in place of b (n, k), for a lower or an upper triangle of `a`.
    static void substitute(bool upper, bool unitriangular, const V* a, int n, V* b, int k) {
        for (int step = 0; step < n; ++step) {
            const int i = upper ? n - 1 - step : step, first = upper ? i + 1 : 0;
            for (int c = 0; c < k; ++c) {
                V x = b[i * k + c];
                for (int j = first; j < first + step; ++j) x -= a[i * n + j] * b[j * k + c];
                b[i * k + c] = unitriangular ? x : x / a[i * n + i];
            }
        }
    }

    /// The lower factor in place of a's lower triangle, and 0 in place of the other.
    static I factorise_positive(V* a, int n) {
        I info{};
        for (int j = 0; j < n; ++j) {
            V square = a[j * n + j];
            for (int k = 0; k < j; ++k) square -= a[j * n + k] * a[j * n + k];
            info = ((square > T(0)) | (info != 0)) ? info : I{} + (j + 1);
            const V diagonal = root(square);
            a[j * n + j] = diagonal;
            for (int i = j + 1; i < n; ++i) {
                V x = a[i * n + j];
                for (int k = 0; k < j; ++k) x -= a[i * n + k] * a[j * n + k];
                a[i * n + j] = x / diagonal;
                a[j * n + i] = V{};
            }
        }
        return info;
    }
};

/// The element type of vectors.
template <class V>
using lane_t = std::remove_cvref_t<decltype(std::declval<V>()[0])>;

/// The lanes of a group: `size` elements of each matrix, which lie one behind the other.
template <class T>
RowLanes<T> lanes_of(char* data, int64_t size, int64_t batch, int64_t group) {
    constexpr int64_t L = SIMD_WIDTH<T>;
    RowLanes<T> out{{}, 1, int(std::min(L, batch - group * L))};
    for (int64_t l = 0; l < L; ++l) out.at[l] = reinterpret_cast<T*>(data) + (group * L + (l < out.count ? l : 0)) * size;
    return out;
}
template <class V>
void read_lanes(char* data, int64_t size, int64_t batch, int64_t group, V* to) {
    lanes_of<lane_t<V>>(data, size, batch, group).read(size, [&](int64_t j, auto v) NORCH_INLINE_LAMBDA { to[j] = v; });
}
template <class V>
void write_lanes(char* data, int64_t size, int64_t batch, int64_t group, const V* from) {
    lanes_of<lane_t<V>>(data, size, batch, group).write(size, [&](int64_t j) NORCH_INLINE_LAMBDA { return from[j]; });
}
template <class I>
void write_info(char* data, int64_t batch, int64_t group, I info) {
    constexpr int64_t L = int64_t(sizeof(I) / sizeof(info[0]));
    auto* const to = reinterpret_cast<int32_t*>(data) + group * L;
    for (int64_t l = 0; l < std::min(L, batch - group * L); ++l) to[l] = int32_t(info[l]);
}

/// The power of 2 that numbers are divided by so that their squares are numbers.
template <class T>
T scale_of(T largest) {
    return largest > T(0) ? std::ldexp(T(1), std::max(std::ilogb(largest), std::numeric_limits<T>::min_exponent)) : T(1);
}

/// Divides the numbers of each lane by a power of 2, which is returned; and says in `info` where one is not finite.
template <class T>
typename Lanes<T>::V scaled(typename Lanes<T>::V* x, int64_t count, typename Lanes<T>::I& info) {
    using S = Lanes<T>;
    typename S::V largest{}, nothing{}, scale;
    for (int64_t i = 0; i < count; ++i) {
        const auto size = S::absolute(x[i]);
        largest = size > largest ? size : largest;
        nothing += x[i] * T(0);
    }
    info = nothing == T(0) ? typename S::I{} : typename S::I{} + 1;
    for (int l = 0; l < S::L; ++l) scale[l] = info[l] ? T(1) : scale_of(T(largest[l]));
    for (int64_t i = 0; i < count; ++i) x[i] = info != 0 ? typename S::V{} : x[i] / scale;
    return scale;
}

/// body(data, batch, group, room) for each group of lanes, `room` of `vectors` vectors of the outputs' dtype. The operands
/// from `inputs` on are seen without gaps.
template <class Body>
[[gnu::cold]] KernelPtr lane_kernel(const Request& request, size_t inputs, int64_t vectors, double ns_per_matrix, Body body) {
    const DType dtype = request.operands[inputs].dtype;
    const int64_t batch = matrices_of(request.operands[inputs]).batch, lanes = VECTOR_BYTES / size_of(dtype);
    const int64_t groups = (batch + lanes - 1) / lanes;
    const double ns_per_group = ns_per_matrix * double(lanes) / 2;
    const auto run = [=](char* const* data, const Scalar*) {
        parallel_for(groups, ns_per_group, [&](int64_t begin, int64_t end) {
            const Scratch<> room(vectors * VECTOR_BYTES);
            const auto each = [&]<class T>(T) {
                auto* const x = reinterpret_cast<typename Lanes<T>::V*>(room.data());
                for (int64_t group = begin; group < end; ++group) body(data, batch, group, x);
            };
            if (dtype == DType::f64) each(double());
            else each(float());
        });
    };
    std::vector<DType> dtypes;
    for (const Operand& o : request.operands) dtypes.push_back(o.dtype);
    return Staged::make(request, int(inputs), dtypes, make_kernel(double(groups) * ns_per_group, run));
}

}  // namespace norch::linalg
