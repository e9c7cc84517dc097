// What the kernels of batch_norm share: the moments of a channel, and what its elements become.
#pragma once

#include "nn/normalization.cuh"

namespace norch::nn {

struct Channels {
    // Forward: mean and unbiased variance of the channels. Backward: the gradients of weight and bias.
    char *out, *first, *second;
    const char *grad, *in;
    const char* seen;  // the result of the relu behind, whose gradient comes first; null where there is none
    Parameter weight, bias;
    uint32_t packets, each;  // packets of a channel, and of a part of one
    FastDivide inner;        // packets of a channel that lie side by side
    int64_t channels, count;
    double eps;
    double* parts;           // for each part of each channel its Moments; null where there is one part
    bool is_last;            // of two launches
    bool is_rectified;       // forward: relu of it (launch_channel_rows only)
};

/// Mean and squared deviation of some numbers; of gradients g their sum, and that of g * (x - mean).
template <class C>
struct Moments {
    C count = 0, mean = 0, square = 0, grad = 0, product = 0;
};

/// Adds the moments of other numbers.
template <class C>
__device__ inline void merge(Moments<C>& m, const Moments<C>& other) {
    if (other.count == 0) return;
    const C total = m.count + other.count, gap = other.mean - m.mean, step = gap * (other.count / total);
    m.square += other.square + gap * step * m.count;
    m.product += other.product - m.grad * step + other.grad * (gap - step);
    m.grad += other.grad;
    m.mean += step;
    m.count = total;
}

/// out = (grad - shift - (x - mean) * slope) * scale, or forward (x - mean) * scale + shift.
template <class T, bool GRAD>
struct Factors {
    using C = computed<T>;
    C mean, scale, shift, slope;

    __device__ Factors(const Channels& a, int64_t channel, const Moments<double>& m) {
        const double factor = 1 / std::sqrt(m.square / double(a.count) + a.eps);
        mean = C(m.mean);
        const double off = m.mean - double(mean);  // what rounding took of it
        scale = C(factor * double(a.weight.at<T>(channel, 1)));
        slope = GRAD ? C(m.product / double(a.count) * factor * factor) : C(0);
        shift = GRAD ? C(m.grad / double(a.count) - off * double(slope))
                     : C(double(a.bias.at<T>(channel, 0)) - off * double(scale));
    }
    __device__ C operator()(C x, C g) const {
        return GRAD ? (g - shift - (x - mean) * slope) * scale : (x - mean) * scale + shift;
    }
};

template <class C, bool GRAD>
__device__ inline void write_statistics(const Channels& a, int64_t channel, const Moments<double>& m) {
    const double factor = 1 / std::sqrt(m.square / double(a.count) + a.eps);
    reinterpret_cast<C*>(a.first)[channel] = C(GRAD ? m.product * factor : m.mean);
    reinterpret_cast<C*>(a.second)[channel] = C(GRAD ? m.grad : m.square / double(a.count > 1 ? a.count - 1 : 1));
}

/// Whether there are many rows, of whole packets of channels.
bool are_channel_rows(size_t itemsize, int64_t channels, int64_t count);

/// Those of which packets can be accessed: three launches at memory bandwidth. Returns false where these are no such.
template <class T, bool GRAD>
bool launch_channel_rows(const Channels& a);  // channelnorm_rows.cu

}  // namespace norch::nn
