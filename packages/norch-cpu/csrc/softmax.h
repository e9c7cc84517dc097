#pragma once

#include "kernel.h"

namespace norch {

/// Along `dim` of operand 1, into operand 0.
KernelPtr log_softmax(const Request& request, int64_t dim);

}  // namespace norch
