// Operands seen another way, and copied.
#pragma once

#include "common/kernel.h"

namespace norch {

/// The same shape row by row without gaps, in its own dtype or another.
Operand contiguous(const Operand& operand, DType dtype);
Operand contiguous(const Operand& operand);

/// The last two dims exchanged.
Operand transposed(Operand matrices);

/// `matrix`, once for each batch of `like`.
Operand repeated(Operand matrix, const Operand& like);

/// A vector as a matrix of one row.
Operand at_least_2d(Operand operand);

/// The same elements as rows of the last dim. Returns false where the other dims have no common stride.
bool as_rows(const Operand& operand, Operand* rows);

/// `operand` as one of shape `shape`, whose place along `dim` the index decides.
inline Operand indexed(const Operand& operand, const std::vector<int64_t>& shape, int dim) {
    Operand out = operand;
    out.shape = shape;
    if (!shape.empty()) out.strides[size_t(dim)] = 0;
    return out;
}

/// The bytes between elements along a dim, and how many there are; a 0-d operand has one.
inline int64_t stride_along(const Operand& operand, int dim) {
    return operand.shape.empty() ? 0 : operand.strides[size_t(dim)] * size_of(operand.dtype);
}
inline int64_t size_along(const Operand& operand, int dim) {
    return operand.shape.empty() ? 1 : operand.shape[size_t(dim)];
}

/// The kernel of the op copy, for any two layouts and dtypes of one shape.
KernelPtr copy_kernel(const Operand& out, const Operand& x);
void run_copy(const Kernel& copy, char* out, char* x);

}  // namespace norch
