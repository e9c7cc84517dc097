#pragma once

#include "common/kernel.h"

namespace norch::elementwise {

KernelPtr floating_pow(const Request& request);

}  // namespace norch::elementwise
