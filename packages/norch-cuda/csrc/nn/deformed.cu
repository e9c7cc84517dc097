// deform_columns: the windows of images as columns, of elements that lie where an offset moves them to; and the gradients
// of the offset and of what the elements are multiplied by.
#include <algorithm>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace deformed {

constexpr int CHANNELS = 8;  // of a thread

/// Strides count elements. Parts of the channels have offsets of their own, and groups of CHANNELS channels each.
struct Deformed {
    FastDivide x, y, taps, groups, parts;
    int width;             // of a window
    int step[2], gap[2], pad[2], size[2];
    int channels, places;  // of a part; of an image's result
    int64_t image[4], offset[4], mask[4], grad[3];

    Deformed(const Request& r, const Operand& images, const Operand& offsets, const Operand* factors) {
        const auto &kernel = r.attrs.integers("kernel"), &stride = r.attrs.integers("stride");
        const auto &padding = r.attrs.integers("padding"), &dilation = r.attrs.integers("dilation");
        const int64_t count = kernel[0] * kernel[1], number = offsets.shape[1] / (2 * count);
        width = int(kernel[1]), channels = int(images.shape[1] / number);
        places = int(offsets.shape[2] * offsets.shape[3]);
        x = FastDivide(uint32_t(offsets.shape[3])), y = FastDivide(uint32_t(offsets.shape[2]));
        taps = FastDivide(uint32_t(count)), parts = FastDivide(uint32_t(number));
        groups = FastDivide(uint32_t(std::max<int64_t>(ceil_div(channels, CHANNELS), 1)));
        for (int d = 0; d < 2; ++d) {
            step[d] = int(stride[d]), gap[d] = int(dilation[d]), pad[d] = int(padding[d]);
            size[d] = int(images.shape[2 + d]);
        }
        for (int d = 0; d < 4; ++d) {
            image[d] = images.strides[d], offset[d] = offsets.strides[d];
            mask[d] = factors ? factors->strides[d] : 0;
        }
    }
    __device__ int shift(int part, int tap) const { return part * int(taps.divisor) + tap; }
    template <class T>
    __device__ T factor(const T* masks, int n, int shift, int at_y, int at_x) const {
        return masks ? masks[n * mask[0] + shift * mask[1] + at_y * mask[2] + at_x * mask[3]] : T(1);
    }
};

/// Where an element of a window lies: its four neighbours, of which bit 0 says right and bit 1 below.
template <class T>
struct Neighbours {
    T part[2];  // how far it is below and to the right of the first
    int64_t at[4];
    bool is_in[4];

    __device__ Neighbours(const Deformed& p, const T* offset, int n, int shift, int tap, int y, int x) : part(), at(), is_in() {
        offset += n * p.offset[0] + 2 * shift * p.offset[1] + y * p.offset[2] + x * p.offset[3];
        const int row = tap / p.width, column = tap - row * p.width;
        const T down = offset[0] + T(row * p.gap[0]) + T(y * p.step[0] - p.pad[0]);
        const T aside = offset[p.offset[1]] + T(column * p.gap[1]) + T(x * p.step[1] - p.pad[1]);
        if (!(down >= T(-1) && down < T(p.size[0]) && aside >= T(-1) && aside < T(p.size[1]))) return;
        const T top = floor(down), left = floor(aside);
        part[0] = down - top, part[1] = aside - left;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at_y = int(top) + i / 2, at_x = int(left) + i % 2;
            is_in[i] = at_y >= 0 && at_y < p.size[0] && at_x >= 0 && at_x < p.size[1];
            at[i] = is_in[i] ? at_y * p.image[2] + at_x * p.image[3] : 0;
        }
    }
    /// Of the rows and of the columns.
    __device__ T share(int d, bool is_second) const { return is_second ? part[d] : T(1) - part[d]; }
    __device__ T weight(int i) const { return share(0, i / 2) * share(1, i % 2); }
};

/// A thread for an element of a window in CHANNELS channels.
template <class T>
__global__ void __launch_bounds__(THREADS) deform_kernel(const __grid_constant__ Deformed p, uint32_t threads, T* out,
                                                         const T* image, const T* offset, const T* mask) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    Digits digits{f};
    const int x = digits.next(p.x), y = digits.next(p.y), tap = digits.next(p.taps);
    const int first = digits.next(p.groups) * CHANNELS, part = digits.next(p.parts), n = int(digits.rest);
    const int shift = p.shift(part, tap);
    const Neighbours<T> near(p, offset, n, shift, tap, y, x);
    const T factor = p.factor(mask, n, shift, y, x);
    const int channel = part * p.channels + first, last = min(CHANNELS, p.channels - first);
    image += n * p.image[0] + channel * p.image[1];
    const int64_t step = int64_t(p.taps.divisor) * p.places;
    out += (int64_t(n) * p.parts.divisor * p.channels + channel) * step + int64_t(tap) * p.places + y * int(p.x.divisor) + x;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c, image += p.image[1], out += step) {
        if (c >= last) break;
        T sum = T(0);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += near.weight(i) * (near.is_in[i] ? image[near.at[i]] : T(0));
        *out = sum * factor;
    }
}

