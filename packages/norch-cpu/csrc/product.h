// Kernels that are matrix products: batches of them, and operands that are converted first.
#pragma once

#include <string>

#include "kernel.h"

namespace norch {

/// out (*batch, m, n) = a (*batch, m, k) @ b (*batch, k, n) + bias (n), then the activation; bias may be null. A kernel's
/// operands are in this order.
KernelPtr product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias = nullptr,
                         const std::string& activation = "none");

/// The last two dims exchanged.
Operand transposed(Operand matrices);

/// The same elements as rows of the last dim. Returns false where the other dims have no common stride.
bool as_rows(const Operand& operand, Operand* rows);

}  // namespace norch
