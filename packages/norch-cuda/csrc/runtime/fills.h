// The fills of a recorded graph.
#pragma once

#include "runtime/runtime.h"

namespace norch {

/// Puts kernels in the place of a graph's small memsets, as libraries record them before their kernels: between a kernel
/// and a memset an H200 idled for 3 to 5 us, between two kernels for 0.2.
void make_kernels_of_fills(cudaGraph_t graph);

}  // namespace norch
