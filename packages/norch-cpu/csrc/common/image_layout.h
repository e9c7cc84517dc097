// How images (n, c, h, w) lie in memory.
#pragma once

#include "common/kernel.h"

namespace norch {

/// Whether the channels of each element lie next to each other, and the elements row by row without gaps.
inline bool is_channels_last(const Operand& o) {
    int64_t step = 1;
    for (int d : {1, 3, 2, 0}) {
        if (o.shape[size_t(d)] != 1 && o.strides[size_t(d)] != step) return false;
        step *= o.shape[size_t(d)];
    }
    return true;
}

/// Whether they lie in one of the two orders that outputs have.
inline bool is_image_output(const Operand& o) { return o.is_contiguous() || is_channels_last(o); }

}  // namespace norch
