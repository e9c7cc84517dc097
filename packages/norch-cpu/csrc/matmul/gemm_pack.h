// Packing: some columns of a matrix, as many as a tile has, brought next to each other.
#pragma once

#include <algorithm>
#include <type_traits>

#include "matmul/gemm.h"
#include "matmul/gemm_tile.h"
#include "matmul/transpose.h"

namespace norch::matmul {

/// The rows of a panel. It stays in the second cache: fewer rows for the sake of the first cost more, since the sums
/// would go to memory and back more often.
template <class T>
constexpr int64_t PANEL_STEPS = (64 << 10) / (TILE_VECTORS * VECTOR_BYTES);
/// The same where a's columns are contiguous: the lines of a that a tile reads, one a step, stay in the first cache.
constexpr int64_t COLUMN_STEPS = 128;

/// panel[p][j] = b[p][j] for p < steps, j < width; zeros up to the panel's width.
template <class T>
void pack_panel(const T* b, MatrixStrides strides, int64_t steps, int64_t width, T* panel, int64_t panel_width) {
    constexpr int L = SIMD_WIDTH<T>;
    if (width < panel_width) std::fill_n(panel, steps * panel_width, T(0));
    if (strides.column == 1 && width == panel_width) {
        for (int64_t p = 0; p < steps; ++p, b += strides.row, panel += panel_width)
            for (int64_t j = 0; j < width; j += L) store_vector(panel + j, load_vector<L>(b + j));
        return;
    }
    if constexpr (std::is_floating_point_v<T>) {
        if (strides.row == 1) {
            transpose(b, strides.column, width, steps, panel, panel_width);
            return;
        }
    }
    for (int64_t p = 0; p < steps; ++p)
        for (int64_t j = 0; j < width; ++j) panel[p * panel_width + j] = b[p * strides.row + j * strides.column];
}

}  // namespace norch::matmul
