#pragma once

#include "common/kernel.h"

namespace norch::nn {

/// Along `dim` of operand 1, into operand 0.
KernelPtr log_softmax(const Request& request, int64_t dim);

/// out[i] = exp(x[i]); out may be x.
void exponentials(float* out, const float* x, int64_t n);
void exponentials(double* out, const double* x, int64_t n);

}  // namespace norch::nn
