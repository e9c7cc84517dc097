// grid_sample2d_bicubic and its gradients. Of most places the four neighbours in a row lie side by side: a row is a vector.
#include <algorithm>
#include <cmath>

#include "nn/sampling.h"
#include "runtime/families.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

constexpr int TAPS = 4;

/// Four elements side by side, in one register or two.
template <class T>
struct Row {
    static constexpr int LANES = std::min(TAPS, SIMD_WIDTH<T>), PARTS = TAPS / LANES;
    vector_t<T, LANES> part[PARTS] = {};

    static NORCH_INLINE Row at(const T* from) {
        Row out;
        for (int i = 0; i < PARTS; ++i) out.part[i] = load_vector<LANES>(from + i * LANES);
        return out;
    }
    NORCH_INLINE void store(T* to) const {
        for (int i = 0; i < PARTS; ++i) store_vector(to + i * LANES, part[i]);
    }
    NORCH_INLINE void add(T factor, const Row& row) {
        for (int i = 0; i < PARTS; ++i) part[i] += factor * row.part[i];
    }
    NORCH_INLINE T dot(const Row& row) const {
        const auto product = [&](int j) NORCH_INLINE_LAMBDA { return part[j / LANES][j % LANES] * row.part[j / LANES][j % LANES]; };
        return (product(0) + product(2)) + (product(1) + product(3));
    }
};

/// The neighbours of a block of places along one dim: where they lie, their weights (Keys, 1981, with a = -0.75), and what
/// these change by with the grid's number.
template <class T>
struct CubicLine {
    int32_t at[TAPS][BLOCK];
    bool is_inner[BLOCK];  // whether all four lie inside by themselves
    T weight[BLOCK][TAPS], change[BLOCK][TAPS];

    template <bool CHANGES>
    [[gnu::noinline]] void fill(const Sampling& s, T* x, int64_t size, int64_t stride, int count) {
        constexpr T a = T(-0.75);
        const T half = T(s.align ? size - 1 : size) / 2, shift = s.align ? T(0) : T(0.5), last = T(size - 1);
        const int32_t step = int32_t(stride);
        T first[BLOCK];
        NORCH_INDEPENDENT
        for (int p = 0; p < count; ++p) {
            const T place = (x[p] + 1) * half - shift, floor = std::floor(place), t = place - floor;
            first[p] = floor - 1;
            is_inner[p] = (floor >= 1) & (floor + 2 <= last);
            const T d[TAPS] = {t + 1, t, 1 - t, 2 - t};
            weight[p][0] = ((a * d[0] - 5 * a) * d[0] + 8 * a) * d[0] - 4 * a;
            weight[p][1] = ((a + 2) * d[1] - (a + 3)) * d[1] * d[1] + 1;
            weight[p][2] = ((a + 2) * d[2] - (a + 3)) * d[2] * d[2] + 1;
            weight[p][3] = ((a * d[3] - 5 * a) * d[3] + 8 * a) * d[3] - 4 * a;
            if (!CHANGES) continue;
            change[p][0] = half * ((3 * a * d[0] - 10 * a) * d[0] + 8 * a);
            change[p][1] = half * (3 * (a + 2) * d[1] - 2 * (a + 3)) * d[1];
            change[p][2] = -half * (3 * (a + 2) * d[2] - 2 * (a + 3)) * d[2];
            change[p][3] = -half * ((3 * a * d[3] - 10 * a) * d[3] + 8 * a);
        }
        for (int k = 0; k < TAPS; ++k) {
            NORCH_INDEPENDENT
            for (int p = 0; p < count; ++p) {
                const T i = first[p] + T(k);
                const bool is_in = (i >= 0) & (i <= last);
                at[k][p] = is_in ? int32_t(is_in ? i : T(0)) * step : OUTSIDE;
            }
            if (s.is_zeros) continue;
            for (int p = 0; p < count; ++p)
                if (at[k][p] < 0) at[k][p] = brought_in(s, first[p] + T(k), size) * step;
        }
    }

private:
    static int32_t brought_in(const Sampling& s, T i, int64_t size) {
        T slope = 0;
        if (s.is_reflected) i = reflected(s, i, size, slope);
        return i > 0 ? int32_t(std::min(i, T(size - 1))) : 0;
    }
};

/// The neighbours of up to BLOCK places.
template <class T>
struct CubicTable {
    int count;
    CubicLine<T> x, y;
    bool is_near[BLOCK];  // whether the places of `x` are side by side, and all of `y` inside

