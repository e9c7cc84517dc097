// int64 as doubles and back, which AVX2 has no instructions for.
#pragma once

#include <bit>
#include <cstdint>

#include "runtime/simd.h"

namespace norch::elementwise {

/// Numbers from -2^51 on and below 2^51: such a one is the low bits of 1.5 * 2^52 plus it.
struct SmallIntegers {
#if defined(__AVX2__)
    static constexpr bool HAS_VECTORS = true;
#else
    static constexpr bool HAS_VECTORS = false;
#endif
    static constexpr double OFFSET = 6755399441055744.0;
    static bool fit(const int64_t* x, int64_t n) {
        uint64_t any = 0;
        for (int64_t i = 0; i < n; ++i) any |= uint64_t(x[i]) + (uint64_t(1) << 51);
        return !(any >> 52);
    }
    NORCH_INLINE static double of(int64_t x) {
        return std::bit_cast<double>(x + std::bit_cast<int64_t>(OFFSET)) - OFFSET;
    }
    NORCH_INLINE static int64_t back(double x) {
        return std::bit_cast<int64_t>(x + OFFSET) - std::bit_cast<int64_t>(OFFSET);
    }
};

}  // namespace norch::elementwise
