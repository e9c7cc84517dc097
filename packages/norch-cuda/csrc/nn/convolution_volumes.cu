// The depthwise convolution of volumes in float32: a thread for each element of the result, a channel's weights in shared
// memory. cuDNN's engines for it took most of an MViT's time on an H200.
#include "nn/convolution.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {
namespace volumes {

constexpr int64_t MOST_WEIGHTS = 4096;  // of a channel

struct Volumes {
    FastDivide parts;                     // of a result's volume, THREADS elements each
    FastDivide channels, results;         // of the result; of it for one channel of the image
    FastDivide rows, columns;             // of the result
    int inputs, count;                    // channels of the image; elements of a result's volume
    int size[3], taps[3], step[3], gap[3], pad[3];
};

__global__ void __launch_bounds__(THREADS) depthwise_volumes_kernel(const __grid_constant__ Volumes p, float* out,
                                                                    const float* image, const float* weight,
                                                                    const float* bias) {
    extern __shared__ float shared[];
    const int taps = p.taps[0] * p.taps[1] * p.taps[2];
    const uint32_t volume = p.parts.quotient(blockIdx.x), n = p.channels.quotient(volume);
    const uint32_t channel = volume - n * p.channels.divisor;
    for (int i = int(threadIdx.x); i < taps; i += THREADS) shared[i] = weight[int64_t(channel) * taps + i];
    __syncthreads();
    const uint32_t place = (blockIdx.x - volume * p.parts.divisor) * THREADS + threadIdx.x;
    if (place >= uint32_t(p.count)) return;
    const uint32_t line = p.columns.quotient(place), t = p.rows.quotient(line);
    const int first[3] = {int(t) * p.step[0] - p.pad[0], int(line - t * p.rows.divisor) * p.step[1] - p.pad[1],
                          int(place - line * p.columns.divisor) * p.step[2] - p.pad[2]};
    const int64_t area = int64_t(p.size[1]) * p.size[2];
    image += (int64_t(n) * p.inputs + p.results.quotient(channel)) * p.size[0] * area;
    float sum = bias ? bias[channel] : 0.0f;
    const float* w = shared;
    for (int a = 0; a < p.taps[0]; ++a) {
        const int z = first[0] + a * p.gap[0];
        if (unsigned(z) >= unsigned(p.size[0])) {
            w += p.taps[1] * p.taps[2];
            continue;
        }
        for (int b = 0; b < p.taps[1]; ++b, w += p.taps[2]) {
            const int y = first[1] + b * p.gap[1];
            if (unsigned(y) >= unsigned(p.size[1])) continue;
            const float* const row = image + z * area + int64_t(y) * p.size[2];
#pragma unroll 3
            for (int c = 0; c < p.taps[2]; ++c) {
                const int x = first[2] + c * p.gap[2];
                if (unsigned(x) < unsigned(p.size[2])) sum += w[c] * row[x];
            }
        }
    }
    out[int64_t(volume) * p.count + place] = sum;
}

}  // namespace volumes
}  // namespace

KernelPtr depthwise_volumes(const Request& r) {
    for (const Operand& operand : r.operands)
        if (operand.dtype != DType::f32 || operand.is_scalar || !operand.numel() || !operand.is_contiguous()) return nullptr;
    const Operand &out = r.operands[0], &image = r.operands[1], &weight = r.operands[2];
    if (out.ndim() != 5 || weight.shape[1] != 1 || image.shape[1] == 1) return nullptr;
    const auto &stride = r.attrs.integers("stride"), &dilation = r.attrs.integers("dilation"), &pads = r.attrs.integers("pads");
    volumes::Volumes p = {};
    int64_t taps = 1, count = 1, size = 1;
    for (size_t d = 0; d < 3; ++d) {
        p.size[d] = int(image.shape[d + 2]), p.taps[d] = int(weight.shape[d + 2]);
        p.step[d] = int(stride[d]), p.gap[d] = int(dilation[d]), p.pad[d] = int(pads[2 * d]);
        taps *= weight.shape[d + 2], count *= out.shape[d + 2], size *= image.shape[d + 2];
    }
    const int64_t parts = ceil_div(count, THREADS), blocks = parts * out.shape[0] * out.shape[1];
    if (taps > volumes::MOST_WEIGHTS || blocks > INT32_MAX || count > INT32_MAX || size > INT32_MAX) return nullptr;
    p.parts = FastDivide(uint32_t(parts)), p.channels = FastDivide(uint32_t(out.shape[1]));
    p.results = FastDivide(uint32_t(out.shape[1] / image.shape[1]));
    p.rows = FastDivide(uint32_t(out.shape[3])), p.columns = FastDivide(uint32_t(out.shape[4]));
    p.inputs = int(image.shape[1]), p.count = int(count);
    const bool has_bias = r.operands.size() == 4;
    const norch::Grid grid{unsigned(blocks), THREADS, size_t(taps) * sizeof(float)};
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        launch_kernel("a depthwise convolution", volumes::depthwise_volumes_kernel, grid, p, at(0), at(1), at(2),
                      has_bias ? at(3) : nullptr);
    });
}

}  // namespace norch::nn
