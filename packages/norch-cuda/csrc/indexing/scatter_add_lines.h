// scatter_add of long lines along its dim.
#pragma once

#include "indexing/indexing.cuh"

namespace norch::indexing {

/// Of floats, along a dim whose sums fit shared memory; null elsewhere.
KernelPtr add_by_lines(const Request& request, const Chosen& chosen, int dim);

}  // namespace norch::indexing
