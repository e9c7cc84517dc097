// Matrix products, as every backend has them: what matmul and linear are made of.
#pragma once

#include <string>

#include "common/operands.h"

namespace norch::matmul {

/// out (*batch, m, n) = a (*batch, m, k) @ b (*batch, k, n) + bias (n), then the activation; bias may be null. A kernel's
/// operands are in this order. Any layout of each.
KernelPtr product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias = nullptr,
                         const std::string& activation = "none");

}  // namespace norch::matmul
