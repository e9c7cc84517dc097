// Pooling of images whose channels vary fastest: a thread for a packet of channels.
#include <algorithm>

#include "nn/pooling.cuh"
#include "nn/rows.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

/// Where a thread's packet is: FastDivide `channels` of the Pool counts packets here.
struct Spot {
    int n, y, x, c;
};
template <int VEC>
__device__ Spot spot_of(const Pool& p, uint32_t i) {
    const uint32_t line = p.channels.quotient(i), row = p.across.quotient(line), n = p.down.quotient(row);
    return {int(n), int(row - n * p.down.divisor), int(line - row * p.across.divisor),
            int(i - line * p.channels.divisor) * VEC};
}

/// The packet at place (y, x) of image n of h * w places.
template <int VEC>
__device__ int64_t packet_at(const Pool& p, const Spot& at, int h, int w, int y, int x) {
    return ((int64_t(at.n) * h + y) * w + x) * (int64_t(p.channels.divisor) * VEC) + at.c;
}

template <class T, bool IS_MAX, int VEC>
__global__ void __launch_bounds__(THREADS) last_kernel(const __grid_constant__ Pool p, T* out, const T* data) {
    using C = computed<T>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Spot at = spot_of<VEC>(p, i);
    const int top = at.y * p.step_y - p.top, left = at.x * p.step_x - p.left;
    C best[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) best[j] = IS_MAX ? lowest<C>() : C(0);
    for (int a = 0; a < p.kh; ++a) {
        const int y = top + a * p.gap_y;
        if (unsigned(y) >= unsigned(p.h)) continue;
#pragma unroll 4
        for (int b = 0; b < p.kw; ++b) {
            const int x = left + b * p.gap_x;
            if (unsigned(x) >= unsigned(p.w)) continue;
            C value[VEC];
            load_values<T, VEC>(value, data + packet_at<VEC>(p, at, p.h, p.w, y, x));
#pragma unroll
            for (int j = 0; j < VEC; ++j) best[j] = IS_MAX ? larger(best[j], value[j]) : C(best[j] + value[j]);
        }
    }
    store_values<T, VEC>(out + int64_t(i) * VEC, best);
}

/// Sets found[j] to the place in its plane of the first largest element of a window, for each channel.
template <class T, int VEC>
__device__ void largest_of(const Pool& p, const Spot& at, const T* data, int row, int column, int (&found)[VEC]) {
    using C = computed<T>;
    const int top = row * p.step_y - p.top, left = column * p.step_x - p.left;
    C best[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) found[j] = -1, best[j] = 0;
    for (int a = 0; a < p.kh; ++a) {
        const int y = top + a * p.gap_y;
        if (unsigned(y) >= unsigned(p.h)) continue;
        for (int b = 0; b < p.kw; ++b) {
            const int x = left + b * p.gap_x;
            if (unsigned(x) >= unsigned(p.w)) continue;
            C value[VEC];
            load_values<T, VEC>(value, data + packet_at<VEC>(p, at, p.h, p.w, y, x));
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (found[j] < 0 || value[j] > best[j] || (value[j] != value[j] && best[j] == best[j]))
                    found[j] = y * p.w + x, best[j] = value[j];
        }
    }
}

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS)
    last_indices_kernel(const __grid_constant__ Pool p, Packet<int32_t, VEC>* out, const T* data) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Spot at = spot_of<VEC>(p, i);
    int found[VEC];
    largest_of<T, VEC>(p, at, data, at.y, at.x, found);
    Packet<int32_t, VEC> packet;
#pragma unroll
    for (int j = 0; j < VEC; ++j) packet.v[j] = found[j];
    out[i] = packet;
}

