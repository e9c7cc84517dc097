// The gradient of the input of a convolution of signals of few channels, in float32: an element is met by few windows, whose
// gradients each thread adds up.
#include "nn/convolution.h"
#include "runtime/device.cuh"

namespace norch::nn {
namespace {
namespace signals {

constexpr int64_t MOST_CHANNELS = 4, MOST_WINDOWS = 4;  // windows that have an element
constexpr int64_t MOST_WEIGHTS = 8192;                  // of a channel, in shared memory

struct Signals {
    FastDivide parts, channels, step;  // parts of a signal of THREADS elements
    int o, taps, left, length, columns;
};

__global__ void __launch_bounds__(THREADS) input_sums(const __grid_constant__ Signals p, float* out, const float* grad,
                                                      const float* weight) {
    extern __shared__ float shared[];
    Digits digits{blockIdx.x};
    const int t = digits.next(p.parts) * THREADS + int(threadIdx.x), c = digits.next(p.channels);
    const int64_t n = digits.rest;
    for (int i = int(threadIdx.x); i < p.o * p.taps; i += THREADS) {
        const int row = i / p.taps;
        shared[i] = weight[(int64_t(row) * int(p.channels.divisor) + c) * p.taps + (i - row * p.taps)];
    }
    __syncthreads();
    if (t >= p.length) return;
    // The window that begins last, and the tap of it that the element is at.
    const int last = int(p.step.quotient(uint32_t(t + p.left)));
    const float* const given = grad + n * p.o * p.columns;
    float sum = 0.0f;
    for (int k = t + p.left - last * int(p.step.divisor), x = last; k < p.taps && x >= 0; k += int(p.step.divisor), --x) {
        if (x >= p.columns) continue;
#pragma unroll 8
        for (int i = 0; i < p.o; ++i) sum += shared[i * p.taps + k] * given[int64_t(i) * p.columns + x];
    }
    out[(n * int(p.channels.divisor) + c) * p.length + t] = sum;
}

KernelPtr input_grad(const Request& r) {
    for (const Operand& operand : r.operands)
        if (operand.dtype != DType::f32 || operand.numel() == 0 || !operand.is_contiguous()) return nullptr;
    const Convolution c(r.operands[0], r.operands[1], r.operands[2].shape, r.attrs);
    const bool is_signal = c.h == 1 && c.kh == 1 && c.rows == 1 && c.top == 0 && c.gap_x == 1;
    if (!is_signal || !c.is_usual() || c.groups != 1 || c.c > MOST_CHANNELS || c.o * c.kw > MOST_WEIGHTS) return nullptr;
    const int64_t parts = ceil_div(c.w, THREADS), blocks = parts * c.c * c.n;
    if (ceil_div(c.kw, c.step_x) > MOST_WINDOWS || blocks > INT32_MAX || c.w + c.left > INT32_MAX) return nullptr;
    const Signals p{FastDivide(uint32_t(parts)), FastDivide(uint32_t(c.c)), FastDivide(uint32_t(c.step_x)), int(c.o),
                    int(c.kw), int(c.left), int(c.w), int(c.columns)};
    const norch::Grid grid{unsigned(blocks), THREADS, size_t(c.o * c.kw) * sizeof(float)};
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        launch_kernel("the gradient of a convolution's input", input_sums, grid, p, at(0), at(1), at(2));
    });
}

}  // namespace signals
}  // namespace

KernelPtr signal_input_grad(ConvolutionKind kind, const Request& r) {
    return kind == ConvolutionKind::input_grad ? signals::input_grad(r) : nullptr;
}

}  // namespace norch::nn
