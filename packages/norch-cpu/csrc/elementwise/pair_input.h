#pragma once

#include <cstdint>

#include "runtime/simd.h"

namespace norch::elementwise {

/// An input, of which there is one element where BROADCAST.
template <bool BROADCAST>
struct Input {
    explicit Input(char* p) : data(reinterpret_cast<const float*>(p)), value(*data) {}
    NORCH_INLINE float operator[](int64_t i) const {
        if constexpr (BROADCAST) return value;
        else return data[i];
    }
    const float* data;
    float value;
};

}  // namespace norch::elementwise
