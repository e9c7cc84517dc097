// The family of linear algebra: the composites of norch.linalg.routines, where cuSOLVER is installed.
#pragma once

#include "common/kernel.h"

namespace norch::linalg {

/// Whether cuSOLVER and cuBLAS can be opened.
bool is_available();

void add_lu(Registry&);         // inv, solve, det, slogdet
void add_triangles(Registry&);  // cholesky, solve_triangular
void add_qr(Registry&);
void add_spectral(Registry&);  // eigh, svd, and their values alone

}  // namespace norch::linalg
