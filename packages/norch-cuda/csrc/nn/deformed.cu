// deform_columns: the windows of images as columns, of elements that lie where an offset moves them to.
#include <algorithm>

#include "nn/sampling.cuh"
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
    int64_t image[4], offset[4], mask[4];
};

/// A thread for an element of a window in CHANNELS channels.
template <class T>
__global__ void __launch_bounds__(THREADS) deform_kernel(const __grid_constant__ Deformed p, uint32_t threads, T* out,
                                                         const T* image, const T* offset, const T* mask) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    uint32_t rest = f;
    const auto next = [&rest](const FastDivide& by) {
        const uint32_t quotient = by.quotient(rest), at = rest - quotient * by.divisor;
        rest = quotient;
        return int(at);
    };
    const int x = next(p.x), y = next(p.y), tap = next(p.taps), group = next(p.groups), part = next(p.parts);
    const int n = int(rest), row = tap / p.width, column = tap - row * p.width;
    const int shift = part * int(p.taps.divisor) + tap, first = group * CHANNELS;
    offset += n * p.offset[0] + 2 * shift * p.offset[1] + y * p.offset[2] + x * p.offset[3];
    const T down = offset[0] + T(row * p.gap[0]) + T(y * p.step[0] - p.pad[0]);
    const T aside = offset[p.offset[1]] + T(column * p.gap[1]) + T(x * p.step[1] - p.pad[1]);
    T weight[4] = {};
    int64_t at[4] = {};
    bool is_in[4] = {};
    if (down > T(-1) && down < T(p.size[0]) && aside > T(-1) && aside < T(p.size[1])) {
        const T top = floor(down), left = floor(aside), below = down - top, beside = aside - left;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at_y = int(top) + i / 2, at_x = int(left) + i % 2;
            is_in[i] = at_y >= 0 && at_y < p.size[0] && at_x >= 0 && at_x < p.size[1];
            weight[i] = (i / 2 ? below : T(1) - below) * (i % 2 ? beside : T(1) - beside);
            at[i] = is_in[i] ? at_y * p.image[2] + at_x * p.image[3] : 0;
        }
    }
    const T factor = mask ? mask[n * p.mask[0] + shift * p.mask[1] + y * p.mask[2] + x * p.mask[3]] : T(1);
    const int channel = part * p.channels + first, last = min(CHANNELS, p.channels - first);
    image += n * p.image[0] + channel * p.image[1];
    const int64_t step = int64_t(p.taps.divisor) * p.places;
    out += (int64_t(n) * p.parts.divisor * p.channels + channel) * step + int64_t(tap) * p.places + y * int(p.x.divisor) + x;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c, image += p.image[1], out += step) {
        if (c >= last) break;
        T sum = T(0);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += weight[i] * (is_in[i] ? image[at[i]] : T(0));
        *out = sum * factor;
    }
}

KernelPtr deform_columns(const Request& r) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
    const Operand &out = r.operands[0], &image = r.operands[1], &offset = r.operands[2];
    const bool has_mask = r.operands.size() == 4;
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype || operand.numel() > LIMIT) return nullptr;
    if (!out.is_contiguous()) return nullptr;
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    const auto &kernel = r.attrs.integers("kernel"), &stride = r.attrs.integers("stride");
    const auto &padding = r.attrs.integers("padding"), &dilation = r.attrs.integers("dilation");
    const int64_t taps = kernel[0] * kernel[1], parts = offset.shape[1] / (2 * taps), channels = image.shape[1] / parts;
    const int64_t groups = ceil_div(channels, CHANNELS), places = offset.shape[2] * offset.shape[3];
    const int64_t threads = image.shape[0] * parts * groups * taps * places;
    if (threads > LIMIT) return nullptr;
    Deformed p = {FastDivide(uint32_t(offset.shape[3])), FastDivide(uint32_t(offset.shape[2])), FastDivide(uint32_t(taps)),
                  FastDivide(uint32_t(groups)), FastDivide(uint32_t(parts))};
    p.width = int(kernel[1]), p.channels = int(channels), p.places = int(places);
    for (int d = 0; d < 2; ++d) {
        p.step[d] = int(stride[d]), p.gap[d] = int(dilation[d]), p.pad[d] = int(padding[d]);
        p.size[d] = int(image.shape[2 + d]);
    }
    for (int d = 0; d < 4; ++d) {
        p.image[d] = image.strides[d], p.offset[d] = offset.strides[d];
        if (has_mask) p.mask[d] = r.operands[3].strides[d];
    }
    auto with_type = [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
            launch_kernel("deform_columns", deform_kernel<T>, unsigned(ceil_div(threads, THREADS)), THREADS, p,
                          uint32_t(threads), at(0), at(1), at(2), has_mask ? at(3) : nullptr);
        });
    };
    if (out.dtype == DType::f32) return with_type(Tag<float>{});
    return out.dtype == DType::f64 ? with_type(Tag<double>{}) : nullptr;
}

}  // namespace deformed
}  // namespace

void add_deformed(Registry& registry) { registry["deform_columns"] = deformed::deform_columns; }

}  // namespace norch::nn
