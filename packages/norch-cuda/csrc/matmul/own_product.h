// Matrix products by kernels of our own, and what the kernels that are products share.
#pragma once

#include "common/product.h"

namespace norch::matmul {

/// The same by kernels of our own: for products that are small or of a dtype or layout that cuBLASLt has not.
KernelPtr own_product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                             const std::string& activation);

/// Whether own_product_kernel is the faster of the two.
bool is_small_product(const Operand& out, const Operand& a, const Operand& b);

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

}  // namespace norch::matmul
