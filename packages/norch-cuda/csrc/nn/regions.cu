// kept_boxes: which boxes overlap no better one too much. Every box is compared with those after it, 64 to a word; then
// one block goes through the words. roi_align: means of samples between pixels.
#include "nn/sampling.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::nn {
namespace {

using Word = unsigned long long;
constexpr int BITS = 64, SCANNING = 1024;

template <class T>
struct Box {
    T left, top, right, bottom, area;

    Box() = default;
    __device__ Box(const T* at, int64_t step)
        : left(at[0]), top(at[step]), right(at[2 * step]), bottom(at[3 * step]),
          area(sampling::rounded_product(right - left, bottom - top)) {}
    /// A NaN among the corners is one of the areas too.
    __device__ bool is_too_near(const Box& other, double threshold) const {
        const T width = fmax(fmin(right, other.right) - fmax(left, other.left), T(0));
        const T inter = sampling::rounded_product(fmax(fmin(bottom, other.bottom) - fmax(top, other.top), T(0)), width);
        return double(inter / (area + other.area - inter)) > threshold;
    }
};

/// A block for 64 boxes and 64 others; thread t finds the word of box t. The words lie by the others, then by boxes.
template <class T>
__global__ void __launch_bounds__(BITS)
    find_overlaps(Word* words, const T* boxes, int64_t row, int64_t column, int count, double threshold) {
    const int first = blockIdx.y * BITS, other = blockIdx.x * BITS, at = first + threadIdx.x;
    if (other < first) return;
    __shared__ T corners[5][BITS];
    if (other + int(threadIdx.x) < count) {
        const Box<T> box(boxes + (other + threadIdx.x) * row, column);
        corners[0][threadIdx.x] = box.left, corners[1][threadIdx.x] = box.top;
        corners[2][threadIdx.x] = box.right, corners[3][threadIdx.x] = box.bottom;
        corners[4][threadIdx.x] = box.area;
    }
    __syncthreads();
    if (at >= count) return;
    const Box<T> box(boxes + at * row, column);
    Word word = 0;
    const int end = min(BITS, count - other);
    for (int i = max(at + 1 - other, 0); i < end; ++i) {
        Box<T> o;
        o.left = corners[0][i], o.top = corners[1][i], o.right = corners[2][i], o.bottom = corners[3][i];
        o.area = corners[4][i];
        if (box.is_too_near(o, threshold)) word |= Word(1) << i;
    }
    words[int64_t(blockIdx.x) * count + at] = word;
}

__global__ void __launch_bounds__(SCANNING) keep_boxes(uint8_t* kept, int64_t step, const Word* words, int count) {
    extern __shared__ Word gone[];
    __shared__ Word own[BITS];
    __shared__ Word found;
    const int groups = (count + BITS - 1) / BITS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < groups; i += SCANNING) gone[i] = 0;
    for (int group = 0; group < groups; ++group) {
        const int first = group * BITS, number = min(BITS, count - first);
        if (threadIdx.x < BITS)
            own[threadIdx.x] = int(threadIdx.x) < number ? words[int64_t(group) * count + first + threadIdx.x] : 0;
        __syncthreads();
        if (warp == 0) {
            Word kept_here = 0, lost = gone[group];
#pragma unroll 16
            for (int i = 0; i < BITS; ++i)
                if (i < number && !(lost >> i & 1)) kept_here |= Word(1) << i, lost |= own[i];
            if (lane == 0) found = kept_here;
        }
        __syncthreads();
        const Word good = found;
        if (int(threadIdx.x) < number) kept[(first + threadIdx.x) * step] = good >> threadIdx.x & 1;
        for (int later = group + 1 + warp; later < groups; later += SCANNING / 32) {
            Word word = 0;
#pragma unroll
            for (int half = 0; half < BITS; half += 32)
                if (good >> (half + lane) & 1) word |= words[int64_t(later) * count + first + half + lane];
#pragma unroll
            for (int step = 16; step > 0; step /= 2) word |= __shfl_xor_sync(~0u, word, step);
            if (lane == 0) gone[later] |= word;
        }
        __syncthreads();
    }
}

