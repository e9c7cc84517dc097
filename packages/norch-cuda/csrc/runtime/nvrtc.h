// Kernels that are compiled when they are wanted, by NVIDIA's NVRTC where that is installed, and kept on disk.
#pragma once

#include <string>

namespace norch {

/// Headers of this package that such kernels include, by the names they include them by. A table that ends with nulls.
struct HeaderText {
    const char *name, *text;
};
extern const HeaderText runtime_headers[];

/// The kernel `name` of a source for a device, as the runtime launches one; null where it cannot be compiled.
const void* runtime_kernel(const std::string& source, const char* name, int device);

}  // namespace norch
