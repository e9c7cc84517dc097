#include "linalg/blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "matmul/gemm.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/row_lanes.h"

namespace norch::linalg {
namespace {

constexpr int ROWS = 4, VECTORS = 2;  // of what is kept in registers
constexpr int64_t STEPS = 128;        // products that are summed before the sum is subtracted, for less to be rounded

constexpr int64_t SQUARE = 64;        // rows on the diagonal that are computed with the rest of the columns above them
constexpr int64_t PACKED = 96;        // rows, columns and products of each element from which on it pays to pack factors

template <class T, int R, int C>
void subtract_tile(T* c, int64_t c_row, Strided<T> a, const T* b, int64_t b_row, int64_t k) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    V sums[R][C] = {};
    for (int64_t s = 0; s < k; ++s) {
        V x[C];
        NORCH_UNROLL
        for (int v = 0; v < C; ++v) x[v] = load_vector<L>(b + s * b_row + v * L);
        NORCH_UNROLL
        for (int r = 0; r < R; ++r) {
            const T factor = a.data[r * a.row + s * a.step];
            NORCH_UNROLL
            for (int v = 0; v < C; ++v) sums[r][v] += factor * x[v];
        }
    }
    NORCH_UNROLL
    for (int r = 0; r < R; ++r) {
        NORCH_UNROLL
        for (int v = 0; v < C; ++v) {
            T* const at = c + r * c_row + v * L;
            store_vector(at, load_vector<L>(at) - sums[r][v]);
        }
    }
}

/// C vectors of each row.
template <class T, int C>
void subtract_columns(T* c, int64_t c_row, Strided<T> a, const T* b, int64_t b_row, int64_t m, int64_t k) {
    for (int64_t first = 0; first < k; first += STEPS) {
        const int64_t steps = std::min(STEPS, k - first);
        const T* const from = b + first * b_row;
        int64_t i = 0;
        for (; i + ROWS <= m; i += ROWS)
            subtract_tile<T, ROWS, C>(c + i * c_row, c_row, a.from(i, first), from, b_row, steps);
        for (; i < m; ++i) subtract_tile<T, 1, C>(c + i * c_row, c_row, a.from(i, first), from, b_row, steps);
    }
}

template <class T>
void subtract_strip(T* c, int64_t c_row, Strided<T> a, const T* b, int64_t b_row, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t L = SIMD_WIDTH<T>, WIDTH = VECTORS * L;
    int64_t j = 0;
    for (; j + L < n; j += WIDTH) subtract_columns<T, VECTORS>(c + j, c_row, a, b + j, b_row, m, k);
    if (j < n) subtract_columns<T, 1>(c + j, c_row, a, b + j, b_row, m, k);
}

/// body(first, count) for strips of columns, on several threads where they have much to do.
template <class T, class Body>
void by_columns(int64_t n, double ns_per_column, const Body& body) {
    constexpr int64_t WIDTH = VECTORS * SIMD_WIDTH<T>;
    parallel_for(n, ns_per_column, [&](int64_t begin, int64_t end) { body(begin, end - begin); }, WIDTH);
}

template <class T>
constexpr double STEP_NS = double(sizeof(T)) / 160;  // of one product of two numbers, and its sum

/// The rows of one block of a triangle, of which what the others have to do with it is already subtracted.
template <class T>
void solve_block(bool upper, bool unitriangular, Strided<T> a, int64_t n, T* x, int64_t x_row, int64_t columns) {
    constexpr int L = SIMD_WIDTH<T>;
    for (int64_t step = 0; step < n; ++step) {
        const int64_t i = upper ? n - 1 - step : step;
        T* const row = x + i * x_row;
        const T diagonal = unitriangular ? T(1) : *a.from(i, i).data;
        for (int64_t c = 0; c < columns; c += L) {
            auto sum = load_vector<L>(row + c);
            for (int64_t other = 0; other < step; ++other) {
                const int64_t j = upper ? n - 1 - other : other;
                sum -= *a.from(i, j).data * load_vector<L>(x + j * x_row + c);
            }
            store_vector(row + c, unitriangular ? sum : sum / diagonal);
        }
    }
}

/// The columns of a matrix that has no more than a vector has lanes, each `apart` from the next, with zeros behind it.
template <class T>
struct NarrowColumns {
    static constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    using Number = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
    using I = vector_t<Number, L>;

    NarrowColumns(T* matrix, int64_t row_step, int64_t row_count)
        : a(matrix), row(row_step), m(row_count), vectors((m + L - 1) / L),
          apart((vectors | 1) * L), x(L * apart) {
        each_group([&](const RowLanes<T>& lanes, int64_t i) {
            const auto there = first_lanes<T, L>(lanes.count);
            lanes.read(L, [&](int64_t c, V v) NORCH_INLINE_LAMBDA { store_vector(&x[c * apart + i], there ? v : V{}); });
        });
    }
    void write() const {
        each_group([&](const RowLanes<T>& lanes, int64_t i) {
            lanes.write(L, [&](int64_t c) NORCH_INLINE_LAMBDA { return load_vector<L>(&x[c * apart + i]); });
        });
    }
    T* column(int64_t c) const { return x.data() + c * apart; }

