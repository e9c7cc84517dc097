// roi_align: means of samples between pixels, and its gradient, the same in every run: a block has a tile of an image and
// adds up what the regions that reach it give, in their order.
#include "nn/sampling.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace regions {

constexpr int REGION_CHANNELS = 8;  // of a thread

struct Regions {
    int images, channels, h, w, ratio, op;
    FastDivide columns, rows, groups;  // of bins; of channels
    int64_t image[4], box[2];            // strides
    double scale, offset;
    bool is_aligned;
};

/// The samples of a bin along a dim.
template <class T>
struct Samples {
    T first, step, count;

    __device__ Samples(const Regions& r, T low, T high, int bin, int bins) {
        low = sampling::rounded_product(low, T(r.scale)) - T(r.offset);
        T size = sampling::rounded_product(high, T(r.scale)) - T(r.offset) - low;
        if (!r.is_aligned) size = size < T(1) ? T(1) : size;
        step = size / T(bins);
        count = r.ratio > 0 ? T(r.ratio) : ceil(step);
        if (!(count < T(1 << 24))) count = T(0);  // of boxes that are not finite
        first = low + sampling::rounded_product(T(bin), step);
    }
    /// Calls f(before, rest) for each that lies in a dim of n elements, or at most one outside: it is `rest` behind the
    /// element `before`.
    template <class F>
    __device__ void each(int n, const F& f) const {
        for (T i = T(0); i < count; i += T(1)) {
            T at = first + sampling::rounded_product(i + T(0.5), step) / count;
            if (!(at >= T(-1) && at <= T(n))) continue;
            at = at > T(0) ? (at < T(n - 1) ? at : T(n - 1)) : T(0);
            const int before = int(at);
            f(before, at - T(before));
        }
    }
};

/// A thread for REGION_CHANNELS channels of a bin.
template <class T>
__global__ void __launch_bounds__(THREADS) region_means(const __grid_constant__ Regions r, uint32_t threads, T* out,
                                                        const T* image, const T* boxes, const ErrorSink sink) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads) return;
    Digits digits{f};
    const int column = digits.next(r.columns), row = digits.next(r.rows);
    const int first = digits.next(r.groups) * REGION_CHANNELS;
    const uint32_t region = digits.rest;
    boxes += region * r.box[0];
    const T number = boxes[0];
    T sums[REGION_CHANNELS] = {};
    if (!(number > T(-1) && number < T(r.images))) {
        report_index(sink, r.op, int64_t(number), r.images);
    } else {
        image += int(number) * r.image[0] + first * r.image[1];
        const Samples<T> x(r, boxes[r.box[1]], boxes[3 * r.box[1]], column, int(r.columns.divisor));
        const Samples<T> y(r, boxes[2 * r.box[1]], boxes[4 * r.box[1]], row, int(r.rows.divisor));
        y.each(r.h, [&](int top, T down) {
            x.each(r.w, [&](int left, T aside) {
                const T* at = image + top * r.image[2] + left * r.image[3];
                const int64_t below = top + 1 < r.h ? r.image[2] : 0, beside = left + 1 < r.w ? r.image[3] : 0;
                const T above = T(1) - down, near = T(1) - aside;
#pragma unroll
                for (int c = 0; c < REGION_CHANNELS; ++c, at += r.image[1])
                    if (first + c < r.channels)
                        sums[c] += above * (near * at[0] + aside * at[beside]) +
                                   down * (near * at[below] + aside * at[below + beside]);
            });
        });
        const T count = (y.count > T(1) ? y.count : T(1)) * (x.count > T(1) ? x.count : T(1));
#pragma unroll
        for (int c = 0; c < REGION_CHANNELS; ++c) sums[c] /= count;
    }
    out += ((int64_t(region) * r.channels + first) * r.rows.divisor + row) * r.columns.divisor + column;
#pragma unroll
    for (int c = 0; c < REGION_CHANNELS; ++c)
        if (first + c < r.channels) out[int64_t(c) * r.rows.divisor * r.columns.divisor] = sums[c];
}

// --- The gradient ---------------------------------------------------------------------------------------------------

constexpr int TILE_X = 16, TILE_Y = 8, GRAD_CHANNELS = 8;  // of a thread
constexpr int SETS = THREADS / (TILE_X * TILE_Y);           // of channels, in a block
constexpr int AT_ONCE = 4;                                   // regions whose weights are in shared memory
constexpr int WARPS = THREADS / 32;

