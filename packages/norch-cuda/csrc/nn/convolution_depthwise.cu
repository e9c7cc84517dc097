// Depthwise convolution: a thread has some results below each other in a column, and the weights of its channel, which it
// keeps from image to image. The gradient of the input with step 1 is one too, with the weights turned around.
#include <algorithm>

#include "common/image_layout.h"
#include "nn/convolution.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

constexpr int LANES = 32, COLUMNS = THREADS / LANES;  // channels and columns that a block has where channels come last

struct Depthwise {
    FastDivide strips, columns;  // of the result
    FastDivide groups, tiles;    // of LANES channels; of COLUMNS columns
    uint32_t items;              // threads for the planes of one image
    int n, channels, h, w, rows, top, left;
    bool is_turned;
};

/// What a thread has: of planes its place in the image's results, so that neighbours read a row together; where channels
/// come last neighbours have those, and the warps of a block neighbouring columns, whose windows overlap.
struct Share {
    int channel, x, strip;
    bool is_there;

    __device__ Share(const Depthwise& p, bool is_last) {
        if (is_last) {
            const uint32_t rest = p.groups.quotient(blockIdx.x), above = p.tiles.quotient(rest);
            channel = int(blockIdx.x - rest * p.groups.divisor) * LANES + int(threadIdx.x % LANES);
            x = int(rest - above * p.tiles.divisor) * COLUMNS + int(threadIdx.x / LANES);
            strip = int(above);
            is_there = channel < p.channels && x < int(p.columns.divisor);
        } else {
            const uint32_t item = blockIdx.x * THREADS + threadIdx.x, line = p.columns.quotient(item);
            const uint32_t above = p.strips.quotient(line);
            channel = int(above);
            x = int(item - line * p.columns.divisor);
            strip = int(line - above * p.strips.divisor);
            is_there = item < p.items;
        }
    }
};

/// Results of a thread.
constexpr int strip_of(int step) { return step == 1 ? 8 : 4; }

template <class T, int TAPS, int STEP, bool IS_LAST>
__global__ void __launch_bounds__(THREADS, 2) depthwise_kernel(const __grid_constant__ Depthwise p, T* out, const T* image,
                                                               const T* weight, const T* bias) {
    constexpr int STRIP = strip_of(STEP), SPAN = (STRIP - 1) * STEP + TAPS, SIZE = TAPS * TAPS;
    const Share at(p, IS_LAST);
    if (!at.is_there) return;
    const int y = at.strip * STRIP, columns = int(p.columns.divisor), across = IS_LAST ? p.channels : 1;
    const int top = y * STEP - p.top, left = at.x * STEP - p.left;
    float weights[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; ++k) weights[k] = upcast(weight[at.channel * SIZE + (p.is_turned ? SIZE - 1 - k : k)]);
    const float shift = bias ? upcast(bias[at.channel]) : 0.0f;
    const auto start = [&](int n, int64_t height, int64_t width, int row, int column) {
        return IS_LAST ? ((n * height + row) * width + column) * p.channels + at.channel
                       : ((int64_t(n) * p.channels + at.channel) * height + row) * width + column;
    };
    for (int n = blockIdx.y; n < p.n; n += gridDim.y) {
        const T* const from = image + start(n, p.h, p.w, top, left);
        float sums[STRIP];
#pragma unroll
        for (int j = 0; j < STRIP; ++j) sums[j] = shift;
#pragma unroll
        for (int r = 0; r < SPAN; ++r) {
            const bool is_row = unsigned(top + r) < unsigned(p.h);
            float values[TAPS];
#pragma unroll
            for (int b = 0; b < TAPS; ++b)
                values[b] = is_row && unsigned(left + b) < unsigned(p.w) ? upcast(from[(r * p.w + b) * across]) : 0.0f;
#pragma unroll
            for (int j = 0; j < STRIP; ++j) {
                const int a = r - j * STEP;
                if (a < 0 || a >= TAPS) continue;
#pragma unroll
                for (int b = 0; b < TAPS; ++b) sums[j] += weights[a * TAPS + b] * values[b];
            }
        }
        T* const to = out + start(n, p.rows, columns, y, at.x);
#pragma unroll
        for (int j = 0; j < STRIP; ++j)
            if (y + j < p.rows) to[j * columns * across] = downcast<T>(sums[j]);
    }
}

