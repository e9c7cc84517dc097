// Products of tiles in shared memory for float32 attention. 256 threads are 16 rows of 16: thread (y, x) has rows
// R * y to R * y + R - 1 of a result; half a warp has them whole.
#pragma once

#include "nn/attention.cuh"

namespace norch::nn {

constexpr int BLOCK = 64;                 // keys (or queries) in a tile of an inner loop
constexpr int WEIGHTS_PITCH = BLOCK + 4;  // of the tile of weights, or of their slopes

__device__ inline int thread_x() { return threadIdx.x % 16; }
__device__ inline int thread_y() { return threadIdx.x / 16; }

/// Which column of a result of D columns a thread's column c is.
template <int D>
__device__ inline int column_of(int c) {
    if constexpr (D >= 64) return c / 4 * 64 + thread_x() * 4 + c % 4;
    else return thread_x() * (D / 16) + c;
}

/// The columns of thread x in a row of D floats, in as few accesses as there can be.
template <int D>
__device__ inline void load_columns(float (&y)[D / 16], const float* row) {
    constexpr int VEC = D >= 64 ? 4 : D / 16;
#pragma unroll
    for (int c = 0; c < D / 16; c += VEC) {
        auto packet = *reinterpret_cast<const Packet<float, VEC>*>(row + column_of<D>(c));
#pragma unroll
        for (int i = 0; i < VEC; ++i) y[c + i] = packet.v[i];
    }
}

/// acc[r][c] += a[r] . b[16 * c] over D floats of rows of `a` and `b`: a product with a transposed matrix. The kernels
/// of the gradient have no registers for UNROLL > 1.
template <int D, int UNROLL = 1, int R, int C>
__device__ inline void add_dots(float (&acc)[R][C], const float* a, const float* b) {
#pragma unroll UNROLL
    for (int k = 0; k < D; k += 4) {
        Packet<float, 4> x[R], y[C];
#pragma unroll
        for (int r = 0; r < R; ++r) x[r] = *reinterpret_cast<const Packet<float, 4>*>(a + r * PITCH<float, D> + k);
#pragma unroll
        for (int c = 0; c < C; ++c) y[c] = *reinterpret_cast<const Packet<float, 4>*>(b + 16 * c * PITCH<float, D> + k);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int r = 0; r < R; ++r)
#pragma unroll
                for (int c = 0; c < C; ++c) acc[r][c] += x[r].v[i] * y[c].v[i];
    }
}

/// acc[r] += weights[r] @ b for rows of weights and a tile b of D columns; `end` a multiple of 4.
template <int D, int R>
__device__ inline void add_product(float (&acc)[R][D / 16], const float* weights, const float* b, int end) {
#pragma unroll 2
    for (int k = 0; k < end; k += 4) {
        Packet<float, 4> x[R];
#pragma unroll
        for (int r = 0; r < R; ++r) x[r] = *reinterpret_cast<const Packet<float, 4>*>(weights + r * WEIGHTS_PITCH + k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float y[D / 16];
            load_columns<D>(y, b + (k + i) * PITCH<float, D>);
#pragma unroll
            for (int r = 0; r < R; ++r)
#pragma unroll
                for (int c = 0; c < D / 16; ++c) acc[r][c] += x[r].v[i] * y[c];
        }
    }
}

/// acc[r] += weights[:, r] @ b, for 4 columns of weights from `weights` on.
template <int D>
__device__ inline void add_turned_product(float (&acc)[4][D / 16], const float* weights, const float* b, int begin,
                                          int end) {
#pragma unroll 4
    for (int k = begin; k < end; ++k) {
        auto x = *reinterpret_cast<const Packet<float, 4>*>(weights + k * WEIGHTS_PITCH);
        float y[D / 16];
        load_columns<D>(y, b + k * PITCH<float, D>);
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int c = 0; c < D / 16; ++c) acc[r][c] += x.v[r] * y[c];
    }
}

/// Writes a thread's part of a tile whose row 0 is row `first` of a matrix (rows, columns), times factor[r].
template <int D, int R>
__device__ inline void store_rows(char* to, Side side, const float (&acc)[R][D / 16], const float (&factor)[R],
                                  int first, int rows, int columns, bool packets) {
    constexpr int VEC = D >= 64 ? 4 : D / 16;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int row = first + thread_y() * R + r;
        if (row >= rows) return;
        char* at = to + row * side.row;
#pragma unroll
        for (int c = 0; c < D / 16; c += VEC) {
            const int column = column_of<D>(c);
            if (packets && column < columns) {
                Packet<float, VEC> packet;
#pragma unroll
                for (int i = 0; i < VEC; ++i) packet.v[i] = acc[r][c + i] * factor[r];
                *reinterpret_cast<Packet<float, VEC>*>(at + column * 4) = packet;
            } else {
#pragma unroll
                for (int i = 0; i < VEC; ++i)
                    if (column + i < columns)
                        *reinterpret_cast<float*>(at + (column + i) * side.column) = acc[r][c + i] * factor[r];
            }
        }
    }
}

__device__ inline float sum_of_16(float x) {
#pragma unroll
    for (int lane = 8; lane; lane /= 2) x += __shfl_xor_sync(0xffffffff, x, lane);
    return x;
}
__device__ inline float largest_of_16(float x) {
#pragma unroll
    for (int lane = 8; lane; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, lane));
    return x;
}

/// Scores scaled, -inf where a query may not look. The tile's first query and key are those given.
template <int R, int C>
__device__ inline void scale_scores(float (&s)[R][C], float scale, bool is_causal, int query, int key, int keys) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int row = query + thread_y() * R + r, end = is_causal ? min(keys, row + 1) : keys;
#pragma unroll
        for (int c = 0; c < C; ++c) s[r][c] = key + thread_x() + 16 * c < end ? s[r][c] * scale : -INFINITY;
    }
}

}  // namespace norch::nn
