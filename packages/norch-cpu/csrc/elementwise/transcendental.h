#pragma once

#include "common/kernel.h"

namespace norch {

KernelPtr floating_pow(const Request& request);

}  // namespace norch
