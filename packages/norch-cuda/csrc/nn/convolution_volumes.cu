// The depthwise convolution of volumes in float32 and its gradients: a thread for each element of the result, or of the image,
// a channel's weights in shared memory; of the weight's gradient a block for each row of taps of a channel. cuDNN's engines
// for it took most of an MViT's time on an H200.
#include <algorithm>

#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {
namespace volumes {

constexpr int64_t MOST_WEIGHTS = 4096;  // of a channel

struct Volumes {
    FastDivide parts;          // of a volume of what is written, THREADS elements each
    FastDivide channels;       // of what is written
    FastDivide results;        // of the result for one channel of the image
    FastDivide rows, columns;  // of what is written
    int others, count;         // channels of what is read; elements of a volume of what is written
    int size[3];               // of what is read
    int taps[3], step[3], gap[3], pad[3];
};

/// Where along a dim a window's tap is in what is read; out of it for none. Of the gradient of the image what is read is the
/// result's, of whose windows some have the element as that tap.
template <bool IS_GRAD>
__device__ inline int place_of(const Volumes& p, int d, int place, int tap) {
    if (!IS_GRAD) return place * p.step[d] - p.pad[d] + tap * p.gap[d];
    const int at = place + p.pad[d] - tap * p.gap[d];
    if (p.step[d] == 1) return at;
    return at >= 0 && at % p.step[d] == 0 ? at / p.step[d] : -1;
}

/// WIDTH: the taps of a row, 0 for any number.
template <bool IS_GRAD, int WIDTH>
__global__ void __launch_bounds__(THREADS) depthwise_volumes_kernel(const __grid_constant__ Volumes p, float* out,
                                                                    const float* in, const float* weight,
                                                                    const float* bias) {
    extern __shared__ float shared[];
    const int width = WIDTH ? WIDTH : p.taps[2];
    const int taps = p.taps[0] * p.taps[1] * width, each = IS_GRAD ? int(p.results.divisor) : 1;
    const uint32_t volume = p.parts.quotient(blockIdx.x), n = p.channels.quotient(volume);
    const uint32_t channel = volume - n * p.channels.divisor;
    for (int i = int(threadIdx.x); i < taps * each; i += THREADS) shared[i] = weight[int64_t(channel) * taps * each + i];
    __syncthreads();
    const uint32_t place = (blockIdx.x - volume * p.parts.divisor) * THREADS + threadIdx.x;
    if (place >= uint32_t(p.count)) return;
    const uint32_t line = p.columns.quotient(place), t = p.rows.quotient(line);
    const int at[3] = {int(t), int(line - t * p.rows.divisor), int(place - line * p.columns.divisor)};
    const int64_t area = int64_t(p.size[1]) * p.size[2];
    in += (int64_t(n) * p.others + (IS_GRAD ? int64_t(channel) * each : p.results.quotient(channel))) * p.size[0] * area;
    int columns[WIDTH ? WIDTH : 1];
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) columns[c] = place_of<IS_GRAD>(p, 2, at[2], c);
    float sum = bias ? bias[channel] : 0.0f;
    const float* w = shared;
    for (int m = 0; m < each; ++m, in += p.size[0] * area)
        for (int a = 0; a < p.taps[0]; ++a) {
            const int z = place_of<IS_GRAD>(p, 0, at[0], a);
            if (unsigned(z) >= unsigned(p.size[0])) {
                w += p.taps[1] * width;
                continue;
            }
            for (int b = 0; b < p.taps[1]; ++b, w += width) {
                const int y = place_of<IS_GRAD>(p, 1, at[1], b);
                if (unsigned(y) >= unsigned(p.size[1])) continue;
                const float* const row = in + z * area + int64_t(y) * p.size[2];
#pragma unroll
                for (int c = 0; c < width; ++c) {
                    const int x = WIDTH ? columns[WIDTH ? c : 0] : place_of<IS_GRAD>(p, 2, at[2], c);
                    if (unsigned(x) < unsigned(p.size[2])) sum += w[c] * row[x];
                }
            }
        }
    out[int64_t(volume) * p.count + place] = sum;
}

