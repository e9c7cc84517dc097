// Packing: some columns of a matrix, as many as a tile has, brought next to each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "matmul/gemm.h"
#include "matmul/gemm_tile.h"
#include "matmul/transpose.h"

namespace norch::matmul {

/// The fewest columns that tiles take where they lie.
constexpr int64_t FEWEST_COLUMNS = 4;
/// The columns of a panel.
template <class T>
constexpr int64_t PANEL = TILE_VECTORS * SIMD_WIDTH<T>;
/// The rows of a panel. It stays in the second cache: fewer rows for the sake of the first cost more, since the sums
/// would go to memory and back more often.
template <class T>
constexpr int64_t PANEL_STEPS = (128 << 10) / (TILE_VECTORS * VECTOR_BYTES);
/// The same where the columns of a are contiguous and it is packed too: its tiles stay in the caches.
constexpr int64_t COLUMN_STEPS = 256;

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
    if (strides.row == 1) {
        transpose(b, strides.column, width, steps, panel, panel_width);
        return;
    }
    for (int64_t p = 0; p < steps; ++p)
        for (int64_t j = 0; j < width; ++j) panel[p * panel_width + j] = b[p * strides.row + j * strides.column];
}

constexpr int64_t STEPS_AT_ONCE = 16;

template <class T, int R>
void copy_steps(const T* a, int64_t a_step, int64_t steps, T* out) {
    for (int64_t p = 0; p < steps; ++p) {
        if constexpr (FETCHES_FAR) __builtin_prefetch(a + (p + STEPS_AT_ONCE) * a_step);
        std::memcpy(out + p * R, a + p * a_step, R * sizeof(T));
    }
}

/// Brings the columns of a, `height` elements next to each other in each of `steps` of k, into the tiles of `for_tiles`,
/// one after another, each step by step. A few steps at a time, so that lines are read once.
template <class T>
void pack_tiles(const T* a, int64_t a_step, int64_t steps, int64_t height, T* tiles) {
    using Copy = void (*)(const T*, int64_t, int64_t, T*);
    static constexpr auto copies = []<int... R>(std::integer_sequence<int, R...>) {
        return std::array<Copy, TILE_ROWS>{copy_steps<T, R + 1>...};
    }(std::make_integer_sequence<int, TILE_ROWS>());
    const int64_t count = (height + TILE_ROWS - 1) / TILE_ROWS, least = height / count, larger = height % count;
    for (int64_t first = 0; first < steps; first += STEPS_AT_ONCE) {
        const int64_t here = std::min(steps - first, STEPS_AT_ONCE);
        for (int64_t t = 0, i = 0, rows; t < count; ++t, i += rows) {
            rows = least + (t < larger);
            copies[rows - 1](a + first * a_step + i, a_step, here, tiles + i * steps + first * rows);
        }
    }
}

}  // namespace norch::matmul
