// kept_boxes: which boxes overlap no better one too much. Every box is compared with those after it, 64 to a word; then
// one block goes through the words.
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

}  // namespace

void add_kept_boxes(Registry& registry) { registry["kept_boxes"] = any_kept_boxes; }

}  // namespace norch::nn
