// grid_sample2d and its gradients: the neighbours of a block of places are found once for all channels.
#include <algorithm>
#include <cmath>

#include "nn/sampling.h"
#include "runtime/families.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

/// The two neighbours of a block of places along one dim: where they lie, and their weights, 0 of what lies outside.
template <class T>
struct Line {
    int32_t at[2][BLOCK];
    T weight[2][BLOCK], change[2][BLOCK];  // what the weights change by with the grid's number

    template <bool CHANGES>
    [[gnu::noinline]] void fill(const Sampling& s, T* x, int64_t size, int64_t stride, int count) {
        const T half = T(s.align ? size - 1 : size) / 2, shift = s.align ? T(0) : T(0.5), last = T(size - 1);
        NORCH_INDEPENDENT
        for (int p = 0; p < count; ++p) x[p] = (x[p] + 1) * half - shift;
        T* const slope = change[1];
        if (CHANGES || s.is_reflected) std::fill_n(slope, count, half);
        if (s.is_reflected)
            for (int p = 0; p < count; ++p) x[p] = reflected(s, x[p], size, slope[p]);
        if (!s.is_zeros) {
            if (CHANGES) {
                NORCH_INDEPENDENT
                for (int p = 0; p < count; ++p) slope[p] = (x[p] > 0) & (x[p] < last) ? slope[p] : T(0);
            }
            NORCH_INDEPENDENT
            for (int p = 0; p < count; ++p) {
                const T most = x[p] < last ? x[p] : last;
                x[p] = x[p] > 0 ? most : T(0);
            }
        }
        // One before the first element and one behind the last are as much outside as any others, NaN too.
        const int32_t step = int32_t(stride), n = int32_t(size);
        if (s.is_nearest) {
            NORCH_INDEPENDENT
            for (int p = 0; p < count; ++p) {
                T first = std::nearbyint(x[p]);
                first = first < T(size) ? first : T(size);
                const int32_t i = int32_t(first > -1 ? first : T(-1));
                const bool is_in = (i >= 0) & (i < n);
                at[0][p] = is_in ? i * step : OUTSIDE;
                weight[0][p] = is_in ? T(1) : T(0);
            }
            return;
        }
        NORCH_INDEPENDENT
        for (int p = 0; p < count; ++p) {
            const T floor = std::floor(x[p]);
            const T most = floor < T(size) ? floor : T(size);
            const int32_t i = int32_t(most > -2 ? most : T(-2));
            x[p] -= floor;
            at[0][p] = (i >= 0) & (i < n) ? i * step : OUTSIDE;
            at[1][p] = (i >= -1) & (i < n - 1) ? i * step + step : OUTSIDE;
        }
        NORCH_INDEPENDENT
        for (int p = 0; p < count; ++p) {
            const T rest = x[p];
            weight[0][p] = at[0][p] >= 0 ? 1 - rest : T(0);
            weight[1][p] = at[1][p] >= 0 ? rest : T(0);
        }
        if (CHANGES) {
            NORCH_INDEPENDENT
            for (int p = 0; p < count; ++p) {
                const T by = slope[p];
                change[0][p] = at[0][p] >= 0 ? -by : T(0);
                change[1][p] = at[1][p] >= 0 ? by : T(0);
            }
        }
    }
};

/// The neighbours of up to BLOCK places: where they lie in a plane, or its first element outside, and their weights.
template <class T>
struct Table {
    int count;
    int32_t at[4][BLOCK], is_in[4][BLOCK];
    T weight[4][BLOCK], change[2][4][BLOCK];  // by x and by y

    template <bool CHANGES>
    void fill(const Sampling& s, const Operand& image, const Operand& grid, const T* numbers, int64_t n, int64_t block) {
        T columns[BLOCK], rows[BLOCK];
        count = read_places(s, grid, numbers, n, block, columns, rows);
        Line<T> x, y;
        x.template fill<CHANGES>(s, columns, s.w, image.strides[3], count);
        y.template fill<CHANGES>(s, rows, s.h, image.strides[2], count);
        for (int i = 0; i < (s.is_nearest ? 1 : 4); ++i) {
            const int j = i / 2, k = i % 2;
            NORCH_INDEPENDENT
            for (int p = 0; p < count; ++p) {
                const int32_t place = y.at[j][p] + x.at[k][p];
                at[i][p] = place < 0 ? 0 : place;
                is_in[i][p] = place >= 0;
                weight[i][p] = y.weight[j][p] * x.weight[k][p];
            }
            if (!CHANGES) continue;
            NORCH_INDEPENDENT
            for (int p = 0; p < count; ++p) {
                change[0][i][p] = y.weight[j][p] * x.change[k][p];
                change[1][i][p] = y.change[j][p] * x.weight[k][p];
            }
        }
    }
};

