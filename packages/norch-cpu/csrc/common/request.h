// From what Python gives to `compile` to a kernel's callable.
#pragma once

#include <nanobind/nanobind.h>

#include "common/kernel.h"

namespace norch {

/// The callable kernel for operands (norch.backend.Operand) and attributes (a dict); None where the registry has none.
nanobind::object compile_kernel(const Registry& registry, const std::string& op, nanobind::handle operands,
                                nanobind::handle attrs);

}  // namespace norch
