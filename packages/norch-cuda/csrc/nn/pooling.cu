// max_pool2d, where its largest elements are, sums of windows (behind avg_pool2d), and their gradients: a thread for
// each element of the output.
#include <algorithm>

#include "nn/pooling.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::nn {
namespace {

struct Planes {
    int64_t n, c, row, column;

    explicit Planes(const Operand& o) : n(o.strides[0]), c(o.strides[1]), row(o.strides[2]), column(o.strides[3]) {}
};

struct Place {
    int64_t n, c;
    int y, x;
};

__device__ Place place_of(const Pool& p, uint32_t i) {
    const uint32_t line = p.across.quotient(i), plane = p.down.quotient(line), n = p.channels.quotient(plane);
    return {int64_t(n), int64_t(plane - n * p.channels.divisor), int(line - plane * p.down.divisor),
            int(i - line * p.across.divisor)};
}

template <class T>
__device__ const T* plane_at(const T* data, const Planes& planes, const Place& at) {
    return data + at.n * planes.n + at.c * planes.c;
}

/// K is the windows' height and width, or 0 where it is only known at run time.
template <class T, bool IS_MAX, int K>
__global__ void __launch_bounds__(THREADS) pool_kernel(const __grid_constant__ Pool p, T* out, const T* data,
                                                       const Planes planes) {
    using C = computed<T>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Place at = place_of(p, i);
    const T* plane = plane_at(data, planes, at);
    const int top = at.y * p.step_y - p.top, left = at.x * p.step_x - p.left;
    const int kh = K ? K : p.kh, kw = K ? K : p.kw;
    C best = IS_MAX ? lowest<C>() : C(0);
#pragma unroll
    for (int a = 0; a < kh; ++a) {
        const int y = top + a * p.gap_y;
        if (unsigned(y) >= unsigned(p.h)) continue;
#pragma unroll
        for (int b = 0; b < kw; ++b) {
            const int x = left + b * p.gap_x;
            if (unsigned(x) >= unsigned(p.w)) continue;
            const C value = upcast(plane[y * planes.row + x * planes.column]);
            best = IS_MAX ? larger(best, value) : C(best + value);
        }
    }
    out[i] = downcast<T>(best);
}

/// The same for windows side by side of KW columns, 16 bytes of each row at once: a thread for their windows.
template <class T, int KW>
constexpr int TOGETHER = 16 / int(sizeof(T)) / KW;
template <class T, bool IS_MAX, int KW>
__global__ void __launch_bounds__(THREADS) side_by_side_kernel(const __grid_constant__ Pool p, T* out, const T* data,
                                                               const Planes planes) {
    using C = computed<T>;
    constexpr int COUNT = TOGETHER<T, KW>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Place at = place_of(p, i);
    const T* from = plane_at(data, planes, at) + at.x * (COUNT * KW);
    const int top = at.y * p.step_y - p.top;
    C best[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; ++j) best[j] = IS_MAX ? lowest<C>() : C(0);
#pragma unroll 4
    for (int a = 0; a < p.kh; ++a) {
        const int y = top + a * p.gap_y;
        if (unsigned(y) >= unsigned(p.h)) continue;
        const auto row = *reinterpret_cast<const Packet<T, COUNT * KW>*>(from + y * planes.row);
#pragma unroll
        for (int j = 0; j < COUNT * KW; ++j) {
            const C value = upcast(row.v[j]);
            best[j / KW] = IS_MAX ? larger(best[j / KW], value) : C(best[j / KW] + value);
        }
    }
    Packet<T, COUNT> result;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) result.v[j] = downcast<T>(best[j]);
    reinterpret_cast<Packet<T, COUNT>*>(out)[i] = result;
}

/// Where in its plane the first largest element of a window is; the nearest element if the window has none.
template <class T>
__device__ int largest_at(const Pool& p, const Planes& planes, const T* plane, int row, int column) {
    using C = computed<T>;
    const int top = row * p.step_y - p.top, left = column * p.step_x - p.left;
    int found = -1;
    C best{};
    for (int a = 0; a < p.kh; ++a) {
        const int y = top + a * p.gap_y;
        if (unsigned(y) >= unsigned(p.h)) continue;
        for (int b = 0; b < p.kw; ++b) {
            const int x = left + b * p.gap_x;
            if (unsigned(x) >= unsigned(p.w)) continue;
            const C value = upcast(plane[y * planes.row + x * planes.column]);
            if (found < 0 || value > best || (value != value && best == best)) {
                found = y * p.w + x;
                best = value;
            }
        }
    }
    if (found >= 0) return found;
    return min(max(top, 0), p.h - 1) * p.w + min(max(left, 0), p.w - 1);
}

