// The innermost loops of matrix products: R rows by V vectors of sums that stay in registers.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/simd.h"

namespace norch::matmul {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int TILE_ROWS = 12;  // 32 registers: 24 of sums, 2 of b's vectors, the rest for elements of a
constexpr bool FETCHES_FAR = false;
#else
constexpr int TILE_ROWS = 6;
/// Whether lines a page or more apart are fetched wherever they are known beforehand: Zen 3 gains up to 70%, Intel's
/// processors with AVX-512 lose some percent.
constexpr bool FETCHES_FAR = true;
#endif
constexpr int TILE_VECTORS = 2;
constexpr int PREFETCH_STEPS = 192 / TILE_ROWS;  // as many cycles ahead with few rows as with many
constexpr int64_t CHUNK_STEPS = 256;  // products that are summed on their own: in one long sum rounding errors pile up

/// What a tile reads: a's element (i, p) at a[i * a_row + p * a_step], b's vectors at b + p * b_step, what the sums begin
/// with at start + i * start_row (0: one row for all).
template <class T>
struct TileInput {
    const T* a;
    int64_t a_row, a_step;
    const T* b;
    int64_t b_step;
    int64_t k;  // at least 1
    const T* start;
    int64_t start_row;
    T* panel = nullptr;        // where a kernel that packs leaves the vectors of b, step after step
    const T* ahead = nullptr;  // what the next tile will read of a, which a kernel that looks ahead fetches meanwhile
    int64_t ahead_step = 0;    // and where its next step lies; for one that packs, how far behind b what it fetches lies
};

enum class Tile { plain, packs, looks_ahead };

/// c[i][j] = start[i][j] + the sum over p of a[i][p] * b[p][j]; j goes over V vectors of L lanes. c may be start.
template <class T, int L, int R, int V, Tile KIND>
void multiply_rows(const TileInput<T>& in, T* c, int64_t c_row) {
    // Three rows of a share a pointer, since there are not registers enough for one each.
    constexpr int GROUPS = (R + 2) / 3;
    const T* a[GROUPS];
    NORCH_UNROLL
    for (int g = 0; g < GROUPS; ++g) a[g] = in.a + 3 * g * in.a_row;
    const int64_t a_row = in.a_row, a_step = in.a_step, b_step = in.b_step;
    [[maybe_unused]] const int64_t ahead_step = in.ahead_step;
    const T *b = in.b, *ahead = in.ahead;
    T* panel = in.panel;
    const T* start = in.start;
    int64_t start_row = in.start_row, left = in.k;
    do {
        int64_t k = left < CHUNK_STEPS ? left : CHUNK_STEPS;
        left -= k;
        vector_t<T, L> sums[R][V] = {};
        do {  // GCC keeps the sums in registers only around a loop that cannot be skipped
            vector_t<T, L> factors[V];
            NORCH_UNROLL
            for (int v = 0; v < V; ++v) factors[v] = load_vector<L>(b + v * L);
            if constexpr (KIND == Tile::packs) {
                NORCH_UNROLL
                for (int v = 0; v < V; ++v) {
                    store_vector(panel + v * L, factors[v]);
                    __builtin_prefetch(b + ahead_step + v * L);  // no processor foresees such large strides
                }
                panel += V * L;
            }
            if constexpr (KIND == Tile::looks_ahead) {
                __builtin_prefetch(ahead);
                ahead += ahead_step;
            }
            NORCH_UNROLL
            for (int r = 0; r < R; ++r) {
                const T value = a[r / 3][r % 3 * a_row];
                NORCH_UNROLL
                for (int v = 0; v < V; ++v) sums[r][v] += factors[v] * value;
            }
            NORCH_UNROLL
            for (int g = 0; g < GROUPS; ++g) a[g] += a_step;
            b += b_step;
        } while (--k);
        T* to = c;
        const T* from = start;
        int64_t to_row = c_row, from_row = start_row;
        asm("" : "+r"(to), "+r"(from), "+r"(to_row), "+r"(from_row));  // else GCC finds all rows' addresses before the loop
        NORCH_UNROLL
        for (int r = 0; r < R; ++r, to += to_row, from += from_row) {
            NORCH_UNROLL
            for (int v = 0; v < V; ++v) store_vector(to + v * L, load_vector<L>(from + v * L) + sums[r][v]);
        }
        start = c, start_row = c_row;
    } while (left);
}

template <class T>
using TileKernel = void (*)(const TileInput<T>&, T* c, int64_t c_row);

template <class T, int L, int V, Tile KIND, int... R>
TileKernel<T> tile_among(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr TileKernel<T> kernels[] = {multiply_rows<T, L, R + 1, V, KIND>...};
    return kernels[rows - 1];
}

/// The kernel for 1 to TILE_ROWS rows.
template <class T, int L, int V, Tile KIND = Tile::plain>
TileKernel<T> tile_kernel(int64_t rows) {
    return tile_among<T, L, V, KIND>(rows, std::make_integer_sequence<int, TILE_ROWS>());
}

/// The tiles that most products are made of: compiled once, in gemm.cpp.
template <>
TileKernel<float> tile_kernel<float, SIMD_WIDTH<float>, TILE_VECTORS>(int64_t rows);

/// Calls f(first row, tile kernel, rows) for tiles of about one size: of 14 rows two of 7, not one of 12 and one of 2.
template <class T, class F>
void for_tiles(int64_t rows, TileKernel<T> (*kernel_for)(int64_t rows), const F& f) {
    const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, least = rows / tiles, larger = rows % tiles;
    for (int64_t t = 0, i = 0, here; t < tiles; ++t, i += here) {
        here = least + (t < larger);
        f(i, kernel_for(here), here);
    }
}

}  // namespace norch::matmul
