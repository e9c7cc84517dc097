// distances of every row to every row in the 1-norm or the 2-norm, and their gradient.
#include <algorithm>
#include <cmath>

#include "common/kernel.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/tile.h"

namespace norch::matmul {
namespace {

template <class T>
constexpr int64_t LANES = SIMD_WIDTH<T>;

/// sums[l] = the sum over k of |a[k] - b[k][l]|, or of its square, for 4 vectors of rows that lie side by side in b.
template <bool SQUARES, class T>
void sum_differences(const T* a, const T* b, int64_t k, T* sums) {
    constexpr int64_t L = LANES<T>;
    using V = vector_t<T, L>;
    V total[4] = {};
    for (int64_t i = 0; i < k; ++i, b += 4 * L) {
        NORCH_UNROLL
        for (int j = 0; j < 4; ++j) {
            const V away = a[i] - load_vector<L>(b + j * L);
            if constexpr (SQUARES)
                total[j] += away * away;
            else
                total[j] += away < 0 ? -away : away;
        }
    }
    NORCH_UNROLL
    for (int j = 0; j < 4; ++j) store_vector(sums + j * L, total[j]);
}

template <bool SQUARES, class T>
KernelPtr forward(const Request& r) {
    constexpr int64_t TILE = 4 * LANES<T>, SIZE = sizeof(T);
    const auto& shape = r.operands[0].shape;
    const int64_t n = shape[1], m = shape[2], k = r.operands[1].shape[2];
    const double ns = double(m) * double(k) * 0.05 + 10;
    return parallel_kernel(shape[0] * n, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> tile(k * TILE);
        std::fill_n(tile.data(), k * TILE, T(0));
        T sums[TILE];
        for (int64_t row = begin; row < end;) {
            const int64_t batch = row / n, last = std::min(end, (batch + 1) * n);
            for (int64_t j = 0; j < m; j += TILE) {
                const int64_t count = std::min(TILE, m - j);
                char* const from = data[2] + (batch * m + j) * k * SIZE;
                copy_tile({reinterpret_cast<char*>(tile.data()), TILE * SIZE, SIZE}, {from, SIZE, k * SIZE}, k, count, SIZE);
                for (int64_t i = row; i < last; ++i) {
                    sum_differences<SQUARES>(reinterpret_cast<const T*>(data[1]) + i * k, tile.data(), k, sums);
                    T* const out = reinterpret_cast<T*>(data[0]) + i * m + j;
                    for (int64_t l = 0; l < count; ++l) out[l] = SQUARES ? std::sqrt(sums[l]) : sums[l];
                }
            }
            row = last;
        }
    });
}

/// The gradient of the first rows. `grad` and `distance` may have any strides.
template <bool SQUARES, class T>
KernelPtr backward(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &distance = r.operands[4];
    const int64_t n = out.shape[1], k = out.shape[2], m = r.operands[3].shape[1];
    const auto g = grad.strides, d = distance.strides;
    const double ns = double(m) * (double(k) * 0.1 + 2) + 10;
    return parallel_kernel(out.shape[0] * n, ns, [=](char* const* data, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const int64_t batch = row / n, i = row % n;
            T* const to = reinterpret_cast<T*>(data[0]) + row * k;
            const T* const a = reinterpret_cast<const T*>(data[2]) + row * k;
            const T* const grads = reinterpret_cast<const T*>(data[1]) + batch * g[0] + i * g[1];
            const T* const distances = reinterpret_cast<const T*>(data[4]) + batch * d[0] + i * d[1];
            std::fill_n(to, k, T(0));
            for (int64_t j = 0; j < m; ++j) {
                const T* const b = reinterpret_cast<const T*>(data[3]) + (batch * m + j) * k;
                const T away = distances[j * d[2]], grad = grads[j * g[2]];
                if (grad == 0 && away - away == 0) continue;  // as half of all are for pdist
                const T factor = !SQUARES ? grad : away == 0 ? T(0) : grad / away;
                NORCH_INDEPENDENT
                for (int64_t l = 0; l < k; ++l) {
                    const T by = a[l] - b[l];
                    if constexpr (SQUARES) {
                        to[l] += factor * by;
                    } else {
                        const T sign = by > 0 ? T(1) : T(-1);
                        to[l] += factor * (by * by > 0 ? sign : by);
                    }
                }
            }
        }
    });
}

/// `operands`: which must lie row by row.
template <class F>
KernelPtr chosen(const Request& r, std::initializer_list<size_t> operands, const F& make) {
    const double p = r.attrs.number("p");
    if (p != 1 && p != 2) return nullptr;
    for (const Operand& o : r.operands)
        if (o.dtype != r.operands[0].dtype) return nullptr;
    for (size_t i : operands)
        if (!r.operands[i].is_contiguous()) return nullptr;
    const auto by = [&]<class T>(T number) {
        return p == 2 ? make(std::true_type(), number) : make(std::false_type(), number);
    };
    return r.operands[0].dtype == DType::f32 ? by(float()) : r.operands[0].dtype == DType::f64 ? by(double()) : nullptr;
}

}  // namespace

void add_distances(Registry& registry) {
    registry["distances"] = [](const Request& r) {
        return chosen(r, {0, 1, 2}, [&]<class S, class T>(S, T) { return forward<S::value, T>(r); });
    };
    registry["distances_grad"] = [](const Request& r) {
        return chosen(r, {0, 2, 3}, [&]<class S, class T>(S, T) { return backward<S::value, T>(r); });
    };
}

}  // namespace norch::matmul