struct Tiles {
    FastDivide across, down, sets;
    int64_t grad[4];  // strides
    int count;        // regions
};

/// Whether the samples of a region may meet any of n elements from `begin` on, of a dim of `size`.
template <class T>
__device__ inline bool reaches(const Samples<T>& first, int bins, int begin, int n) {
    const T end = first.first + T(bins) * first.step;
    const T low = min(first.first, end), high = max(first.first, end);
    return first.count > T(0) && low - T(2) <= T(begin + n) && high + T(2) >= T(begin);
}

/// What an element gives to the mean of a bin, along one dim.
template <class T>
__device__ inline T weight_of(const Samples<T>& samples, int size, int element) {
    T weight = T(0);
    samples.each(size, [&](int before, T rest) {
        if (before == element) weight += T(1) - rest;
        else if (before + 1 == element) weight += rest;
    });
    return weight / samples.count;
}

/// A thread for GRAD_CHANNELS channels of a pixel.
template <class T>
__global__ void __launch_bounds__(THREADS) region_grads(const __grid_constant__ Regions r, const __grid_constant__ Tiles t,
                                                        T* out, const T* grad, const T* boxes) {
    extern __shared__ char memory[];
    T* const weights = reinterpret_cast<T*>(memory);
    __shared__ int found[THREADS], counts[WARPS];
    const int bins_x = int(r.columns.divisor), bins_y = int(r.rows.divisor);
    const int across = bins_x * TILE_X, down = bins_y * TILE_Y;
    Digits digits{blockIdx.x};
    const int left = digits.next(t.across) * TILE_X, top = digits.next(t.down) * TILE_Y;
    const int set = digits.next(t.sets) * SETS, image = int(digits.rest);
    const int x = int(threadIdx.x) % TILE_X, y = int(threadIdx.x) / TILE_X % TILE_Y;
    const int first = (set + int(threadIdx.x) / (TILE_X * TILE_Y)) * GRAD_CHANNELS;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const bool is_in = left + x < r.w && top + y < r.h;
    T sums[GRAD_CHANNELS] = {};
    for (int start = 0; start < t.count; start += THREADS) {
        const int region = start + int(threadIdx.x);
        bool is_met = false;
        if (region < t.count) {
            const T* box = boxes + region * r.box[0];
            const T number = box[0];
            if (number > T(-1) && number < T(r.images) && int(number) == image)
                is_met = reaches(Samples<T>(r, box[r.box[1]], box[3 * r.box[1]], 0, bins_x), bins_x, left, TILE_X) &&
                         reaches(Samples<T>(r, box[2 * r.box[1]], box[4 * r.box[1]], 0, bins_y), bins_y, top, TILE_Y);
        }
        const unsigned met = __ballot_sync(~0u, is_met);
        __syncthreads();
        if (lane == 0) counts[warp] = __popc(met);
        __syncthreads();
        int before = 0, total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            before += w < warp ? counts[w] : 0;
            total += counts[w];
        }
        if (is_met) found[before + __popc(met & ((1u << lane) - 1))] = region;
        for (int done = 0; done < total; done += AT_ONCE) {
            const int some = min(AT_ONCE, total - done);
            __syncthreads();
            for (int i = int(threadIdx.x); i < some * (across + down); i += THREADS) {
                const int part = i / (across + down), at = i - part * (across + down);
                const T* box = boxes + found[done + part] * r.box[0];
                if (at < across) {
                    const Samples<T> samples(r, box[r.box[1]], box[3 * r.box[1]], at / TILE_X, bins_x);
                    weights[i] = weight_of(samples, r.w, left + at % TILE_X);
                } else {
                    const int row = at - across;
                    const Samples<T> samples(r, box[2 * r.box[1]], box[4 * r.box[1]], row / TILE_Y, bins_y);
                    weights[i] = weight_of(samples, r.h, top + row % TILE_Y);
                }
            }
            __syncthreads();
            if (!is_in) continue;
            for (int part = 0; part < some; ++part) {
                const T* const aside = weights + part * (across + down) + x;
                const T* const along = aside - x + across + y;
                int begin = bins_x, end = 0;
                for (int bin = 0; bin < bins_x; ++bin)
                    if (aside[bin * TILE_X] != T(0)) begin = min(begin, bin), end = bin + 1;
                if (begin >= end) continue;
                const T* const from = grad + found[done + part] * t.grad[0] + first * t.grad[1];
                for (int row = 0; row < bins_y; ++row) {
                    const T of_row = along[row * TILE_Y];
                    if (of_row == T(0)) continue;
                    for (int column = begin; column < end; ++column) {
                        const T weight = of_row * aside[column * TILE_X];
                        const T* const at = from + row * t.grad[2] + column * t.grad[3];
#pragma unroll
                        for (int c = 0; c < GRAD_CHANNELS; ++c)
                            if (first + c < r.channels) sums[c] += weight * at[c * t.grad[1]];
                    }
                }
            }
        }
    }
    if (!is_in) return;
    out += ((int64_t(image) * r.channels + first) * r.h + top + y) * r.w + left + x;