template <class T, class Index>
__global__ void __launch_bounds__(THREADS) indices_kernel(const __grid_constant__ Pool p, Index* out, const T* data,
                                                          const Planes planes) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Place at = place_of(p, i);
    out[i] = Index(largest_at(p, planes, plane_at(data, planes, at), at.y, at.x));
}

/// Each element's sum of the gradients of the windows that see it.
template <class T>
__global__ void __launch_bounds__(THREADS) sum_grad_kernel(const __grid_constant__ Pool p, T* out, const T* grad,
                                                           const Planes grads) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Place at = place_of(p, i);
    const T* g = plane_at(grad, grads, at);
    const int2 rows = windows_of(at.y, p.top, p.kh, p.gap_y, p.by_step_y, p.rows);
    const int2 columns = windows_of(at.x, p.left, p.kw, p.gap_x, p.by_step_x, p.columns);
    computed<T> sum = 0;
    for (int row = rows.x; row <= rows.y; ++row) {
        if (p.gap_y > 1 && (at.y + p.top - row * p.step_y) % p.gap_y) continue;
        for (int column = columns.x; column <= columns.y; ++column) {
            if (p.gap_x > 1 && (at.x + p.left - column * p.step_x) % p.gap_x) continue;
            sum += upcast(g[row * grads.row + column * grads.column]);
        }
    }
    out[i] = downcast<T>(sum);
}

/// The same of those whose largest it is; `found` has for each window where that lies in its plane.
template <class T>
__global__ void __launch_bounds__(THREADS) max_grad_kernel(const __grid_constant__ Pool p, T* out, const T* grad,
                                                           const Planes grads, const int32_t* found) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Place at = place_of(p, i);
    const T* g = plane_at(grad, grads, at);
    found += (at.n * p.channels.divisor + at.c) * int64_t(p.rows) * p.columns;
    const int2 rows = windows_of(at.y, p.top, p.kh, p.gap_y, p.by_step_y, p.rows);
    const int2 columns = windows_of(at.x, p.left, p.kw, p.gap_x, p.by_step_x, p.columns);
    const int mine = at.y * p.w + at.x;
    computed<T> sum = 0;
    for (int row = rows.x; row <= rows.y; ++row)
        for (int column = columns.x; column <= columns.y; ++column)
            if (found[int64_t(row) * p.columns + column] == mine) sum += upcast(g[row * grads.row + column * grads.column]);
    out[i] = downcast<T>(sum);
}

/// The same for windows of 2 * 2, side by side: a thread for each, or for what is left over at the edges. `has_pairs`: the
/// two elements of a row are accessed at once.
template <class T, bool IS_MAX>
__global__ void __launch_bounds__(THREADS)
    halves_grad_kernel(const __grid_constant__ Pool p, T* out, const T* grad, const Planes grads, const T* data,
                       const Planes planes, bool has_pairs) {
    using Pair = Packet<T, 2>;
    using C = computed<T>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Place at = place_of(p, i);
    const bool is_window = at.y < p.rows && at.x < p.columns;
    const C g = is_window ? C(upcast(plane_at(grad, grads, at)[at.y * grads.row + at.x * grads.column])) : C(0);
    int first = -1;
    if (IS_MAX && is_window) {
        const T* from = plane_at(data, planes, at) + 2 * at.y * planes.row + 2 * at.x * planes.column;
        Pair pairs[2];
#pragma unroll
        for (int a = 0; a < 2; ++a, from += planes.row)
            pairs[a] = has_pairs ? *reinterpret_cast<const Pair*>(from) : Pair{{from[0], from[planes.column]}};
        const C x[4] = {C(upcast(pairs[0].v[0])), C(upcast(pairs[0].v[1])), C(upcast(pairs[1].v[0])),
                        C(upcast(pairs[1].v[1]))};
        first = 0;
        C best = x[0];
#pragma unroll
        for (int k = 1; k < 4; ++k)
            if (x[k] > best || (x[k] != x[k] && best == best)) first = k, best = x[k];
    }
    T* to = out + (at.n * p.channels.divisor + at.c) * int64_t(p.h) * p.w;
#pragma unroll
    for (int a = 0; a < 2; ++a) {
        const int y = 2 * at.y + a, x = 2 * at.x;
        if (y >= p.h) break;
        Pair pair;
#pragma unroll
        for (int b = 0; b < 2; ++b) pair.v[b] = downcast<T>(!IS_MAX || first == 2 * a + b ? g : C(0));
        T* place = to + int64_t(y) * p.w + x;
        if (has_pairs) {
            *reinterpret_cast<Pair*>(place) = pair;
        } else {
            place[0] = pair.v[0];
            if (x + 1 < p.w) place[1] = pair.v[1];
        }
    }
}

