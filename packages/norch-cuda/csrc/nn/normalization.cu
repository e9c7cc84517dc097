// layer_norm and rms_norm: rows of contiguous elements; of float32 also with what autocast puts around them, a residual
// sum before and 16 bits after. normalization_grad.cu has their gradients.
#include "nn/normalization_rows.cuh"

namespace norch::nn {
namespace {

/// A weight and a bias for each place of a row.
struct OfPlaces {
    static constexpr const char* NAME = "layer_norm";
    Parameter weight, bias;

    bool has_packets(int64_t) const { return true; }
    template <class T, int VEC>
    __device__ void load(computed<T>* weights, computed<T>* biases, int64_t, int64_t i) const {
        weight.load<T, VEC>(weights, i, 1);
        bias.load<T, VEC>(biases, i, 0);
    }
};

/// out, input, weight and bias where they are given
template <bool Centred>
KernelPtr forward(const Request& request) {
    const Operand& out = request.operands[0];
    if (!fits(request, out)) return nullptr;
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    NormRows<OfPlaces> fixed = {};
    fixed.n = row_size(request);
    fixed.rows = out.numel() / fixed.n;
    fixed.is_centred = Centred;
    return affine_norm(request, fixed);
}

/// out, total where there is a residual, input, residual, weight and bias where they are given
KernelPtr residual_norm(const Request& request) {
    const auto& given = request.attrs.integers("given");
    const bool has_residual = given[1];
    const int outputs = has_residual ? 2 : 1;
    const Operand& out = request.operands[0];
    const Operand& rows = request.operands[size_t(has_residual ? outputs + 1 : outputs)];
    if (!is_half(out.dtype) || rows.dtype != DType::f32) return nullptr;
    if (has_residual && request.operands[size_t(outputs)].dtype != out.dtype) return nullptr;
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int first = outputs + outputs, weight = given[2] ? first : 0, bias = given[3] ? first + int(given[2]) : 0;
    std::vector<DType> wanted(request.operands.size(), DType::f32);
    wanted[0] = out.dtype;
    if (has_residual) wanted[size_t(outputs)] = out.dtype;
    NormRows<OfPlaces> fixed = {};
    fixed.n = row_size(request);
    fixed.rows = out.numel() / fixed.n;
    fixed.is_centred = true;
    fixed.eps = request.attrs.number("eps");
    KernelPtr body = visit_half(out.dtype, [&]<class S>(Tag<S>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            NormRows<OfPlaces> a = fixed;
            a.out = data[0];
            a.in = data[has_residual ? outputs + 1 : outputs];
            a.branch = has_residual ? data[outputs] : nullptr;
            a.total = has_residual ? data[1] : nullptr;
            a.affine.weight.data = weight ? data[weight] : nullptr;
            a.affine.bias.data = bias ? data[bias] : nullptr;
            launch_norm<float, S>(a);
        });
    });
    return Staged::make(request, outputs, wanted, std::move(body));
}

}  // namespace

void add_normalization(Registry& registry) {
    registry["layer_norm"] = forward<true>;
    registry["layer_norm_grad"] = layer_norm_grad;
    registry["residual_norm"] = residual_norm;
    registry["residual_norm_grad"] = residual_norm_grad;
    registry["rms_norm"] = forward<false>;
    registry["rms_norm_grad"] = rms_norm_grad;
    add_channel_normalization(registry);
    add_running_normalization(registry);
}

}  // namespace norch::nn