template <class T>
KernelPtr kept_boxes(const Request& r) {
    const Operand &out = r.operands[0], &boxes = r.operands[1];
    const int count = int(boxes.shape[0]);
    const int64_t step = out.strides[0], row = boxes.strides[0], column = boxes.strides[1];
    const double threshold = r.attrs.number("iou_threshold");
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const unsigned groups = unsigned(ceil_div(count, BITS));
        const Scratch<Word> words(int64_t(groups) * count);
        launch_kernel("kept_boxes", find_overlaps<T>, dim3(groups, groups), BITS, words.data(),
                      reinterpret_cast<const T*>(data[1]), row, column, count, threshold);
        launch_kernel("kept_boxes", keep_boxes, norch::Grid{1, SCANNING, groups * sizeof(Word)},
                      reinterpret_cast<uint8_t*>(data[0]), step, words.data(), count);
    });
}

KernelPtr any_kept_boxes(const Request& r) {
    constexpr int64_t MOST = 1 << 15;  // boxes; the words of as many are 128 MiB
    const Operand& boxes = r.operands[1];
    if (boxes.shape[0] > MOST || r.operands[0].dtype != DType::boolean) return nullptr;
    if (boxes.shape[0] == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (boxes.dtype == DType::f32) return kept_boxes<float>(r);
    return boxes.dtype == DType::f64 ? kept_boxes<double>(r) : nullptr;
}

// --- Means over regions ---------------------------------------------------------------------------------------------

constexpr int REGION_CHANNELS = 8;  // of a thread

struct Regions {
    int images, channels, groups, h, w, ratio, op;
    FastDivide columns, rows, by_group;  // of bins; groups of channels
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
    uint32_t line = r.columns.quotient(f);
    const int column = int(f - line * r.columns.divisor);
    uint32_t part = r.rows.quotient(line);
    const int row = int(line - part * r.rows.divisor);
    const uint32_t region = r.by_group.quotient(part);
    const int first = int(part - region * r.groups) * REGION_CHANNELS;
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

KernelPtr roi_align(const Request& q) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
    const Operand &out = q.operands[0], &x = q.operands[1], &boxes = q.operands[2];
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int groups = int(ceil_div(x.shape[1], REGION_CHANNELS));
    const int64_t threads = boxes.shape[0] * groups * out.shape[2] * out.shape[3];
    for (const Operand& operand : q.operands)
        if (operand.dtype != out.dtype || operand.numel() > LIMIT) return nullptr;
    if (!out.is_contiguous() || threads > LIMIT || x.numel() == 0) return nullptr;
    const Regions r{int(x.shape[0]), int(x.shape[1]), groups, int(x.shape[2]), int(x.shape[3]),
                    int(q.attrs.integer("ratio")), op_number("roi_align"), FastDivide(uint32_t(out.shape[3])),
                    FastDivide(uint32_t(out.shape[2])), FastDivide(uint32_t(groups)),
                    {x.strides[0], x.strides[1], x.strides[2], x.strides[3]}, {boxes.strides[0], boxes.strides[1]},
                    q.attrs.number("scale"), q.attrs.flag("aligned") ? 0.5 : 0.0, q.attrs.flag("aligned")};
    auto with_type = [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            launch_kernel("roi_align", region_means<T>, unsigned(ceil_div(threads, THREADS)), THREADS, r, uint32_t(threads),
                          reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                          reinterpret_cast<const T*>(data[2]), error_sink());
        });
    };
    if (out.dtype == DType::f32) return with_type(Tag<float>{});
    return out.dtype == DType::f64 ? with_type(Tag<double>{}) : nullptr;
}

}  // namespace

void add_regions(Registry& registry) {
    registry["kept_boxes"] = any_kept_boxes;
    registry["roi_align"] = roi_align;
}

}  // namespace norch::nn