// --- Kernels --------------------------------------------------------------------------------------------------------

/// Whether 32-bit indices do. Otherwise core decomposes.
bool is_usual(const Request& r) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - 1;
    for (const Operand& o : r.operands)
        if (o.numel() > LIMIT) return false;
    for (const char* name : {"windows", "pads"})
        for (int64_t n : r.attrs.integers(name))
            if (n > (1 << 24)) return false;
    const auto &windows = r.attrs.integers("windows"), &pads = r.attrs.integers("pads");
    if (windows[0] * windows[4] > (1 << 24) || windows[1] * windows[5] > (1 << 24)) return false;
    return pads[0] >= 0 && pads[2] >= 0;
}

/// Whether side_by_side_kernel does it where data is aligned.
template <class T, int KW>
bool are_side_by_side(const Pool& p, const Planes& planes) {
    constexpr int ACROSS = TOGETHER<T, KW> * KW;
    if (!std::is_floating_point_v<computed<T>>) return false;
    if (p.kw != KW || p.step_x != KW || (KW > 1 && p.gap_x != 1) || p.left || p.columns * KW > p.w) return false;
    if (p.columns % TOGETHER<T, KW> || planes.column != 1) return false;
    return planes.row % ACROSS == 0 && planes.c % ACROSS == 0 && planes.n % ACROSS == 0;
}

template <class T, bool IS_MAX>
KernelPtr pooled(const Request& r) {
    if (!r.operands[0].is_contiguous()) {
        if constexpr (std::is_floating_point_v<computed<T>>) return pooled_last<T, IS_MAX>(r);
        return nullptr;
    }
    const Operand &out = r.operands[0], &in = r.operands[1];
    const Pool p = pool_of(in, out, r.attrs, out.shape[2], out.shape[3]);
    const Planes planes(in);
    const bool is_two = p.kh == 2 && p.kw == 2;
    const bool are_ones = are_side_by_side<T, 1>(p, planes), are_pairs = are_side_by_side<T, 2>(p, planes);
    const int together = are_ones ? TOGETHER<T, 1> : are_pairs ? TOGETHER<T, 2> : 1;
    const Pool several = pool_of(in, out, r.attrs, out.shape[2], out.shape[3] / together);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (!p.count) return;
        const unsigned blocks = unsigned(ceil_div(p.count, THREADS));
        T* to = reinterpret_cast<T*>(data[0]);
        const T* from = reinterpret_cast<const T*>(data[1]);
        if constexpr (std::is_floating_point_v<computed<T>>) {
            const bool is_wide = (are_ones || are_pairs) && is_aligned(from, 16) && is_aligned(to, 16);
            const auto kernel = are_ones ? side_by_side_kernel<T, IS_MAX, 1> : side_by_side_kernel<T, IS_MAX, 2>;
            const unsigned few = unsigned(ceil_div(several.count, THREADS));
            if (is_wide) return launch_kernel("pooling", kernel, few, THREADS, several, to, from, planes);
        }
        if (is_two)
            pool_kernel<T, IS_MAX, 2><<<blocks, THREADS, 0, stream_handle()>>>(p, to, from, planes);
        else
            pool_kernel<T, IS_MAX, 0><<<blocks, THREADS, 0, stream_handle()>>>(p, to, from, planes);
        check_launch("pooling");
    });
}

