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

}  // namespace norch::indexing