/// Each element's sum of the gradients of the windows that see it (IS_MAX: whose largest it is, as `found` says).
template <class T, bool IS_MAX, int VEC>
__global__ void __launch_bounds__(THREADS) last_grad_kernel(const __grid_constant__ Pool p, T* out, const T* grad,
                                                            const Packet<int32_t, VEC>* found) {
    using C = computed<T>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Spot at = spot_of<VEC>(p, i);
    const int2 rows = windows_of(at.y, p.top, p.kh, p.gap_y, p.by_step_y, p.rows);
    const int2 columns = windows_of(at.x, p.left, p.kw, p.gap_x, p.by_step_x, p.columns);
    C sum[VEC] = {};
    for (int row = rows.x; row <= rows.y; ++row) {
        if (!IS_MAX && p.gap_y > 1 && (at.y + p.top - row * p.step_y) % p.gap_y) continue;
        for (int column = columns.x; column <= columns.y; ++column) {
            if (!IS_MAX && p.gap_x > 1 && (at.x + p.left - column * p.step_x) % p.gap_x) continue;
            const int64_t place = packet_at<VEC>(p, at, p.rows, p.columns, row, column);
            C g[VEC];
            load_values<T, VEC>(g, grad + place);
            Packet<int32_t, VEC> largest{};
            if constexpr (IS_MAX) largest = found[place / VEC];
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (!IS_MAX || largest.v[j] == at.y * p.w + at.x) sum[j] += g[j];
        }
    }
    store_values<T, VEC>(out + int64_t(i) * VEC, sum);
}

/// The same for windows of 2 * 2, side by side: a thread for each, or for what is left over at the edges.
template <class T, bool IS_MAX, int VEC>
__global__ void __launch_bounds__(THREADS) last_halves_kernel(const __grid_constant__ Pool p, T* out, const T* grad,
                                                              const T* data) {
    using C = computed<T>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.count) return;
    const Spot at = spot_of<VEC>(p, i);
    const bool is_window = at.y < p.rows && at.x < p.columns;
    C g[VEC] = {};
    int first[VEC] = {};
    if (is_window) {
        load_values<T, VEC>(g, grad + packet_at<VEC>(p, at, p.rows, p.columns, at.y, at.x));
        if constexpr (IS_MAX) {
            C best[VEC], x[4][VEC];
#pragma unroll
            for (int k = 0; k < 4; ++k)
                load_values<T, VEC>(x[k], data + packet_at<VEC>(p, at, p.h, p.w, 2 * at.y + k / 2, 2 * at.x + k % 2));
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                best[j] = x[0][j];
#pragma unroll
                for (int k = 1; k < 4; ++k)
                    if (x[k][j] > best[j] || (x[k][j] != x[k][j] && best[j] == best[j])) first[j] = k, best[j] = x[k][j];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const int y = 2 * at.y + k / 2, x = 2 * at.x + k % 2;
        if (y >= p.h || x >= p.w) continue;
        C to[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) to[j] = !IS_MAX || first[j] == k ? g[j] : C(0);
        store_values<T, VEC>(out + packet_at<VEC>(p, at, p.h, p.w, y, x), to);
    }
}

bool lies_last(const Operand& o) {
    const int64_t wanted[] = {o.shape[1] * o.shape[2] * o.shape[3], 1, o.shape[1] * o.shape[3], o.shape[1]};
    for (size_t d = 0; d < 4; ++d)
        if (o.shape[d] > 1 && o.strides[d] != wanted[d]) return false;
    return true;
}

bool all_lie_last(const Request& r) {
    for (const Operand& o : r.operands)
        if (!lies_last(o)) return false;
    return true;
}

/// Calls launch(packets of VEC channels, VEC as a type) for operands at these addresses.
template <class T, class Launch>
void by_packets(int64_t channels, std::initializer_list<const void*> data, const Launch& launch) {
    constexpr int VEC = PER_16_BYTES<T>;
    bool fits = channels % VEC == 0;
    for (const void* each : data) fits = fits && is_aligned(each, 16);
    if (fits) launch(uint32_t(channels / VEC), std::integral_constant<int, VEC>{});
    else launch(uint32_t(channels), std::integral_constant<int, 1>{});
}

