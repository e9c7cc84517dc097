#pragma once

#include <cstdint>

namespace norch::matmul {

/// out[c][r] = in[r][c] for c < columns; out's rows are `out_stride` apart. T is float or double.
template <class T>
void transpose(const T* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t out_stride);

}  // namespace norch::matmul
