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

/// The kernel of the op copy, for any two layouts and dtypes of one shape.
KernelPtr copy_kernel(const Operand& out, const Operand& x);
void run_copy(const Kernel& copy, char* out, char* x);

}  // namespace norch
