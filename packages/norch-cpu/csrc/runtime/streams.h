// What is read once comes from memory faster in a few long streams side by side than in one, or in many short ones:
// prefetchers stop at the end of a page, and need some lines to begin.
#pragma once

#include <cstdint>

#include "runtime/simd.h"

namespace norch {

constexpr int64_t STREAM_BYTES = 16 << 10;

/// How many lines there are from one to the next of those that are read side by side.
NORCH_INLINE constexpr int64_t lines_apart(int64_t line_bytes) {
    return line_bytes > 0 && line_bytes < STREAM_BYTES ? STREAM_BYTES / line_bytes : 1;
}

}  // namespace norch
