// im2col: the windows of images as columns; col2im: columns added up in their places, which each element gathers.
#include <algorithm>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace folding {

/// Windows of images (n, c, h, w), and columns (n, c * i * j, y * x).
struct Fold {
    FastDivide first, second, third, channels;  // what threads are for, innermost first
    int h, w, kernel[2], dilation[2], padding[2], count[2];
    FastDivide stride[2];
    int64_t image[4], column[3];  // strides

    Fold(const Request& r, const Operand& x, const Operand& columns) : h(int(x.shape[2])), w(int(x.shape[3])) {
        const auto &kernels = r.attrs.integers("kernel"), &dilations = r.attrs.integers("dilation");
        const auto &paddings = r.attrs.integers("padding"), &strides = r.attrs.integers("stride");
        for (int d = 0; d < 2; ++d) {
            kernel[d] = int(kernels[d]), dilation[d] = int(dilations[d]), padding[d] = int(paddings[d]);
            stride[d] = FastDivide(uint32_t(strides[d]));
            count[d] = int((x.shape[2 + d] + 2 * paddings[d] - dilations[d] * (kernels[d] - 1) - 1) / strides[d]) + 1;
        }
        for (int d = 0; d < 4; ++d) image[d] = x.strides[d];
        for (int d = 0; d < 3; ++d) column[d] = columns.strides[d];
        channels = FastDivide(uint32_t(x.shape[1]));
    }
};

/// A thread for a row of a window of a channel.
template <class P>
__global__ void __launch_bounds__(THREADS) im2col_kernel(const __grid_constant__ Fold p, uint32_t threads, P* out,
                                                         const P* image) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    Digits digits{f};
    const int x = digits.next(p.first), y = digits.next(p.second), i = digits.next(p.third), c = digits.next(p.channels);
    const uint32_t n = digits.rest;
    const int row = y * int(p.stride[0].divisor) + i * p.dilation[0] - p.padding[0];
    int column = x * int(p.stride[1].divisor) - p.padding[1];
    const bool is_in = row >= 0 && row < p.h;
    image += n * p.image[0] + c * p.image[1] + (is_in ? row * p.image[2] : 0);
    out += n * p.column[0] + int64_t(c * p.kernel[0] + i) * p.kernel[1] * p.column[1] +
           int64_t(y * int(p.first.divisor) + x) * p.column[2];
#pragma unroll 4
    for (int j = 0; j < p.kernel[1]; ++j, column += p.dilation[1], out += p.column[1])
        *out = is_in && column >= 0 && column < p.w ? image[column * p.image[3]] : P(0);
}

/// A thread for an element of the images.
template <class T>
__global__ void __launch_bounds__(THREADS) col2im_kernel(const __grid_constant__ Fold p, uint32_t threads, T* out,
                                                         const T* columns) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    Digits digits{f};
    const int column = digits.next(p.first), row = digits.next(p.second), c = digits.next(p.channels);
    const uint32_t n = digits.rest;
    columns += n * p.column[0] + int64_t(c) * p.kernel[0] * p.kernel[1] * p.column[1];
    computed<T> sum = 0;
    // Which window has the element at place k along dim d, -1 for none.
    const auto window = [&](int d, int at, int k) {
        const int start = at + p.padding[d] - k * p.dilation[d];
        if (start < 0) return -1;
        const int found = int(p.stride[d].quotient(start));
        return found * int(p.stride[d].divisor) == start && found < p.count[d] ? found : -1;
    };
    for (int i = 0; i < p.kernel[0]; ++i) {
        const int y = window(0, row, i);
        if (y < 0) continue;
        const T* from = columns + int64_t(i) * p.kernel[1] * p.column[1] + int64_t(y) * p.count[1] * p.column[2];
#pragma unroll 4
        for (int j = 0; j < p.kernel[1]; ++j, from += p.column[1]) {
            const int x = window(1, column, j);
            if (x >= 0) sum += upcast(from[x * p.column[2]]);
        }
    }
    out[n * p.image[0] + c * p.image[1] + row * p.image[2] + column * p.image[3]] = downcast<T>(sum);
}

FastDivide divisor(int64_t n) { return FastDivide(uint32_t(std::max<int64_t>(n, 1))); }

bool is_usual(const Request& r) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
    const Operand &out = r.operands[0], &x = r.operands[1];
    return out.dtype == x.dtype && out.numel() <= LIMIT && x.numel() <= LIMIT;
}

KernelPtr im2col(const Request& r) {
    const Operand &out = r.operands[0], &x = r.operands[1];
    if (!is_usual(r)) return nullptr;
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    Fold p(r, x, out);
    p.first = divisor(p.count[1]), p.second = divisor(p.count[0]), p.third = divisor(p.kernel[0]);
    const uint32_t threads = uint32_t(out.numel() / p.kernel[1]);
    const int64_t itemsize = size_of(out.dtype);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        visit_bits(itemsize, [&]<class P>(Tag<P>) {
            launch_kernel("im2col", im2col_kernel<P>, unsigned(ceil_div(threads, THREADS)), THREADS, p, threads,
                          reinterpret_cast<P*>(data[0]), reinterpret_cast<const P*>(data[1]));
        });
    });
}

KernelPtr col2im(const Request& r) {
    const Operand &out = r.operands[0], &columns = r.operands[1];
    if (!is_usual(r) || !is_floating(out.dtype)) return nullptr;
    const uint32_t threads = uint32_t(out.numel());
    if (threads == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    Fold p(r, out, columns);
    p.first = divisor(p.w), p.second = divisor(p.h);
    return visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            launch_kernel("col2im", col2im_kernel<T>, unsigned(ceil_div(threads, THREADS)), THREADS, p, threads,
                          reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]));
        });
    });
}

}  // namespace folding
}  // namespace

void add_folding(Registry& registry) {
    registry["im2col"] = folding::im2col;
    registry["col2im"] = folding::col2im;
}

}  // namespace norch::nn
