// Blocks for finding kernels that read or write where they should not, under NORCH_CPU_GUARD=1.
#pragma once

#include <cstddef>

namespace norch {

/// Whether blocks are guarded: the variable NORCH_CPU_GUARD is set, and not to 0. Linux and macOS only.
bool guarding();

/// A 64-byte aligned block that ends where a page begins that may not be touched, up to what alignment needs; it is full
/// of bytes that make NaN of every floating dtype. nullptr if the system has no memory.
void* allocate_guarded(size_t nbytes);

/// Returns the block to the system at once. Ends the process, saying so, if what lies around it was written to.
void release_guarded(void* block, size_t nbytes) noexcept;

}  // namespace norch
