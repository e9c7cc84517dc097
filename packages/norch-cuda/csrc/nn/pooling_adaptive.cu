// adaptive_max_indices: where the first largest element of each part of an image is. Some lanes look through a part.
#include <algorithm>
#include <climits>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {

struct Parts {
    FastDivide columns, rows;  // of parts
    int h, w, lanes;           // lanes: of a part, a power of 2
    int64_t row, column;       // strides of the images
    FastDivide size[2];        // of what the images lie along, the last first
    int64_t stride[3];
    uint32_t count;            // parts in all
};

template <class C>
__device__ inline bool is_before(C a, int i, C b, int j) {
    if (a != a) return b == b || i < j;
    return a > b || (a == b && i < j);
}

template <class T>
__global__ void __launch_bounds__(THREADS) adaptive_max_kernel(const __grid_constant__ Parts p, int64_t* out, const T* x) {
    const uint32_t thread = blockIdx.x * THREADS + threadIdx.x, part = thread / p.lanes;
    const uint32_t i = min(part, p.count - 1);  // warps stay together
    uint32_t line = p.columns.quotient(i);
    const int column = int(i - line * p.columns.divisor);
    uint32_t image = p.rows.quotient(line);
    const int row = int(line - image * p.rows.divisor);
#pragma unroll
    for (int d = 0; d < 2; ++d) {
        const uint32_t rest = p.size[d].quotient(image);
        x += (image - rest * p.size[d].divisor) * p.stride[d];
        image = rest;
    }
    x += image * p.stride[2];
    const auto first = [](const FastDivide& parts, int i, int n) { return int(parts.quotient(i * n)); };
    const auto end = [](const FastDivide& parts, int i, int n) { return int(parts.quotient((i + 1) * n - 1)) + 1; };
    const int left = first(p.columns, column, p.w), width = end(p.columns, column, p.w) - left;
    const int top = first(p.rows, row, p.h), number = width * (end(p.rows, row, p.h) - top);
    computed<T> most = 0;
    int found = INT_MAX;
    // Of lane after lane an element of the part, row by row.
    int at = thread % p.lanes, y = at / width, z = at - y * width;
    const int down = p.lanes / width, aside = p.lanes - down * width;
#pragma unroll 4
    for (; at < number; at += p.lanes) {
        const computed<T> value = upcast(x[(top + y) * p.row + (left + z) * p.column]);
        if (found == INT_MAX || is_before(value, 1, most, 0)) most = value, found = (top + y) * p.w + left + z;
        y += down, z += aside;
        if (z >= width) z -= width, ++y;
    }
    for (int step = p.lanes / 2; step > 0; step /= 2) {
        const computed<T> other = __shfl_xor_sync(~0u, most, step);
        const int theirs = __shfl_xor_sync(~0u, found, step);
        if (theirs != INT_MAX && (found == INT_MAX || is_before(other, theirs, most, found))) most = other, found = theirs;
    }
    if (part < p.count && thread % p.lanes == 0) out[part] = found;
}

KernelPtr adaptive_max_indices(const Request& r) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
    const Operand &out = r.operands[0], &x = r.operands[1];
    const int last = x.ndim() - 1;
    if (!is_floating(x.dtype) || !out.is_contiguous() || last < 1 || last > 4) return nullptr;
    const int64_t h = x.shape[last - 1], w = x.shape[last], rows = out.shape[last - 1], columns = out.shape[last];
    if (h * w > LIMIT || h * rows > LIMIT || w * columns > LIMIT || out.numel() == 0 || x.numel() == 0) return nullptr;
    Parts p{FastDivide(uint32_t(columns)), FastDivide(uint32_t(rows)), int(h), int(w), 1, x.strides[last - 1],
            x.strides[last], {FastDivide(1), FastDivide(1)}, {}, uint32_t(out.numel())};
    for (int d = 0; d < 3 && last - 2 - d >= 0; ++d) {
        if (d < 2) p.size[d] = FastDivide(uint32_t(x.shape[last - 2 - d]));
        p.stride[d] = x.strides[last - 2 - d];
    }
    const int64_t elements = (h / rows + 1) * (w / columns + 1);  // of a part, about
    while (p.lanes < 32 && p.lanes * 4 < elements) p.lanes *= 2;
    const int64_t threads = out.numel() * p.lanes;
    if (threads > LIMIT) return nullptr;
    return visit_floating_device(x.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            launch_kernel("adaptive_max_pool", adaptive_max_kernel<T>, unsigned(ceil_div(threads, THREADS)), THREADS, p,
                          reinterpret_cast<int64_t*>(data[0]), reinterpret_cast<const T*>(data[1]));
        });
    });
}

}  // namespace

void add_adaptive_pooling(Registry& registry) { registry["adaptive_max_indices"] = adaptive_max_indices; }

}  // namespace norch::nn
