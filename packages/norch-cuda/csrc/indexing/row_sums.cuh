// What sums of rows share: the rows that an index names.
#pragma once

#include <vector>

#include "indexing/indexing.cuh"
#include "indexing/row_sums.h"

namespace norch::indexing {

/// Writes the row of each index; `none` for the padding and for what is no row, which is reported.
void launch_find_rows(const std::vector<Piece<1>>& index, DType dtype, const Chosen& chosen, int64_t padding, int32_t none,
                      const char* data, int32_t* rows);

/// Sums of many indices for each row, which are sorted first; null for few.
KernelPtr sorted_row_sums(const RowSums& sums);

/// scatter_add of single elements, which are sorted by their place: takes memory for each of them and none for the places.
/// loops: of src, out (stride 0 along the dim), index. span: elements of out's memory, and of src's, are fewer than 2**32 - 1.
/// Null for loops that do not go in one piece.
KernelPtr sorted_element_sums(const Loops& loops, DType dtype, const Chosen& chosen, int64_t span);

}  // namespace norch::indexing