template <class T, int TAPS>
auto depthwise_of(int64_t step, bool is_last) {
    if (is_last) return step == 1 ? depthwise_kernel<T, TAPS, 1, true> : depthwise_kernel<T, TAPS, 2, true>;
    return step == 1 ? depthwise_kernel<T, TAPS, 1, false> : depthwise_kernel<T, TAPS, 2, false>;
}

}  // namespace

KernelPtr depthwise_convolution(ConvolutionKind kind, const Request& r) {
    const bool is_grad = kind == ConvolutionKind::input_grad;
    const DType dtype = r.operands[0].dtype;
    if (kind == ConvolutionKind::weight_grad || !is_floating(dtype) || dtype == DType::f64) return nullptr;
    for (const Operand& operand : r.operands)
        if (operand.dtype != dtype || operand.is_scalar || !operand.numel()) return nullptr;
    const Operand &out = r.operands[0], &given = r.operands[1];
    const bool is_last = !(out.is_contiguous() && given.is_contiguous());
    if (is_last && !(is_channels_last(out) && is_channels_last(given))) return nullptr;
    for (size_t i = 2; i < r.operands.size(); ++i)
        if (!r.operands[i].is_contiguous()) return nullptr;
    const Convolution c(r.operands[is_grad ? 0 : 1], r.operands[is_grad ? 1 : 0], r.operands[2].shape, r.attrs);
    if (!c.is_usual() || c.groups == 1 || c.groups != c.c || c.groups != c.o || c.kh != c.kw || c.step_y != c.step_x ||
        c.gap_y != 1 || c.gap_x != 1 || (c.kh != 3 && c.kh != 5 && c.kh != 7) || c.step_y > (is_grad ? 1 : 2))
        return nullptr;
    const int64_t rows = is_grad ? c.h : c.rows, columns = is_grad ? c.w : c.columns;
    const int64_t strips = ceil_div(rows, strip_of(int(c.step_y))), groups = ceil_div(c.c, LANES);
    const int64_t tiles = ceil_div(columns, COLUMNS), items = c.c * strips * columns;
    const int64_t blocks = is_last ? strips * tiles * groups : ceil_div(items, THREADS);
    if (items > INT32_MAX || c.n > INT32_MAX || c.c * c.kh * c.kw > INT32_MAX) return nullptr;
    Depthwise p = {};
    p.strips = FastDivide(uint32_t(strips)), p.columns = FastDivide(uint32_t(columns)), p.items = uint32_t(items);
    p.groups = FastDivide(uint32_t(groups)), p.tiles = FastDivide(uint32_t(tiles));
    p.n = int(c.n), p.channels = int(c.c), p.rows = int(rows), p.is_turned = is_grad;
    p.h = int(is_grad ? c.rows : c.h), p.w = int(is_grad ? c.columns : c.w);
    p.top = int(is_grad ? c.kh - 1 - c.top : c.top), p.left = int(is_grad ? c.kw - 1 - c.left : c.left);
    // As many threads as are at work twice over; each has as many images as another.
    const int64_t wanted = ceil_div(int64_t(multiprocessors()) * 16, blocks);
    const int64_t images = ceil_div(c.n, std::clamp<int64_t>(wanted, 1, std::min<int64_t>(c.n, 65535)));
    const dim3 grid(unsigned(blocks), unsigned(ceil_div(c.n, images)));
    const bool has_bias = r.operands.size() == 4;
    return visit_floating_device(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (std::is_same_v<T, double>) {
            return nullptr;
        } else {
            const auto kernel = c.kh == 3   ? depthwise_of<T, 3>(c.step_y, is_last)
                                : c.kh == 5 ? depthwise_of<T, 5>(c.step_y, is_last)
                                            : depthwise_of<T, 7>(c.step_y, is_last);
            return make_kernel(0, [=](char* const* data, const Scalar*) {
                const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
                launch_kernel("a depthwise convolution", kernel, grid, dim3(THREADS), p, at(0), at(1), at(2),
                              has_bias ? at(3) : nullptr);
            });
        }
    });
}

}  // namespace norch::nn
