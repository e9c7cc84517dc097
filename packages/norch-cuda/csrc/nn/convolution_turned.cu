// The gradient of a signal, where windows have gaps, as the convolution of the result's gradient with the weight turned
// round. On an H200 cuDNN's engines for it took 2 to 49 ms, its forward ones 0.1 (bfloat16, 4 x 192 x 11,776, 7 taps, gaps
// of 9); of images, whose windows have gaps both ways, 0.037 and 0.045.
#include <algorithm>

#include "nn/convolution_cudnn.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {

struct Turn {
    int inputs, outputs, taps;
    int64_t input_step, output_step, tap_step, count;
};

/// (outputs, inputs, taps) of any strides to (inputs, outputs, taps) without gaps, the last tap first.
__global__ void __launch_bounds__(THREADS) turn_kernel(const __grid_constant__ Turn t, uint16_t* out, const uint16_t* weight) {
    for (int64_t e = int64_t(blockIdx.x) * THREADS + threadIdx.x; e < t.count; e += int64_t(gridDim.x) * THREADS) {
        const int64_t rest = e / t.taps;
        out[e] = weight[(t.taps - 1 - e % t.taps) * t.tap_step + rest % t.outputs * t.output_step + rest / t.outputs * t.input_step];
    }
}

}  // namespace

KernelPtr turned_convolution(const Request& r) {
    const Operand& weight = r.operands[2];
    const auto &stride = r.attrs.integers("stride"), &dilation = r.attrs.integers("dilation"), &pads = r.attrs.integers("pads");
    const auto is_one = [](int64_t n) { return n == 1; };
    if (!is_half(weight.dtype) || r.attrs.integer("groups") != 1) return nullptr;
    if (weight.shape.size() != 4 || (weight.shape[2] != 1 && weight.shape[3] != 1)) return nullptr;
    if (!std::all_of(stride.begin(), stride.end(), is_one) || std::all_of(dilation.begin(), dilation.end(), is_one)) return nullptr;
    Request forward = r;
    forward.op = "conv2d";
    Operand& turned = forward.operands[2];
    std::swap(turned.shape[0], turned.shape[1]);
    int64_t step = 1;
    for (size_t d = turned.shape.size(); d-- > 0; step *= turned.shape[d]) turned.strides[d] = step;
    auto& around = forward.attrs.values["pads"].list;
    for (size_t d = 0; d < stride.size(); ++d)
        for (size_t side = 0; side < 2; ++side)
            around[2 * d + side] = dilation[d] * (weight.shape[d + 2] - 1) - pads[2 * d + side];
    const std::shared_ptr<Kernel> convolve = cudnn_convolution(ConvolutionKind::forward, forward);
    if (!convolve) return nullptr;
    const size_t along = weight.shape[3] == 1 ? 2 : 3;
    const Turn turn = {int(weight.shape[1]), int(weight.shape[0]), int(weight.shape[along]), weight.strides[1],
                       weight.strides[0], weight.strides[along], weight.numel()};
    const auto blocks = unsigned(std::min<int64_t>(ceil_div(turn.count, THREADS), 16 * multiprocessors()));
    return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
        Scratch<> memory(size_t(turn.count) * sizeof(uint16_t));
        launch_kernel("a convolution's gradient", turn_kernel, blocks, THREADS, turn,
                      reinterpret_cast<uint16_t*>(memory.data()), reinterpret_cast<const uint16_t*>(data[2]));
        char* const operands[] = {data[0], data[1], memory.data()};
        convolve->run(operands, scalars);
    });
}

}  // namespace norch::nn