#pragma unroll
    for (int c = 0; c < GRAD_CHANNELS; ++c)
        if (first + c < r.channels) out[int64_t(c) * r.h * r.w] = sums[c];
}

// --- Kernels --------------------------------------------------------------------------------------------------------

constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;

/// x: the images, or their gradient; bins: the means, or theirs.
Regions regions_of(const Request& q, const Operand& x, const Operand& boxes, const Operand& bins) {
    return {int(x.shape[0]), int(x.shape[1]), int(x.shape[2]), int(x.shape[3]), int(q.attrs.integer("ratio")),
            op_number("roi_align"), FastDivide(uint32_t(bins.shape[3])), FastDivide(uint32_t(bins.shape[2])),
            FastDivide(uint32_t(ceil_div(x.shape[1], REGION_CHANNELS))),
            {x.strides[0], x.strides[1], x.strides[2], x.strides[3]}, {boxes.strides[0], boxes.strides[1]},
            q.attrs.number("scale"), q.attrs.flag("aligned") ? 0.5 : 0.0, q.attrs.flag("aligned")};
}

bool are_of_one_dtype(const Request& q) {
    const Operand& out = q.operands[0];
    for (const Operand& operand : q.operands)
        if (operand.dtype != out.dtype || operand.numel() > LIMIT) return false;
    return out.is_contiguous() && (out.dtype == DType::f32 || out.dtype == DType::f64);
}

template <class F>
KernelPtr floating(DType dtype, const F& make) {
    return dtype == DType::f32 ? make(Tag<float>{}) : make(Tag<double>{});
}

KernelPtr roi_align(const Request& q) {
    const Operand &out = q.operands[0], &x = q.operands[1], &boxes = q.operands[2];
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (!are_of_one_dtype(q) || x.numel() == 0) return nullptr;
    const Regions r = regions_of(q, x, boxes, out);
    const int64_t threads = boxes.shape[0] * r.groups.divisor * out.shape[2] * out.shape[3];
    if (threads > LIMIT) return nullptr;
    return floating(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            launch_kernel("roi_align", region_means<T>, unsigned(ceil_div(threads, THREADS)), THREADS, r, uint32_t(threads),
                          reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                          reinterpret_cast<const T*>(data[2]), error_sink());
        });
    });
}

KernelPtr roi_align_grad(const Request& q) {
    constexpr size_t MOST = 40 << 10;  // bytes of weights
    const Operand &out = q.operands[0], &grad = q.operands[1], &boxes = q.operands[2];
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (!are_of_one_dtype(q) || grad.shape[2] == 0 || grad.shape[3] == 0) return nullptr;
    const Regions r = regions_of(q, out, boxes, grad);
    const int64_t across = ceil_div(r.w, TILE_X), down = ceil_div(r.h, TILE_Y);
    const int64_t sets = ceil_div(r.channels, GRAD_CHANNELS * SETS), blocks = across * down * sets * r.images;
    const int64_t numbers = AT_ONCE * (grad.shape[3] * TILE_X + grad.shape[2] * TILE_Y);
    if (blocks > LIMIT || size_t(numbers * size_of(out.dtype)) > MOST) return nullptr;
    const Tiles t{FastDivide(uint32_t(across)), FastDivide(uint32_t(down)), FastDivide(uint32_t(sets)),
                  {grad.strides[0], grad.strides[1], grad.strides[2], grad.strides[3]},
                  int(boxes.shape[0])};
    return floating(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            launch_kernel("roi_align's gradient", region_grads<T>, norch::Grid{unsigned(blocks), THREADS, numbers * sizeof(T)},
                          r, t, reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                          reinterpret_cast<const T*>(data[2]));
        });
    });
}

}  // namespace regions
}  // namespace

void add_regions(Registry& registry) {
    registry["roi_align"] = regions::roi_align;
    registry["roi_align_grad"] = regions::roi_align_grad;
}

}  // namespace norch::nn
