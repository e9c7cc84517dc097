// What Python sees of the kernels, in either package.
#pragma once

#include <nanobind/nanobind.h>

#include <initializer_list>

#include "common/kernel.h"

namespace norch {

/// Adds to a module the types Buffer and Launch, and the functions allocate, allocating, compile and ops, for the kernels
/// that the families add to a registry.
void add_kernels(nanobind::module_& module, std::initializer_list<void (*)(Registry&)> families);

}  // namespace norch
