// Sums of rows by index, the same in every run: what the gradient of an embedding is, and scatter_add of whole rows.
#pragma once

#include "common/kernel.h"

namespace norch::indexing {

/// out[index[i]] = or += src[i], for i < index.numel() and rows of floats without gaps.
struct RowSums {
    DType dtype;
    Operand index;                   // integers in any layout, counted in row-major order
    int64_t rows, features;          // of out
    int64_t out_stride, src_stride;  // from row to row, in elements
    bool adds;                       // to what out holds; else all of out is written
    bool wraps;                      // whether index -1 is the last row
    int64_t padding;                 // a row that gets nothing, or -1
    int32_t op;
};

/// The kernel, of operands out, src, index; null where it would take long.
KernelPtr row_sums_kernel(const RowSums& sums);

}  // namespace norch::indexing
