// Convolution with one tap: a matrix product on the images as they lie, or at larger strides on a copy of the pixels that
// are seen. So is at stride 1 the gradient of its input, and where the channels lie next to each other that of its weight.
#include <algorithm>

#include "common/layout.h"
#include "common/product.h"
#include "common/staging.h"
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

/// The pixels of an image that windows of one element, `stride` apart, see: copied in the order in which the image lies.
StagedOperand pixels_of(const Operand& image, const std::vector<int64_t>& stride, const Operand& windows) {
    const auto &from = image.strides, &size = windows.shape;
    const int64_t n = image.shape[0], c = image.shape[1], row = from[2] * stride[0], column = from[3] * stride[1];
    StagedOperand out;
    if (!is_channels_last(image)) {
        out.stage({image.dtype, {n, c, size[2], size[3]}, {from[0], from[1], row, column}}, image.dtype);
        return out;
    }
    out.stage({image.dtype, {n, size[2], size[3], c}, {from[0], row, column, from[1]}}, image.dtype);
    const auto& to = out.view.strides;
    out.view = {image.dtype, {n, c, size[2], size[3]}, {to[0], to[3], to[1], to[2]}};
    return out;
}

/// A product of images, or nothing where they do not lie as matrices do.
[[gnu::cold]] KernelPtr product_of(const Request& r, const Operand& first, const Operand& second) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
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

}  // namespace

[[gnu::cold]] KernelPtr conv2d_pointwise(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    if (r.attrs.integer("groups") != 1 || weight.shape[2] != 1 || weight.shape[3] != 1) return nullptr;
    for (int64_t n : r.attrs.integers("pads"))
        if (n) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    const auto& stride = r.attrs.integers("stride");
    const Operand &first = r.operands[of_weight ? 1 : 0], &second = r.operands[of_weight ? 2 : 1];
    if (stride[0] != 1 || stride[1] != 1) {
        if (of_input) return nullptr;
        StagedOperand pixels = pixels_of(second, stride, first);
        KernelPtr product = product_of(r, first, pixels.view);
        if (!product) return nullptr;
        const int at = of_weight ? 2 : 1, count = int(r.operands.size());
        const double work = product->work + pixels.copy->work;
        return make_kernel(work, [=, pixels = std::move(pixels), product = std::move(product)](char* const* data, const Scalar* scalars) {
            const Seen seen(pixels, data[at]);
            char* all[4];
            std::copy_n(data, count, all);
            all[at] = seen.data();
            product->run(all, scalars);
        });
    }
    for (int d : {2, 3})  // output_padding adds places without a window
        if (first.shape[d] != second.shape[d]) return nullptr;
    return product_of(r, first, second);
}

}  // namespace norch::nn
