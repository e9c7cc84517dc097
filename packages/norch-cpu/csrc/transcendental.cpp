#include "transcendental.h"

#include "kernel.h"

namespace norch {

KernelPtr floating_pow(const Request&) { return nullptr; }

void add_transcendental(Registry&) {}

}  // namespace norch
