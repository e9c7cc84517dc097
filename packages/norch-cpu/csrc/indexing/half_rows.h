// Whole rows of 16-bit floats, added to the rows of an output that an index says.
#pragma once

#include <cstdint>

#include "runtime/tile.h"

namespace norch::indexing {

/// Row i of `count` is added to row index[i] of `size`. Strides in bytes.
struct HalfRows {
    int64_t count, columns, size;
    int64_t out_row, out_column, index_step, src_row, src_column;
    Convert convert;
};

/// Adds up in float32 and rounds each row once; reads and writes those rows alone that something is added to.
void add_half_rows(char* out, const char* index, const char* src, const HalfRows& p);

}  // namespace norch::indexing
