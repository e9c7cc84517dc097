// Convolution with one tap and stride 1: a matrix product on the images as they lie. So is the gradient of its input, and
// where the channels lie next to each other that of its weight.
#include "common/layout.h"
#include "common/product.h"
#include "nn/convolution.h"

namespace norch::nn {
namespace {

/// (n, c, h, w) as (n, h * w, c). Returns false where rows do not follow each other.
bool as_matrices(const Operand& image, Operand* out) {
    const auto &size = image.shape, &stride = image.strides;
    if (size[2] != 1 && size[3] != 1 && stride[2] != size[3] * stride[3]) return false;
    *out = {image.dtype, {size[0], size[2] * size[3], size[1]}, {stride[0], size[3] == 1 ? stride[2] : stride[3], stride[1]}};
    return true;
}

}  // namespace

KernelPtr conv2d_pointwise(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    if (r.attrs.integer("groups") != 1 || weight.shape[2] != 1 || weight.shape[3] != 1) return nullptr;
    for (int64_t n : r.attrs.integers("stride"))
        if (n != 1) return nullptr;
    for (int64_t n : r.attrs.integers("pads"))
        if (n) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    const Operand &first = r.operands[of_weight ? 1 : 0], &second = r.operands[of_weight ? 2 : 1];
    for (int d : {2, 3})  // output_padding adds places without a window
        if (first.shape[d] != second.shape[d]) return nullptr;
    Operand a, b;
    if (!as_matrices(first, &a) || !as_matrices(second, &b)) return nullptr;
    const Operand matrix{weight.dtype, {weight.shape[0], weight.shape[1]}, {weight.strides[0], weight.strides[1]}};
    if (of_weight) {
        for (Operand* o : {&a, &b}) {  // one product over all images
            if (o->shape[0] != 1 && o->shape[1] != 1 && o->strides[0] != o->shape[1] * o->strides[1]) return nullptr;
            const int64_t step = o->shape[1] == 1 ? o->strides[0] : o->strides[1];
            *o = {o->dtype, {o->shape[0] * o->shape[1], o->shape[2]}, {step, o->strides[2]}};
        }
        return matmul::product_kernel(matrix, transposed(a), b);
    }
    const Operand* bias = !of_input && r.operands.size() == 4 ? &r.operands[3] : nullptr;
    return matmul::product_kernel(a, b, repeated(of_input ? matrix : transposed(matrix), a), bias);
}

}  // namespace norch::nn
