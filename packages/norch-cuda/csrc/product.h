// Kernels that are matrix products: what matmul, linear and convolution share.
#pragma once

#include <string>

#include "staging.h"

namespace norch {

/// out (*batch, m, n) = a (*batch, m, k) @ b (*batch, k, n) + bias (n), then the activation; bias may be null. A kernel's
/// operands are in this order. Any layout of each.
KernelPtr product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias = nullptr,
                         const std::string& activation = "none");

/// The same by kernels of our own: for products that are small or of a dtype or layout that cuBLASLt has not.
KernelPtr own_product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                             const std::string& activation);

/// Whether own_product_kernel is the faster of the two.
bool is_small_product(const Operand& out, const Operand& a, const Operand& b);

/// The last two dims exchanged.
Operand transposed(Operand matrices);

/// `matrix`, once for each batch of `like`.
Operand repeated(Operand matrix, const Operand& like);

/// The same elements as rows of the last dim. Returns false where the other dims have no common stride.
bool as_rows(const Operand& operand, Operand* rows);

/// `operand`'s shape without gaps.
Operand contiguous(const Operand& operand);

/// An operand that is seen elsewhere: as a copy without gaps.
struct StagedOperand {
    Operand view;
    KernelPtr copy;  // null where the operand itself is seen
    size_t nbytes = 0;

    void stage(bool is_output = false) {
        Operand dense = contiguous(view);
        copy = is_output ? copy_kernel(view, dense) : copy_kernel(dense, view);
        nbytes = size_t(dense.numel() * size_of(dense.dtype));
        view = dense;
    }
};

}  // namespace norch
