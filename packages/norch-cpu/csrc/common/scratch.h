// How much memory a kernel takes from the allocator while it runs, which `norch.fits` counts.
#pragma once

#include <cstdint>

namespace norch {

/// Of the kernel that is being compiled in this thread, in bytes.
int64_t& noted_scratch();

/// A factory says how much its kernel takes, in all that it takes at a time, where that may be as much as a tensor.
inline void note_scratch(int64_t nbytes) { noted_scratch() += nbytes; }
/// The same of what nearly always runs in place of what has been noted.
inline void note_scratch_instead(int64_t nbytes) { noted_scratch() = nbytes; }

}  // namespace norch
