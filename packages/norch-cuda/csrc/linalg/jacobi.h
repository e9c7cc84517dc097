// Singular values of small matrices by a kernel of our own.
#pragma once

#include "linalg/solver.h"

namespace norch::linalg {

/// Whether matrices fit in a block's shared memory, on the device of the launch.
bool fits_jacobi(DType dtype, Matrices shape, bool vectors);
/// a = u @ diag(values) @ vh, all without gaps, with min(rows, columns) vectors; u and vh may be null together. `info` is
/// 1 where a number is not finite.
void run_jacobi(DType dtype, Matrices shape, const char* a, char* values, char* u, char* vh, int32_t* info);

}  // namespace norch::linalg
