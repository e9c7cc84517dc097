// What of sorting is many elements' keys (indexing/order.h) at a time: compiled for each instruction set.
#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace norch::indexing {

/// Keys of n elements of one dtype that lie side by side, unsigned integers of an element's size, exclusive-ored with `flip`.
struct KeyLoops {
    void (*keys)(const char* x, int64_t n, uint64_t flip, uint64_t* keys);
    uint64_t (*least)(const char* x, int64_t n, uint64_t flip);
};

KeyLoops key_loops(DType dtype);

}  // namespace norch::indexing