    /// Where from row j on column j is largest: of equal numbers the first.
    int64_t pivot_of(int64_t j) const {
        const T *const from = column(j), first = std::abs(from[j]);
        V largest = V{} + first;
        I chosen = I{} + Number(j), number = I{} + Number(j / L * L);
        for (int l = 0; l < L; ++l) number[l] += l;
        auto open = ~first_lanes<T, L>(int(j % L));
        for (int64_t i = j / L * L; i < vectors * L; i += L) {
            const V v = load_vector<L>(from + i), size = v < T(0) ? -v : v;
            const auto larger = (size > largest) & open;
            largest = larger ? size : largest;
            chosen = larger ? number : chosen;
            number += L;
            open = open | ~open;
        }
        V most = largest;
        among_lanes(most, [](V one, V other) NORCH_INLINE_LAMBDA { return other > one ? other : one; });
        I least = largest == most ? chosen : I{} + std::numeric_limits<Number>::max();
        among_lanes(least, [](I one, I other) NORCH_INLINE_LAMBDA { return other < one ? other : one; });
        return most[0] > first ? int64_t(least[0]) : j;
    }

    T* a;
    int64_t row, m, vectors, apart;
    Scratch<T> x;

private:
    /// All lanes become what `join` makes of them.
    template <class U, class Join>
    static NORCH_INLINE void among_lanes(U& v, const Join& join) {
        if constexpr (L > 8) v = join(v, rotate<L / 2, L>(v));
        if constexpr (L > 4) v = join(v, rotate<(L > 8 ? 4 : L / 2), L>(v));
        if constexpr (L > 2) v = join(v, rotate<2, L>(v));
        v = join(v, rotate<1, L>(v));
    }
    template <class Body>
    void each_group(const Body& body) const {
        for (int64_t i = 0; i < m; i += L) {
            RowLanes<T> lanes{{}, 1, int(std::min<int64_t>(L, m - i))};
            for (int l = 0; l < L; ++l) lanes.at[l] = a + (i + (l < lanes.count ? l : 0)) * row;
            body(lanes, i);
        }
    }
};

/// `factorise` for no more columns than a vector has lanes.
template <class T>
int32_t factorise_narrow(T* a, int64_t row, int64_t m, int64_t n, int32_t* pivots) {
    constexpr int L = SIMD_WIDTH<T>;
    const NarrowColumns<T> columns(a, row, m);
    int32_t info = 0;
    for (int64_t j = 0; j < std::min(m, n); ++j) {
        const int64_t chosen = columns.pivot_of(j), begin = j / L * L;
        pivots[j] = int32_t(chosen + 1);
        for (int64_t c = 0; c < n && chosen != j; ++c) std::swap(columns.column(c)[j], columns.column(c)[chosen]);
        T* const factors = columns.column(j);
        const T pivot = factors[j], divisor = pivot == T(0) ? T(1) : pivot;
        if (pivot == T(0) && info == 0) info = int32_t(j + 1);
        const auto done = first_lanes<T, L>(int(j % L + 1));
        const auto at_first = load_vector<L>(factors + begin), first_factors = at_first / divisor;
        store_vector(factors + begin, done ? at_first : first_factors);
        for (int64_t i = begin + L; i < columns.vectors * L; i += L)
            store_vector(factors + i, load_vector<L>(factors + i) / divisor);
        for (int64_t c = j + 1; c < n; ++c) {
            T* const to = columns.column(c);
            const T x = to[j];
            const auto first = load_vector<L>(to + begin);
            store_vector(to + begin, done ? first : first - first_factors * x);
            for (int64_t i = begin + L; i < columns.vectors * L; i += L)
                store_vector(to + i, load_vector<L>(to + i) - load_vector<L>(factors + i) * x);
        }
    }
    columns.write();
    return info;
}

/// `factorise_positive` for no more columns than a vector has lanes.
template <class T>
int32_t factorise_positive_narrow(T* a, int64_t row, int64_t n) {
    constexpr int L = SIMD_WIDTH<T>;
    for (int64_t j = 0; j < n; ++j) {
        const T square = a[j * row + j];
        if (!(square > T(0))) return int32_t(j + 1);
        const auto scaled = load_vector<L>(a + j * row) / std::sqrt(square);
        store_vector(a + j * row, scaled);
        for (int64_t i = j + 1; i < n; ++i) {
            const auto x = load_vector<L>(a + i * row);
            store_vector(a + i * row, x - a[j * row + i] * scaled);
        }
    }
    return 0;
}

/// The first of two parts of n: about half, in whole vectors.
template <class T>
int64_t half_of(int64_t n) {
    constexpr int64_t L = SIMD_WIDTH<T>;
    return (n / 2 + L - 1) / L * L;
}

}  // namespace