/// For threads of packets of `p`'s places.
unsigned blocks_of(Pool& p, int64_t images, uint32_t packets) {
    p.channels = FastDivide(packets);
    p.count = uint32_t(images * packets * p.down.divisor * p.across.divisor);
    return unsigned(ceil_div(p.count, THREADS));
}

template <class T>
constexpr bool IS_POOLED_LAST = std::is_same_v<T, float> || std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

}  // namespace

template <class T, bool IS_MAX>
KernelPtr pooled_last(const Request& r) {
    if constexpr (IS_POOLED_LAST<T>) {
        if (!all_lie_last(r)) return nullptr;
        const Operand &out = r.operands[0], &in = r.operands[1];
        const Pool fixed = pool_of(in, out, r.attrs, out.shape[2], out.shape[3]);
        const int64_t images = out.shape[0], channels = out.shape[1];
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            if (!fixed.count) return;
            by_packets<T>(channels, {data[0], data[1]}, [&]<int VEC>(uint32_t packets, std::integral_constant<int, VEC>) {
                Pool p = fixed;
                const unsigned blocks = blocks_of(p, images, packets);
                launch_kernel("pooling", last_kernel<T, IS_MAX, VEC>, blocks, THREADS, p, reinterpret_cast<T*>(data[0]),
                              reinterpret_cast<const T*>(data[1]));
            });
        });
    }
    return nullptr;
}

template <class T, bool IS_MAX>
KernelPtr pooled_last_grad(const Request& r) {
    if constexpr (IS_POOLED_LAST<T>) {
        if (!all_lie_last(r)) return nullptr;
        const Operand &out = r.operands[0], &grad = r.operands[1];
        Pool fixed = pool_of(out, grad, r.attrs, out.shape[2], out.shape[3]);
        const bool halves = are_halves(fixed);
        if (IS_MAX && !halves && !all_see(fixed)) return nullptr;
        if (halves) fixed = pool_of(out, grad, r.attrs, (out.shape[2] + 1) / 2, (out.shape[3] + 1) / 2);
        const Pool fixed_windows = pool_of(out, grad, r.attrs, grad.shape[2], grad.shape[3]);
        const int64_t images = out.shape[0], channels = out.shape[1];
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            if (!fixed.count) return;
            const char *input = IS_MAX ? data[2] : data[1], *what = "a gradient of pooling";
            T* const to = reinterpret_cast<T*>(data[0]);
            const T *const from = reinterpret_cast<const T*>(data[1]), *const x = reinterpret_cast<const T*>(input);
            by_packets<T>(channels, {to, from, x}, [&]<int VEC>(uint32_t packets, std::integral_constant<int, VEC>) {
                Pool p = fixed, windows = fixed_windows;
                const unsigned blocks = blocks_of(p, images, packets);
                const unsigned window_blocks = blocks_of(windows, images, packets);
                if (halves) {
                    launch_kernel(what, last_halves_kernel<T, IS_MAX, VEC>, blocks, THREADS, p, to, from, x);
                    return;
                }
                const Scratch<Packet<int32_t, VEC>> found(IS_MAX ? std::max(windows.count, 1u) : 1);
                if (IS_MAX && windows.count)
                    launch_kernel(what, last_indices_kernel<T, VEC>, window_blocks, THREADS, windows, found.data(), x);
                launch_kernel(what, last_grad_kernel<T, IS_MAX, VEC>, blocks, THREADS, p, to, from, found.data());
            });
        });
    }
    return nullptr;
}

#define NORCH_LAST(T)                                            \
    template KernelPtr pooled_last<T, true>(const Request&);      \
    template KernelPtr pooled_last<T, false>(const Request&);     \
    template KernelPtr pooled_last_grad<T, true>(const Request&); \
    template KernelPtr pooled_last_grad<T, false>(const Request&);
NORCH_LAST(float)
NORCH_LAST(double)
NORCH_LAST(__half)
NORCH_LAST(__nv_bfloat16)
#undef NORCH_LAST

}  // namespace norch::nn
