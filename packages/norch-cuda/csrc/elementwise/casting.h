// copy from one dtype to another.
#pragma once

#include "common/kernel.h"

namespace norch::elementwise {

/// The kernel of `copy` for operands of two different dtypes.
KernelPtr cast(const Request& request);

}  // namespace norch::elementwise
