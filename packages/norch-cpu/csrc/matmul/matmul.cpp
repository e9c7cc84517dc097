#include "common/kernel.h"
#include "common/product.h"

namespace norch {
namespace {

KernelPtr matmul(const Request& request) {
    const auto& o = request.operands;
    return product_kernel(o[0], o[1], o[2]);
}

}  // namespace

void add_matmul(Registry& registry) {
    registry["matmul"] = matmul;
}

}  // namespace norch
