// Distances of every row to every row, or to those after it, in the 1-norm or the 2-norm, and their gradients.
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

/// Where the pair of row i and row j, a later one, is among those of n rows.
int64_t place_of(int64_t i, int64_t j, int64_t n) { return i * n - i * (i + 1) / 2 + j - i - 1; }

template <bool SQUARES, class T>
[[gnu::cold]] KernelPtr forward(const Request& r) {
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

/// The distances of each row to those after it, row by row.
template <bool SQUARES, class T>
[[gnu::cold]] KernelPtr pairs_forward(const Request& r) {
    constexpr int64_t TILE = 4 * LANES<T>, SIZE = sizeof(T);
    const int64_t n = r.operands[1].shape[0], k = r.operands[1].shape[1];
    const double ns = double(n) / 2 * double(k) * 0.05 + 10;
    return parallel_kernel(n, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> tile(k * TILE);
        std::fill_n(tile.data(), k * TILE, T(0));
        T sums[TILE];
        for (int64_t j = begin / TILE * TILE; j < n; j += TILE) {
            const int64_t count = std::min(TILE, n - j);
            copy_tile({reinterpret_cast<char*>(tile.data()), TILE * SIZE, SIZE}, {data[1] + j * k * SIZE, SIZE, k * SIZE}, k,
                      count, SIZE);
            for (int64_t i = begin; i < std::min(end, j + count - 1); ++i) {
                sum_differences<SQUARES>(reinterpret_cast<const T*>(data[1]) + i * k, tile.data(), k, sums);
                T* const out = reinterpret_cast<T*>(data[0]) + place_of(i, 0, n) + j;
                for (int64_t l = std::max<int64_t>(i + 1 - j, 0); l < count; ++l) out[l] = SQUARES ? std::sqrt(sums[l]) : sums[l];
            }
        }
    });
}

/// What the differences a - b[j] are multiplied by, of which the gradient is the sum.
template <bool SQUARES, class T>
T factor_of(T grad, T away) {
    return !SQUARES ? grad : away == 0 ? T(0) : grad / away;
}

/// The sum over j of factors[j] * (a - b[j]), or of the signs of that, in VECTORS vectors.
template <bool SQUARES, int VECTORS, int L, class T>
void add_differences(const T* a, const T* b, const T* factors, int64_t m, int64_t k, T* out) {
    using V = vector_t<T, L>;
    V own[VECTORS], total[VECTORS] = {};
    NORCH_UNROLL
    for (int v = 0; v < VECTORS; ++v) own[v] = load_vector<L>(a + v * L);
    for (int64_t j = 0; j < m; ++j, b += k) {
        const T factor = factors[j];
        NORCH_UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            const V by = own[v] - load_vector<L>(b + v * L);
            if constexpr (SQUARES) total[v] += factor * by;
            else total[v] += factor * (by > 0 ? V{} + T(1) : by < 0 ? V{} - T(1) : by);  // 0 and NaN stay
        }
    }
    NORCH_UNROLL
    for (int v = 0; v < VECTORS; ++v) store_vector(out + v * L, total[v]);
}

template <bool SQUARES, class T>
void sum_of_differences(const T* a, const T* b, const T* factors, int64_t m, int64_t k, T* out) {
    constexpr int64_t L = LANES<T>;
    int64_t l = 0;
    for (; l + 4 * L <= k; l += 4 * L) add_differences<SQUARES, 4, L>(a + l, b + l, factors, m, k, out + l);
    for (; l + L <= k; l += L) add_differences<SQUARES, 1, L>(a + l, b + l, factors, m, k, out + l);
    for (; l < k; ++l) add_differences<SQUARES, 1, 1>(a + l, b + l, factors, m, k, out + l);
}

double grad_ns(int64_t m, int64_t k) { return double(m) * (double(k) * 0.05 + 2) + 10; }

/// The gradient of the first rows. `grad` and `distance` may have any strides.
template <bool SQUARES, class T>
[[gnu::cold]] KernelPtr backward(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &distance = r.operands[4];
    const int64_t n = out.shape[1], k = out.shape[2], m = r.operands[3].shape[1];
    const auto g = grad.strides, d = distance.strides;
    return parallel_kernel(out.shape[0] * n, grad_ns(m, k), [=](char* const* data, int64_t begin, int64_t end) {
        const Scratch<T> factors(m);
        for (int64_t row = begin; row < end; ++row) {
            const int64_t batch = row / n, i = row % n;
            const T* const grads = reinterpret_cast<const T*>(data[1]) + batch * g[0] + i * g[1];
            const T* const distances = reinterpret_cast<const T*>(data[4]) + batch * d[0] + i * d[1];
            for (int64_t j = 0; j < m; ++j) factors[j] = factor_of<SQUARES>(grads[j * g[2]], distances[j * d[2]]);
            sum_of_differences<SQUARES>(reinterpret_cast<const T*>(data[2]) + row * k,
                                        reinterpret_cast<const T*>(data[3]) + batch * m * k, factors.data(), m, k,
                                        reinterpret_cast<T*>(data[0]) + row * k);
        }
    });
}

/// The gradient of the rows of `pairs_forward`.
template <bool SQUARES, class T>
[[gnu::cold]] KernelPtr pairs_backward(const Request& r) {
    const int64_t n = r.operands[0].shape[0], k = r.operands[0].shape[1];
    return parallel_kernel(n, grad_ns(n, k), [=](char* const* data, int64_t begin, int64_t end) {
        const Scratch<T> factors(n);
        const T *const grads = reinterpret_cast<const T*>(data[1]), *const rows = reinterpret_cast<const T*>(data[2]);
        const T* const distances = reinterpret_cast<const T*>(data[3]);
        for (int64_t i = begin; i < end; ++i) {
            for (int64_t j = 0, at = place_of(0, i, n); j < i; ++j, at += n - 1 - j)
                factors[j] = factor_of<SQUARES>(grads[at], distances[at]);
            factors[i] = 0;
            const int64_t at = place_of(i, 0, n);
            for (int64_t j = i + 1; j < n; ++j) factors[j] = factor_of<SQUARES>(grads[at + j], distances[at + j]);
            sum_of_differences<SQUARES>(rows + i * k, rows, factors.data(), n, k, reinterpret_cast<T*>(data[0]) + i * k);
        }
    });
}

/// `operands`: which must lie row by row.
template <class F>
[[gnu::cold]] KernelPtr chosen(const Request& r, std::initializer_list<size_t> operands, const F& make) {
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
    registry["pairwise_distances"] = [](const Request& r) {
        return chosen(r, {0, 1}, [&]<class S, class T>(S, T) { return pairs_forward<S::value, T>(r); });
    };
    registry["pairwise_distances_grad"] = [](const Request& r) {
        return chosen(r, {0, 1, 2, 3}, [&]<class S, class T>(S, T) { return pairs_backward<S::value, T>(r); });
    };
}

}  // namespace norch::matmul
