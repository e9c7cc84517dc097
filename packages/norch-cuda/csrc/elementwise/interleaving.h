// Copies between two, three or four lines and one in which their elements take turns: pixel_shuffle and its inverse,
// images of three channels in another layout, nearest-neighbour upsampling.
#pragma once

#include "common/kernel.h"
#include "runtime/device.cuh"

namespace norch::elementwise {

/// The kernel of a copy of elements of `itemsize` bytes between the places of a layout (output, input). `otherwise` where it
/// is no such copy; and that is run where the operands are not aligned as it has to be.
KernelPtr interleave(const Layout<2>& layout, int64_t itemsize, KernelPtr otherwise);

}  // namespace norch::elementwise
