// The activations that a matrix product can end with.
#pragma once

#include <cstdint>
#include <string>

namespace norch::matmul {

/// The function that is applied in place, null for "none". T is float or double.
template <class T>
void (*activation_named(const std::string& name))(T* x, int64_t n);

}  // namespace norch::matmul
