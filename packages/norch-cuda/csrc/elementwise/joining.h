// cat and stack, all parts in one launch.
#pragma once

#include "common/kernel.h"

namespace norch::elementwise {

/// Null where the parts have to be copied one by one.
KernelPtr join_parts(const Request& request);

}  // namespace norch::elementwise
