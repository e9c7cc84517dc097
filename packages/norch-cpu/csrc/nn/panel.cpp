#include "nn/panel.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace norch::nn {
namespace {

constexpr int64_t PANEL_BYTES = 24 << 10;  // of a panel at a time: it stays in the first cache
constexpr int64_t CHUNK_STEPS = 64;  // products that are summed on their own: in one long sum rounding errors pile up

/// R rows of sums, V vectors each, all in registers.
template <class T, int R, int V>
void multiply_tile(const T* x, const int64_t* rows, const int64_t* steps, int64_t count, const T* panel, const T* start,
                   int64_t start_stride, T* out) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> sums[R][V] = {};
    const T* from[R];
    NORCH_UNROLL
    for (int r = 0; r < R; ++r) from[r] = x + rows[r];
    const int64_t* end = steps + count;
    do {  // count is not 0: GCC keeps the sums in registers around the loop only if it cannot be skipped
        const int64_t step = *steps;
        vector_t<T, L> factors[V];
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) factors[v] = load_vector<L>(panel + v * L);
        NORCH_UNROLL
        for (int r = 0; r < R; ++r) {
            const T value = from[r][step];
            NORCH_UNROLL
            for (int v = 0; v < V; ++v) sums[r][v] += factors[v] * value;
        }
        panel += V * L;
    } while (++steps != end);
    NORCH_UNROLL
    for (int r = 0; r < R; ++r) {
        NORCH_UNROLL
        for (int v = 0; v < V; ++v)
            store_vector(out + (r * V + v) * L, load_vector<L>(start + r * start_stride + v * L) + sums[r][v]);
    }
}

template <class T>
using Tile = void (*)(const T*, const int64_t*, const int64_t*, int64_t, const T*, const T*, int64_t, T*);

/// As many rows as the registers hold beside the factors and one value.
constexpr int max_rows(int vectors) {
    return MAX_VECTORS == 4 ? (vectors == 4 ? 6 : 8) : (vectors == 2 ? 6 : 8);
}

template <class T, int V, int... R>
Tile<T> tile_of(int rows, std::integer_sequence<int, R...>) {
    static constexpr Tile<T> tiles[] = {multiply_tile<T, R + 1, V>...};
    return tiles[rows - 1];
}

template <class T>
Tile<T> find_tile(int rows, int vectors) {
    constexpr std::integer_sequence<int, 0, 1, 2, 3, 4, 5> six;
    constexpr std::integer_sequence<int, 0, 1, 2, 3, 4, 5, 6, 7> eight;
    if constexpr (MAX_VECTORS == 4) {
        if (vectors == 4) return tile_of<T, 4>(rows, six);
        if (vectors == 3) return tile_of<T, 3>(rows, eight);
        if (vectors == 2) return tile_of<T, 2>(rows, eight);
    } else {
        if (vectors == 2) return tile_of<T, 2>(rows, six);
    }
    return tile_of<T, 1>(rows, eight);
}

}  // namespace

template <class T>
std::vector<Block> blocks_of(int64_t channels, int64_t wanted) {
    std::vector<Block> out;
    int64_t vectors = (channels + SIMD_WIDTH<T> - 1) / SIMD_WIDTH<T>;
    int64_t count = std::max((vectors + MAX_VECTORS - 1) / MAX_VECTORS, std::min(wanted, vectors / 2));
    for (int64_t i = 0, done = 0; i < count; ++i) {
        int64_t here = vectors / count + (i < vectors % count);
        int64_t first = done * SIMD_WIDTH<T>;
        out.push_back({first, std::min(here * SIMD_WIDTH<T>, channels - first), int(here)});
        done += here;
    }
    return out;
}

template <class T>
void multiply_gathered(const T* x, const int64_t* rows, int64_t row_count, const int64_t* steps, int64_t step_count,
                       const T* panel, int vectors, const T* start, int64_t start_stride, T* out) {
    const int64_t width = int64_t(vectors) * SIMD_WIDTH<T>;
    if (!row_count) return;
    if (!step_count) {
        for (int64_t r = 0; r < row_count; ++r) std::copy_n(start + r * start_stride, width, out + r * width);
        return;
    }
    const int64_t at_once = std::min(CHUNK_STEPS, PANEL_BYTES / (width * int64_t(sizeof(T))));
    // Tiles of about one size: two of 5 rows and 4, not one of 8 and one of 1.
    const int64_t tiles = (row_count + max_rows(vectors) - 1) / max_rows(vectors);
    const int64_t least = row_count / tiles, larger = row_count % tiles;
    const Tile<T> tile = find_tile<T>(int(least), vectors);
    const Tile<T> larger_tile = larger ? find_tile<T>(int(least) + 1, vectors) : nullptr;
    for (int64_t t = 0, count; t < step_count; t += count) {
        count = std::min(at_once, step_count - t);
        int64_t r = 0;
        for (int64_t i = 0; i < tiles; ++i) {
            (i < larger ? larger_tile : tile)(x, rows + r, steps + t, count, panel + t * width, start + r * start_stride,
                                              start_stride, out + r * width);
            r += least + (i < larger);
        }
        start = out;
        start_stride = width;
    }
}

template std::vector<Block> blocks_of<float>(int64_t, int64_t);
template std::vector<Block> blocks_of<double>(int64_t, int64_t);
template void multiply_gathered(const float*, const int64_t*, int64_t, const int64_t*, int64_t, const float*, int,
                                const float*, int64_t, float*);
template void multiply_gathered(const double*, const int64_t*, int64_t, const int64_t*, int64_t, const double*, int,
                                const double*, int64_t, double*);

}  // namespace norch::nn