constexpr int TAPS = 4;  // next to each other, that a thread adds up at a time
constexpr int64_t BLOCKS = 8, FEWEST = 16;  // blocks for each multiprocessor; products of a thread and tap in a part

struct Weights {
    Volumes p;                  // of the result, which is what is gone through
    FastDivide groups, lines;   // of TAPS in a row of taps; rows of taps of a channel
    int64_t samples;            // n
    int64_t part;               // elements of the result in a part of the batch
};

/// For a part of the batch the sums of products of the result's gradient and the image, for some taps of a channel.
__global__ void __launch_bounds__(THREADS) volumes_weight_kernel(const __grid_constant__ Weights a, float* sums,
                                                                 const float* grad, const float* image) {
    const Volumes& p = a.p;
    __shared__ float warps[THREADS / 32][TAPS];
    const uint32_t line = a.groups.quotient(blockIdx.x), channel = a.lines.quotient(line);
    const int first = int(blockIdx.x - line * a.groups.divisor) * TAPS, row = int(line - channel * a.lines.divisor);
    const int tap[2] = {row / p.taps[1], row % p.taps[1]}, taps = min(p.taps[2] - first, TAPS);
    const int64_t area = int64_t(p.size[1]) * p.size[2];
    float sum[TAPS] = {};
    const int64_t begin = blockIdx.y * a.part, end = min(begin + a.part, a.samples * p.count);
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const uint32_t n = p.parts.quotient(uint32_t(i)), place = uint32_t(i) - n * p.parts.divisor;
        const uint32_t l = p.columns.quotient(place), t = p.rows.quotient(l);
        const int z = place_of<false>(p, 0, int(t), tap[0]), y = place_of<false>(p, 1, int(l - t * p.rows.divisor), tap[1]);
        if (unsigned(z) >= unsigned(p.size[0]) || unsigned(y) >= unsigned(p.size[1])) continue;
        const float g = grad[(int64_t(n) * p.channels.divisor + channel) * p.count + place];
        const float* const in = image + (int64_t(n) * p.others + p.results.quotient(channel)) * p.size[0] * area + z * area +
                                int64_t(y) * p.size[2];
#pragma unroll
        for (int c = 0; c < TAPS; ++c) {
            const int x = place_of<false>(p, 2, int(place - l * p.columns.divisor), first + c);
            if (c < taps && unsigned(x) < unsigned(p.size[2])) sum[c] += g * in[x];
        }
    }
#pragma unroll
    for (int c = 0; c < TAPS; ++c) {
#pragma unroll
        for (int step = 16; step; step /= 2) sum[c] += __shfl_xor_sync(~0u, sum[c], step);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][c] = sum[c];
    }
    __syncthreads();
    if (int(threadIdx.x) >= taps) return;
    float total = 0;
    for (int w = 0; w < THREADS / 32; ++w) total += warps[w][threadIdx.x];
    const int64_t weights = int64_t(p.channels.divisor) * a.lines.divisor * p.taps[2];
    sums[blockIdx.y * weights + int64_t(line) * p.taps[2] + first + threadIdx.x] = total;
}

__global__ void __launch_bounds__(THREADS) add_parts_kernel(float* out, const float* sums, int64_t weights, int parts) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= weights) return;
    float sum = 0;
    for (int part = 0; part < parts; ++part) sum += sums[part * weights + i];
    out[i] = sum;
}