    template <bool CHANGES>
    void fill(const Sampling& s, const Operand& image, const Operand& grid, const T* numbers, int64_t n, int64_t block) {
        T columns[BLOCK], rows[BLOCK];
        count = read_places(s, grid, numbers, n, block, columns, rows);
        x.template fill<CHANGES>(s, columns, s.w, image.strides[3], count);
        y.template fill<CHANGES>(s, rows, s.h, image.strides[2], count);
        for (int p = 0; p < count; ++p) is_near[p] = image.strides[3] == 1 && x.is_inner[p] && (y.is_inner[p] || !s.is_zeros);
    }
    /// Calls f(row, the four elements of it) for a place that is near.
    template <class P, class F>
    NORCH_INLINE void each_row(P* plane, int p, const F& f) const {
        P* const from = plane + x.at[0][p];
        NORCH_UNROLL
        for (int k = 0; k < TAPS; ++k) f(k, from + y.at[k][p]);
    }
    /// Calls f(row, column, the element) for each that lies inside.
    template <class P, class F>
    void each_element(P* plane, int p, const F& f) const {
        for (int k = 0; k < TAPS; ++k)
            for (int j = 0; j < TAPS; ++j) {
                const int32_t place = y.at[k][p] + x.at[j][p];
                if (place >= 0) f(k, j, plane[place]);
            }
    }
};

template <class T>
[[gnu::cold]] KernelPtr sample(const Request& r) {
    return sample_kernel<T, CubicTable<T>>(r, 15, 3, [](const CubicTable<T>& table, const T* x, T* out) {
        for (int p = 0; p < table.count; ++p) {
            if (table.is_near[p]) {
                Row<T> sum;
                table.each_row(x, p, [&](int k, const T* row) NORCH_INLINE_LAMBDA {
                    sum.add(table.y.weight[p][k], Row<T>::at(row));
                });
                out[p] = sum.dot(Row<T>::at(table.x.weight[p]));
            } else {
                T sum = 0;
                table.each_element(x, p, [&](int k, int j, T value) {
                    sum += value * (table.y.weight[p][k] * table.x.weight[p][j]);
                });
                out[p] = sum;
            }
        }
    });
}

template <class T>
[[gnu::cold]] KernelPtr input_grad(const Request& r) {
    return input_grad_kernel<T, CubicTable<T>>(r, 15, 8, [](const CubicTable<T>& table, int p, T factor, T* out) NORCH_INLINE_LAMBDA {
        if (table.is_near[p]) {
            Row<T> part;
            part.add(factor, Row<T>::at(table.x.weight[p]));
            table.each_row(out, p, [&](int k, T* row) NORCH_INLINE_LAMBDA {
                Row<T> sum = Row<T>::at(row);
                sum.add(table.y.weight[p][k], part);
                sum.store(row);
            });
        } else {
            table.each_element(out, p, [&](int k, int j, T& sum) {
                sum += table.y.weight[p][k] * (factor * table.x.weight[p][j]);
            });
        }
    });
}

/// What each column of a block's places adds up to, by the weights of the rows and by what these change by.
template <class T>
struct ColumnSums {
    T by_x[BLOCK][TAPS] = {}, by_y[BLOCK][TAPS] = {};

    void add(const CubicTable<T>& table, const T* x, const T* g, const int64_t* from) {
        for (int p = 0; p < table.count; ++p) {
            const T factor = g[from[p]];
            if (table.is_near[p]) {
                Row<T> sum, change, of_x = Row<T>::at(by_x[p]), of_y = Row<T>::at(by_y[p]);
                table.each_row(x, p, [&](int k, const T* row) NORCH_INLINE_LAMBDA {
                    const Row<T> values = Row<T>::at(row);
                    sum.add(table.y.weight[p][k], values), change.add(table.y.change[p][k], values);
                });
                of_x.add(factor, sum), of_y.add(factor, change);
                of_x.store(by_x[p]), of_y.store(by_y[p]);
            } else {
                table.each_element(x, p, [&](int k, int j, T value) {
                    by_x[p][j] += factor * table.y.weight[p][k] * value;
                    by_y[p][j] += factor * table.y.change[p][k] * value;
                });
            }
        }
    }
    void bring(const CubicTable<T>& table, T* out) const {
        for (int p = 0; p < table.count; ++p) {
            out[2 * p] = Row<T>::at(by_x[p]).dot(Row<T>::at(table.x.change[p]));
            out[2 * p + 1] = Row<T>::at(by_y[p]).dot(Row<T>::at(table.x.weight[p]));
        }
    }
};

template <class T>
[[gnu::cold]] KernelPtr grid_grad(const Request& r) {
    return grid_grad_kernel<T, CubicTable<T>, ColumnSums<T>>(r, 20, 5);
}

}  // namespace

void add_cubic_sampling(Registry& registry) {
    registry["grid_sample2d_bicubic"] = [](const Request& r) {
        return floating(r, 1, [&]<class T>(T) { return sample<T>(r); });
    };
    registry["grid_sample2d_bicubic_input_grad"] = [](const Request& r) {
        return floating(r, 0, [&]<class T>(T) { return input_grad<T>(r); });
    };
    registry["grid_sample2d_bicubic_grid_grad"] = [](const Request& r) {
        return floating(r, 2, [&]<class T>(T) { return grid_grad<T>(r); });
    };
}

}  // namespace norch::nn