template <class T>
[[gnu::cold]] KernelPtr sample(const Request& r) {
    const bool is_nearest = r.attrs.text("mode") == "nearest";
    return sample_kernel<T, Table<T>>(r, 8, 2, [=](const Table<T>& table, const T* x, T* out) {
        if (is_nearest) {
            NORCH_INDEPENDENT
            for (int p = 0; p < table.count; ++p) {
                const T value = x[table.at[0][p]];  // in any case, so that there is no branch
                out[p] = table.is_in[0][p] ? value : T(0);
            }
            return;
        }
        if (*x - *x != 0) {  // what lies outside has weight 0, but this times 0 is no 0
            for (int p = 0; p < table.count; ++p) {
                out[p] = 0;
                for (int k = 0; k < 4; ++k)
                    if (table.is_in[k][p]) out[p] += x[table.at[k][p]] * table.weight[k][p];
            }
            return;
        }
        NORCH_INDEPENDENT
        for (int p = 0; p < table.count; ++p)
            out[p] = x[table.at[0][p]] * table.weight[0][p] + x[table.at[1][p]] * table.weight[1][p] +
                     x[table.at[2][p]] * table.weight[2][p] + x[table.at[3][p]] * table.weight[3][p];
    });
}

template <class T>
[[gnu::cold]] KernelPtr input_grad(const Request& r) {
    const int corners = r.attrs.text("mode") == "nearest" ? 1 : 4;
    return input_grad_kernel<T, Table<T>>(r, 8, 4, [=](const Table<T>& table, int p, T factor, T* out) NORCH_INLINE_LAMBDA {
        for (int k = 0; k < corners; ++k)
            if (table.is_in[k][p]) out[table.at[k][p]] += factor * table.weight[k][p];
    });
}

/// What each corner of a block's places adds up to.
template <class T>
struct CornerSums {
    T sums[4][BLOCK] = {};

    void add(const Table<T>& table, const T* x, const T* g, const int64_t* from) {
        NORCH_INDEPENDENT
        for (int p = 0; p < table.count; ++p) {
            const T factor = g[from[p]];
            sums[0][p] += factor * x[table.at[0][p]];
            sums[1][p] += factor * x[table.at[1][p]];
            sums[2][p] += factor * x[table.at[2][p]];
            sums[3][p] += factor * x[table.at[3][p]];
        }
    }
    void bring(const Table<T>& table, T* out) const {
        for (int p = 0; p < table.count; ++p)
            for (int d = 0; d < 2; ++d) {
                T sum = 0;
                for (int k = 0; k < 4; ++k) sum += table.is_in[k][p] ? sums[k][p] * table.change[d][k][p] : T(0);
                out[p * 2 + d] = sum;
            }
    }
};

template <class T>
[[gnu::cold]] KernelPtr grid_grad(const Request& r) {
    if (r.attrs.text("mode") != "nearest") return grid_grad_kernel<T, Table<T>, CornerSums<T>>(r, 12, 4);
    const int64_t numel = r.operands[0].numel();
    return make_kernel(double(numel) * 0.2, [=](char* const* data, const Scalar*) {
        std::fill_n(reinterpret_cast<T*>(data[0]), numel, T(0));
    });
}

}  // namespace

void add_sampling(Registry& registry) {
    registry["grid_sample2d"] = [](const Request& r) {
        return floating(r, 1, [&]<class T>(T) { return sample<T>(r); });
    };
    registry["grid_sample2d_input_grad"] = [](const Request& r) {
        return floating(r, 0, [&]<class T>(T) { return input_grad<T>(r); });
    };
    registry["grid_sample2d_grid_grad"] = [](const Request& r) {
        return floating(r, 2, [&]<class T>(T) { return grid_grad<T>(r); });
    };
}

}  // namespace norch::nn
