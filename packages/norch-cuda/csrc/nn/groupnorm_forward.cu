// group_norm: a group's channels follow each other, so that a group of a sample is a row, normalised as layer_norm's are.
#include "common/staging.h"
#include "nn/normalization_rows.cuh"

namespace norch::nn {
namespace {

/// A weight and a bias for each channel, of which a row has some, one behind the other.
struct OfChannels {
    static constexpr const char* NAME = "group_norm";
    Parameter weight, bias;
    FastDivide groups, size;  // of a sample; numbers of a channel
    int each;                 // channels of a group

    bool has_packets(int64_t packet) const { return size.divisor % packet == 0; }
    template <class T, int VEC>
    __device__ void load(computed<T>* weights, computed<T>* biases, int64_t row, int64_t i) const {
        const uint32_t group = uint32_t(row) - groups.quotient(uint32_t(row)) * groups.divisor;
        const int64_t channel = int64_t(group) * each + size.quotient(uint32_t(i));
        const computed<T> w = weight.at<T>(channel, 1), b = bias.at<T>(channel, 0);
#pragma unroll
        for (int j = 0; j < VEC; ++j) weights[j] = w, biases[j] = b;
    }
};

}  // namespace

/// out, input, weight and bias where they are given
KernelPtr group_norm(const Request& request) {
    const Operand& out = request.operands[0];
    if (!fits(request, out) || request.operands[1].dtype != out.dtype || !out.numel()) return nullptr;
    const auto& given = request.attrs.integers("given");
    const int weight = given[1] ? 2 : 0, bias = given[2] ? 2 + int(given[1]) : 0;
    const int64_t groups = request.attrs.integer("num_groups"), channels = out.shape[1];
    const int64_t size = out.numel() / (out.shape[0] * channels);
    NormRows<OfChannels> fixed = {};
    fixed.n = channels / groups * size;
    fixed.rows = out.shape[0] * groups;
    if (fixed.rows > INT32_MAX || fixed.n > INT32_MAX) return nullptr;
    fixed.is_centred = true;
    fixed.eps = request.attrs.number("eps");
    std::vector<DType> wanted(2, out.dtype);
    for (size_t i = 2; i < request.operands.size(); ++i) wanted.push_back(parameter_dtype(request.operands[i], out));
    fixed.affine.weight.is_upcast = wanted[size_t(weight)] != out.dtype;
    fixed.affine.bias.is_upcast = wanted[size_t(bias)] != out.dtype;
    fixed.affine.groups = FastDivide(uint32_t(groups)), fixed.affine.size = FastDivide(uint32_t(size));
    fixed.affine.each = int(channels / groups);
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            NormRows<OfChannels> a = fixed;
            a.out = data[0];
            a.in = data[1];
            a.affine.weight.data = weight ? data[weight] : nullptr;
            a.affine.bias.data = bias ? data[bias] : nullptr;
            launch_norm<T, T>(a);
        });
    });
    return Staged::make(request, 1, wanted, std::move(body));
}

}  // namespace norch::nn
