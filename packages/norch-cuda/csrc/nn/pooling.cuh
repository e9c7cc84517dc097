// What the kernels of pooling share: windows, and which of them see an element.
#pragma once

#include <limits>

#include "runtime/device.cuh"

namespace norch::nn {

/// Windows over planes of h * w elements of an operand (n, c, h, w), rows * columns of them. Strides count elements.
struct Pool {
    FastDivide across, down, channels;  // of the output that the threads are for
    FastDivide by_step_y, by_step_x;
    uint32_t count;
    int kh, kw, step_y, step_x, gap_y, gap_x, top, left, h, w, rows, columns;
};

/// The larger; NaN wins.
template <class C>
__device__ inline C larger(C best, C x) {
    return x > best || x != x ? x : best;
}

template <class C>
__host__ __device__ inline C lowest() {
    using Limits = std::numeric_limits<C>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
}

/// The windows of which some element is number `at` of its row or column: from `first` to `last`.
__device__ inline int2 windows_of(int at, int before, int k, int gap, const FastDivide& step, int count) {
    const int end = at + before, begin = end - (k - 1) * gap;
    const int first = begin <= 0 ? 0 : int(step.quotient(uint32_t(begin) + step.divisor - 1));
    return {first, min(int(step.quotient(uint32_t(end))), count - 1)};
}

/// `whole` (n, c, h, w) and `pooled` (n, c, rows, columns); the threads are for planes of across * down elements.
inline Pool pool_of(const Operand& whole, const Operand& pooled, const Attrs& attrs, int64_t down, int64_t across) {
    const auto &windows = attrs.integers("windows"), &pads = attrs.integers("pads");
    Pool p;
    p.kh = int(windows[0]), p.kw = int(windows[1]), p.step_y = int(windows[2]), p.step_x = int(windows[3]);
    p.gap_y = int(windows[4]), p.gap_x = int(windows[5]), p.top = int(pads[0]), p.left = int(pads[2]);
    p.by_step_y = FastDivide(uint32_t(p.step_y)), p.by_step_x = FastDivide(uint32_t(p.step_x));
    p.h = int(whole.shape[2]), p.w = int(whole.shape[3]);
    p.rows = int(pooled.shape[2]), p.columns = int(pooled.shape[3]);
    p.across = FastDivide(uint32_t(std::max<int64_t>(across, 1)));
    p.down = FastDivide(uint32_t(std::max<int64_t>(down, 1)));
    p.channels = FastDivide(uint32_t(std::max<int64_t>(whole.shape[1], 1)));
    p.count = uint32_t(whole.shape[0] * whole.shape[1] * down * across);
    return p;
}

/// Whether each window along a dim has an element that is not padding.
inline bool all_see(int64_t size, int64_t count, int64_t k, int64_t step, int64_t gap, int64_t before) {
    for (int64_t at = 0; at < count; ++at) {
        bool sees = false;
        for (int64_t i = 0; i < k && !sees; ++i) {
            const int64_t place = at * step - before + i * gap;
            sees = place >= 0 && place < size;
        }
        if (!sees) return false;
    }
    return true;
}

/// Windows of 2 * 2 side by side.
inline bool are_halves(const Pool& p) {
    return p.kh == 2 && p.kw == 2 && p.step_y == 2 && p.step_x == 2 && p.gap_y == 1 && p.gap_x == 1 && !p.top && !p.left &&
           p.rows * 2 <= p.h && p.columns * 2 <= p.w;
}

/// Whether every window sees an element.
inline bool all_see(const Pool& p) {
    return all_see(p.h, p.rows, p.kh, p.step_y, p.gap_y, p.top) && all_see(p.w, p.columns, p.kw, p.step_x, p.gap_x, p.left);
}

/// Of channels that vary fastest, in operands (n, c, h, w) without gaps; null where the layouts are others.
template <class T, bool IS_MAX>
KernelPtr pooled_last(const Request& request);  // pooling_last.cu
template <class T, bool IS_MAX>
KernelPtr pooled_last_grad(const Request& request);

}  // namespace norch::nn