template <class T>
void subtract_product(T* c, int64_t c_row, Strided<T> a, const T* b, int64_t b_row, int64_t m, int64_t n, int64_t k) {
    if (std::min({m, n, k}) < PACKED) {
        by_columns<T>(n, STEP_NS<T> * double(m * k), [&](int64_t first, int64_t count) {
            subtract_strip(c + first, c_row, a, b + first, b_row, m, count, k);
        });
        return;
    }
    const Scratch<T> product(m * n);
    matmul::Product<T>(m, n, k, {a.row, a.step}, {b_row, 1}, {n, 1}).run(a.data, b, product.data());
    parallel_for(m, STEP_NS<T> * double(n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const T* const from = product.data() + i * n;
            T* const to = c + i * c_row;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) to[j] -= from[j];
        }
    });
}

template <class T>
void solve_triangle(bool upper, bool unitriangular, Strided<T> a, int64_t n, T* x, int64_t x_row, int64_t columns) {
    if (n >= 2 * PACKED && columns >= PACKED) {  // halves, so that most of it is one product
        const int64_t half = half_of<T>(n), i = upper ? half : 0, j = half - i;
        const auto part = [&](int64_t first) {
            solve_triangle(upper, unitriangular, a.from(first, first), first ? n - half : half, x + first * x_row, x_row,
                           columns);
        };
        part(i);
        subtract_product(x + j * x_row, x_row, a.from(j, i), x + i * x_row, x_row, upper ? half : n - half, columns,
                         upper ? n - half : half);
        part(j);
        return;
    }
    by_columns<T>(columns, STEP_NS<T> * double(n * n), [&](int64_t first, int64_t count) {
        T* const strip = x + first;
        for (int64_t done = 0; done < n; done += ROWS) {
            const int64_t rows = std::min<int64_t>(ROWS, n - done), i = upper ? n - done - rows : done;
            const int64_t from = upper ? i + rows : 0;
            subtract_strip(strip + i * x_row, x_row, a.from(i, from), strip + from * x_row, x_row, rows, count, done);
            solve_block(upper, unitriangular, a.from(i, i), rows, strip + i * x_row, x_row, count);
        }
    });
}

template <class T>
void exchange_rows(T* a, int64_t row, int64_t n, const int32_t* pivots, int64_t count) {
    for (int64_t j = 0; j < count; ++j)
        if (pivots[j] != j + 1) std::swap_ranges(a + j * row, a + j * row + n, a + (pivots[j] - 1) * row);
}

template <class T>
int32_t factorise(T* a, int64_t row, int64_t m, int64_t n, int32_t* pivots) {
    if (n <= SIMD_WIDTH<T>) return factorise_narrow(a, row, m, n, pivots);
    // Half of the columns, what they mean for the others, and those. (Toledo, "Locality of reference in LU decomposition
    // with partial pivoting", 1997.)
    const int64_t left = half_of<T>(n), right = n - left, rows = std::min(m, left), below = m - rows;
    const int32_t info = factorise(a, row, m, left, pivots);
    exchange_rows(a + left, row, right, pivots, rows);
    const Strided<T> factors{a, row, 1};
    solve_triangle(false, true, factors, rows, a + left, row, right);
    if (below == 0) return info;
    T* const corner = a + left * row + left;
    const int64_t rest = std::min(below, right);
    subtract_product(corner, row, factors.from(left, 0), a + left, row, below, right, left);
    const int32_t second = factorise(corner, row, below, right, pivots + left);
    exchange_rows(a + left * row, row, left, pivots + left, rest);
    for (int64_t j = left; j < left + rest; ++j) pivots[j] += int32_t(left);
    return info || !second ? info : second + int32_t(left);
}

template <class T>
int32_t factorise_positive(T* a, int64_t row, int64_t n) {
    if (n <= SIMD_WIDTH<T>) return factorise_positive_narrow(a, row, n);
    const int64_t first = half_of<T>(n), rest = n - first;
    if (const int32_t info = factorise_positive(a, row, first)) return info;
    const Strided<T> lower{a, 1, row};
    T* const beside = a + first;
    T* const corner = a + first * row + first;
    solve_triangle(false, false, lower, first, beside, row, rest);
    by_columns<T>(rest, STEP_NS<T> * double(first * rest / 2), [&](int64_t begin, int64_t count) {
        for (int64_t j = begin; j < begin + count; j += SQUARE) {
            const int64_t width = std::min(SQUARE, begin + count - j);
            subtract_strip(corner + j, row, Strided<T>{beside, 1, row}, beside + j, row, j + width, width, first);
        }
    });
    const int32_t info = factorise_positive(corner, row, rest);
    return info ? info + int32_t(first) : 0;
}

#define NORCH_INSTANTIATE(T)                                                                                           \
    template void subtract_product(T*, int64_t, Strided<T>, const T*, int64_t, int64_t, int64_t, int64_t);             \
    template void solve_triangle(bool, bool, Strided<T>, int64_t, T*, int64_t, int64_t);                               \
    template void exchange_rows(T*, int64_t, int64_t, const int32_t*, int64_t);                                        \
    template int32_t factorise(T*, int64_t, int64_t, int64_t, int32_t*);                                               \
    template int32_t factorise_positive(T*, int64_t, int64_t);
NORCH_INSTANTIATE(float)
NORCH_INSTANTIATE(double)
#undef NORCH_INSTANTIATE

}  // namespace norch::linalg
