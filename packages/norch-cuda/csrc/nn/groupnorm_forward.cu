// group_norm: a group's channels follow each other, so that a group of a sample is a row, normalised as layer_norm's are.
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
    const int64_t groups = request.attrs.integer("num_groups"), channels = out.shape[1];
    const int64_t size = out.numel() / (out.shape[0] * channels);
    NormRows<OfChannels> fixed = {};
    fixed.n = channels / groups * size;
    fixed.rows = out.shape[0] * groups;
    if (fixed.rows > INT32_MAX || fixed.n > INT32_MAX) return nullptr;
    fixed.is_centred = true;
    fixed.affine.groups = FastDivide(uint32_t(groups)), fixed.affine.size = FastDivide(uint32_t(size));
    fixed.affine.each = int(channels / groups);
    return affine_norm(request, fixed);
}

}  // namespace norch::nn