/// Of what is written and read, and a weight; false where that is not for the kernels.
bool describe(const Request& r, const Operand& written, const Operand& read, const Operand& weight, Volumes& p) {
    for (const Operand& operand : r.operands)
        if (operand.dtype != DType::f32 || operand.is_scalar || !operand.numel() || !operand.is_contiguous()) return false;
    if (written.ndim() != 5 || weight.shape[1] != 1) return false;
    const auto &stride = r.attrs.integers("stride"), &dilation = r.attrs.integers("dilation"), &pads = r.attrs.integers("pads");
    int64_t taps = 1, count = 1, size = 1;
    for (size_t d = 0; d < 3; ++d) {
        p.size[d] = int(read.shape[d + 2]), p.taps[d] = int(weight.shape[d + 2]);
        p.step[d] = int(stride[d]), p.gap[d] = int(dilation[d]), p.pad[d] = int(pads[2 * d]);
        taps *= weight.shape[d + 2], count *= written.shape[d + 2], size *= read.shape[d + 2];
    }
    const int64_t images = std::min(written.shape[1], read.shape[1]), each = weight.shape[0] / images;
    const int64_t parts = ceil_div(count, THREADS);
    if (images == 1 || taps * each > MOST_WEIGHTS || parts * written.shape[0] * written.shape[1] > INT32_MAX ||
        written.shape[0] * count > INT32_MAX || size > INT32_MAX)
        return false;
    p.parts = FastDivide(uint32_t(parts)), p.channels = FastDivide(uint32_t(written.shape[1]));
    p.results = FastDivide(uint32_t(each));
    p.rows = FastDivide(uint32_t(written.shape[3])), p.columns = FastDivide(uint32_t(written.shape[4]));
    p.others = int(read.shape[1]), p.count = int(count);
    return true;
}

template <bool IS_GRAD>
KernelPtr make_moved(const Request& r, const Operand& written, const Operand& read, const Operand& weight) {
    Volumes p = {};
    if (!describe(r, written, read, weight, p)) return nullptr;
    const int64_t blocks = int64_t(p.parts.divisor) * written.shape[0] * written.shape[1];
    const bool has_bias = r.operands.size() == 4;
    const size_t weights = size_t(p.taps[0]) * p.taps[1] * p.taps[2] * (IS_GRAD ? p.results.divisor : 1);
    const norch::Grid grid{unsigned(blocks), THREADS, weights * sizeof(float)};
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        const auto kernel = p.taps[2] == 3 ? depthwise_volumes_kernel<IS_GRAD, 3> : depthwise_volumes_kernel<IS_GRAD, 0>;
        launch_kernel("a depthwise convolution", kernel, grid, p, at(0), at(1), at(2), has_bias ? at(3) : nullptr);
    });
}

KernelPtr make_weight_grad(const Request& r) {
    const Operand &weight = r.operands[0], &grad = r.operands[1], &image = r.operands[2];
    Weights a = {};
    Volumes& p = a.p;
    if (!describe(r, grad, image, weight, p)) return nullptr;
    p.parts = FastDivide(uint32_t(p.count));
    a.groups = FastDivide(uint32_t(ceil_div(int64_t(p.taps[2]), int64_t(TAPS))));
    a.lines = FastDivide(uint32_t(p.taps[0] * p.taps[1]));
    a.samples = grad.shape[0];
    const int64_t weights = weight.numel(), blocks = int64_t(a.groups.divisor) * a.lines.divisor * weight.shape[0];
    const int64_t all = a.samples * p.count, most = ceil_div(all, int64_t(THREADS) * FEWEST);
    const int64_t parts = std::clamp<int64_t>(ceil_div(int64_t(multiprocessors()) * BLOCKS, blocks), 1, most);
    a.part = ceil_div(all, parts);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        const Scratch<float> sums(parts > 1 ? size_t(parts * weights) : 0);
        const norch::Grid grid{dim3(unsigned(blocks), unsigned(parts)), THREADS, 0};
        launch_kernel("a depthwise convolution", volumes_weight_kernel, grid, a, parts > 1 ? sums.data() : at(0), at(1), at(2));
        if (parts > 1)
            launch_kernel("a depthwise convolution", add_parts_kernel, unsigned(ceil_div(weights, int64_t(THREADS))), THREADS,
                          at(0), sums.data(), weights, int(parts));
    });
}

}  // namespace volumes
}  // namespace

KernelPtr depthwise_volumes(ConvolutionKind kind, const Request& r) {
    const Operand &first = r.operands[0], &second = r.operands[1], &third = r.operands[2];
    if (kind == ConvolutionKind::weight_grad) return volumes::make_weight_grad(r);
    if (kind == ConvolutionKind::input_grad) return volumes::make_moved<true>(r, first, second, third);
    return volumes::make_moved<false>(r, first, second, third);
}

}  // namespace norch::nn
