// matmul, linear, and the gradients of linear by input and weight: one product each.
#include "common/product.h"

namespace norch::matmul {
namespace {

[[gnu::cold]] KernelPtr matmul(const Request& request) {
    const auto& o = request.operands;
    return product_kernel(o[0], o[1], o[2]);
}

[[gnu::cold]] KernelPtr linear(const Request& request) {
    const auto& o = request.operands;
    const Operand out = at_least_2d(o[0]), input = at_least_2d(o[1]);
    return product_kernel(out, input, repeated(transposed(o[2]), out), o.size() > 3 ? &o[3] : nullptr,
                          request.attrs.has("activation") ? request.attrs.text("activation") : "none");
}

[[gnu::cold]] KernelPtr linear_input_grad(const Request& request) {
    const auto& o = request.operands;
    const Operand out = at_least_2d(o[0]), grad = at_least_2d(o[1]);
    return product_kernel(out, grad, repeated(o[2], out));
}

[[gnu::cold]] KernelPtr linear_weight_grad(const Request& request) {
    const auto& o = request.operands;
    Operand grad, input;
    if (!as_rows(o[1], &grad) || !as_rows(o[2], &input)) return nullptr;
    return product_kernel(o[0], transposed(grad), input);
}

}  // namespace

void add_matmul(Registry& registry) {
    registry["matmul"] = matmul;
    registry["linear"] = linear;
    registry["linear_activation"] = linear;
    registry["linear_input_grad"] = linear_input_grad;
    registry["linear_weight_grad"] = linear_weight_grad;
}

}  // namespace norch::matmul
