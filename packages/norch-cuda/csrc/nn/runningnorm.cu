// batch_norm with statistics that are given: each channel's elements times a factor, plus a shift.
#include "common/image_layout.h"
#include "nn/normalization.cuh"

namespace norch::nn {
namespace {

struct RunningChannels {
    char* out;
    const char* in;
    Parameter mean, variance, weight, bias;
    FastDivide inner, channels;  // elements of a channel that lie side by side
    uint32_t packets;
    double eps;
};

/// SAME_CHANNEL: all elements of a packet are of one.
template <class T, int VEC, bool SAME_CHANNEL>
__global__ void __launch_bounds__(THREADS) running_kernel(const __grid_constant__ RunningChannels a) {
    using C = computed<T>;
    const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
    if (packet >= a.packets) return;
    C x[VEC], factor = 0, shift = 0;
    load_values<T, VEC>(x, reinterpret_cast<const T*>(a.in) + int64_t(packet) * VEC);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        if (j == 0 || !SAME_CHANNEL) {
            const uint32_t run = a.inner.quotient(packet * VEC + j);
            const uint32_t channel = run - a.channels.quotient(run) * a.channels.divisor;
            factor = C(1) / std::sqrt(C(a.variance.at<T>(channel, 1) + C(a.eps))) * a.weight.at<T>(channel, 1);
            shift = a.bias.at<T>(channel, 0) - a.mean.at<T>(channel, 0) * factor;
        }
        x[j] = x[j] * factor + shift;
    }
    store_values<T, VEC>(reinterpret_cast<T*>(a.out) + int64_t(packet) * VEC, x);
}

KernelPtr batch_norm_running(const Request& given_request) {
    Request request = given_request;
    Operand &out = request.operands[0], &x = request.operands[1];
    const int64_t numel = out.numel();
    if (!fits(request, out) || !numel || out.ndim() < 2 || numel >= int64_t(1) << 31) return nullptr;
    RunningChannels fixed = {};
    fixed.eps = request.attrs.number("eps");
    const int64_t channels = out.shape[1];
    int64_t inner = numel / out.shape[0] / channels;
    if (out.ndim() == 4 && is_channels_last(out) && is_channels_last(x)) {
        out.shape = x.shape = {numel / channels, channels};
        out.strides = x.strides = {channels, 1};
        inner = 1;
    }
    fixed.inner = FastDivide(uint32_t(inner)), fixed.channels = FastDivide(uint32_t(channels));
    const auto& given = request.attrs.integers("given");
    const size_t weight = given[3] ? 4 : 0, bias = given[4] ? 4 + size_t(given[3]) : 0;
    std::vector<DType> wanted(request.operands.size(), out.dtype);
    for (size_t i = 2; i < wanted.size(); ++i) wanted[i] = parameter_dtype(request.operands[i], out);
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=, dtype = out.dtype](char* const* data, const Scalar*) {
            RunningChannels a = fixed;
            const auto parameter = [&](size_t i) { return Parameter{i ? data[i] : nullptr, wanted[i] != dtype}; };
            a.out = data[0], a.in = data[1];
            a.mean = parameter(2), a.variance = parameter(3), a.weight = parameter(weight), a.bias = parameter(bias);
            constexpr int VEC = PER_16_BYTES<T>;
            const bool has_packets = rows_have_packets<T>(numel, {a.out, a.in});
            a.packets = uint32_t(has_packets ? numel / VEC : numel);
            const auto kernel = !has_packets       ? running_kernel<T, 1, true>
                                : inner % VEC == 0 ? running_kernel<T, VEC, true>
                                                   : running_kernel<T, VEC, false>;
            launch_kernel("batch_norm", kernel, dim3(unsigned(ceil_div(a.packets, THREADS))), dim3(THREADS), a);
        });
    });
    return Staged::make(request, 1, wanted, std::move(body));
}

}  // namespace

void add_running_normalization(Registry& registry) { registry["batch_norm_running"] = batch_norm_running; }

}  // namespace norch::nn
