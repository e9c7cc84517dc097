// Matrix products by kernels of our own, and what the kernels that are products share.
#pragma once

#include "common/product.h"
#include "common/staging.h"

namespace norch::matmul {

/// The same by kernels of our own: for products that are small or of a dtype or layout that cuBLASLt has not.
KernelPtr own_product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                             const std::string& activation);

/// Whether own_product_kernel is the faster of the two.
bool is_small_product(const Operand& out, const Operand& a, const Operand& b);

}  // namespace norch::matmul