/// A thread for an element of a window in all channels of a part.
template <class T>
__global__ void __launch_bounds__(THREADS)
    deform_offset_grad(const __grid_constant__ Deformed p, uint32_t threads, T* by_offset, T* by_mask, const T* grad,
                       const T* image, const T* offset, const T* mask) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    Digits digits{f};
    const int x = digits.next(p.x), y = digits.next(p.y), tap = digits.next(p.taps), part = digits.next(p.parts);
    const int n = int(digits.rest), shift = p.shift(part, tap), place = y * int(p.x.divisor) + x;
    const Neighbours<T> near(p, offset, n, shift, tap, y, x);
    image += n * p.image[0] + part * p.channels * p.image[1];
    grad += n * p.grad[0] + (int64_t(part) * p.channels * p.taps.divisor + tap) * p.grad[1] + place * p.grad[2];
    const int64_t step = p.taps.divisor * p.grad[1];
    T sums[4] = {};
#pragma unroll 4
    for (int c = 0; c < p.channels; ++c, image += p.image[1], grad += step) {
        const T g = *grad;
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += g * (near.is_in[i] ? image[near.at[i]] : T(0));
    }
    T down = T(0), aside = T(0), all = T(0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        down += (i / 2 ? sums[i] : -sums[i]) * near.share(1, i % 2);
        aside += (i % 2 ? sums[i] : -sums[i]) * near.share(0, i / 2);
        all += sums[i] * near.weight(i);
    }
    const T factor = p.factor(mask, n, shift, y, x);
    const int64_t line = int64_t(n) * p.parts.divisor * p.taps.divisor + shift;
    by_offset += 2 * line * p.places + place;
    by_offset[0] = down * factor;
    by_offset[p.places] = aside * factor;
    if (by_mask) by_mask[line * p.places + place] = all;
}

// --- Kernels --------------------------------------------------------------------------------------------------------

constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;

/// make(Tag<T>): of operands that are all float32 or all float64, and outputs without gaps.
template <class F>
KernelPtr floating(const Request& r, size_t outputs, const F& make) {
    const DType dtype = r.operands[0].dtype;
    for (const Operand& operand : r.operands)
        if (operand.dtype != dtype || operand.numel() > LIMIT) return nullptr;
    for (size_t i = 0; i < outputs; ++i)
        if (!r.operands[i].is_contiguous()) return nullptr;
    if (dtype == DType::f32) return make(Tag<float>{});
    return dtype == DType::f64 ? make(Tag<double>{}) : nullptr;
}

/// columns, image, offset, (mask).
KernelPtr deform_columns(const Request& r) {
    const Operand &image = r.operands[1], &offset = r.operands[2];
    const bool has_mask = r.operands.size() == 4;
    return floating(r, 1, [&]<class T>(Tag<T>) -> KernelPtr {
        if (r.operands[0].numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
        const Deformed p(r, image, offset, has_mask ? &r.operands[3] : nullptr);
        const int64_t threads = offset.numel() / 2 * p.groups.divisor;
        if (threads > LIMIT) return nullptr;
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
            launch_kernel("deform_columns", deform_kernel<T>, unsigned(ceil_div(threads, THREADS)), THREADS, p,
                          uint32_t(threads), at(0), at(1), at(2), has_mask ? at(3) : nullptr);
        });
    });
}

/// The gradients of the offset and, where there is one, of the mask; that of the columns, image, offset, (mask).
KernelPtr deform_columns_offset_grad(const Request& r) {
    const bool has_mask = r.operands.size() == 6;
    const int first = has_mask ? 2 : 1;
    const Operand &grad = r.operands[first], &image = r.operands[first + 1], &offset = r.operands[first + 2];
    return floating(r, first, [&]<class T>(Tag<T>) -> KernelPtr {
        if (offset.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
        if (image.shape[1] == 0) return nullptr;
        Deformed p(r, image, offset, has_mask ? &r.operands[5] : nullptr);
        std::copy_n(grad.strides.begin(), 3, p.grad);
        const int64_t threads = offset.numel() / 2;
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
            launch_kernel("deform_columns's gradient", deform_offset_grad<T>, unsigned(ceil_div(threads, THREADS)), THREADS, p,
                          uint32_t(threads), at(0), has_mask ? at(1) : nullptr, at(first), at(first + 1), at(first + 2),
                          has_mask ? at(5) : nullptr);
        });
    });
}

}  // namespace deformed
}  // namespace

void add_deformed(Registry& registry) {
    registry["deform_columns"] = deformed::deform_columns;
    registry["deform_columns_offset_grad"] = deformed::deform_columns_offset_grad;
}

}  // namespace norch::nn