template <class T>
KernelPtr indices(const Request& r) {
    const Operand &out = r.operands[0], &in = r.operands[1];
    const Pool p = pool_of(in, out, r.attrs, out.shape[2], out.shape[3]);
    const Planes planes(in);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (!p.count) return;
        launch_kernel("finding the largest of windows", indices_kernel<T, int64_t>, unsigned(ceil_div(p.count, THREADS)), THREADS,
                      p, reinterpret_cast<int64_t*>(data[0]), reinterpret_cast<const T*>(data[1]), planes);
    });
}

template <class T, bool IS_MAX>
KernelPtr gradient(const Request& r) {
    if (!r.operands[0].is_contiguous()) return pooled_last_grad<T, IS_MAX>(r);
    const Operand &out = r.operands[0], &grad = r.operands[1];
    Pool p = pool_of(out, grad, r.attrs, out.shape[2], out.shape[3]);
    const bool is_halves = are_halves(p);
    if (IS_MAX && !is_halves && !all_see(p)) return nullptr;
    if (is_halves) p = pool_of(out, grad, r.attrs, (out.shape[2] + 1) / 2, (out.shape[3] + 1) / 2);
    const Pool windows = pool_of(out, grad, r.attrs, grad.shape[2], grad.shape[3]);
    const Planes grads(grad), planes(IS_MAX ? r.operands[2] : grad);
    const bool is_even = planes.column == 1 && planes.row % 2 == 0 && planes.c % 2 == 0 && planes.n % 2 == 0;
    const bool is_paired = p.w % 2 == 0 && (!IS_MAX || is_even);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (!p.count) return;
        const char* what = "a gradient of pooling";
        const unsigned blocks = unsigned(ceil_div(p.count, THREADS));
        auto at = [&](int i) { return reinterpret_cast<T*>(data[i]); };
        const T *grad = at(1), *input = IS_MAX ? at(2) : nullptr;
        if (is_halves) {
            const bool has_pairs = is_paired && is_aligned(data[0], 2 * sizeof(T)) && is_aligned(input, 2 * sizeof(T));
            launch_kernel(what, halves_grad_kernel<T, IS_MAX>, blocks, THREADS, p, at(0), grad, grads, input, planes,
                          has_pairs);
        } else if constexpr (IS_MAX) {
            const Scratch<int32_t> found(std::max(windows.count, 1u));
            if (windows.count)
                launch_kernel(what, indices_kernel<T, int32_t>, unsigned(ceil_div(windows.count, THREADS)), THREADS, windows,
                              found.data(), input, planes);
            launch_kernel(what, max_grad_kernel<T>, blocks, THREADS, p, at(0), grad, grads, found.data());
        } else {
            launch_kernel(what, sum_grad_kernel<T>, blocks, THREADS, p, at(0), grad, grads);
        }
    });
}

template <bool IS_MAX>
KernelPtr gradient_of_dtype(const Request& r) {
    const DType dtype = r.operands[0].dtype;
    if (!is_usual(r)) return nullptr;
    for (const Operand& o : r.operands)
        if (o.dtype != dtype) return nullptr;
    return visit_floating_device(dtype, [&]<class T>(Tag<T>) { return gradient<T, IS_MAX>(r); });
}

}  // namespace

void add_pooling(Registry& registry) {
    registry["max_pool2d"] = [](const Request& r) -> KernelPtr {
        if (!is_usual(r) || r.operands[0].dtype == DType::boolean) return nullptr;
        return visit_device(r.operands[0].dtype, [&]<class T>(Tag<T>) { return pooled<T, true>(r); });
    };
    registry["max_pool2d_indices"] = [](const Request& r) -> KernelPtr {
        if (!is_usual(r) || !r.operands[0].is_contiguous()) return nullptr;
        return visit_device(r.operands[1].dtype, [&]<class T>(Tag<T>) { return indices<T>(r); });
    };
    registry["sum_pool2d"] = [](const Request& r) -> KernelPtr {
        if (!is_usual(r) || r.operands[0].dtype != r.operands[1].dtype) return nullptr;
        return visit_floating_device(r.operands[0].dtype,
                                     [&]<class T>(Tag<T>) { return pooled<T, false>(r); });
    };
    registry["max_pool2d_grad"] = gradient_of_dtype<true>;
    registry["sum_pool2d_grad"] = gradient_of_dtype<false>;
}

}  // namespace norch::nn
