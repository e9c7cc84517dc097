// Products of tiles for attention on the tensor cores of sm_80 on: of 16-bit floats by mma.m16n8k16; of float32 by
// mma.m16n8k8, each as three of parts that 19 bits hold (Ootomo and Yokota, "Recovering single precision accuracy from
// Tensor Cores", 2022). A warp has 16 rows of a result (or several times 16) and all of its columns: lane l has of each 16
// by 8 part the columns 2 * (l % 4) and the next, of rows l / 4 (elements 0 and 1) and l / 4 + 8 (elements 2 and 3).
#pragma once

#include "nn/attention.cuh"

namespace norch::nn {

constexpr int TILE_THREADS = 128;
constexpr float LOG2E = 1.4426950408889634f;

__device__ inline int lane_id() { return threadIdx.x % 32; }
__device__ inline int warp_id() { return threadIdx.x / 32; }

template <bool TURNED>
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) {
    const uint32_t address = uint32_t(__cvta_generic_to_shared(row));
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

/// How much an mma sums: 32 bytes of a row of the left factor.
template <class T>
constexpr int DEPTH = 32 / int(sizeof(T));

__device__ inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// A float32 rounded to the bits that the tensor cores take, and what is left, of which they drop the others.
__device__ inline uint32_t leading(uint32_t x) { return (x + 0x1000u) & 0xffffe000u; }
__device__ inline uint32_t trailing(uint32_t x) {
    return __float_as_uint(__uint_as_float(x) - __uint_as_float(leading(x))) + 0x1000u;
}

template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, float>) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) high[i] = leading(a[i]), low[i] = trailing(a[i]);
        // The tensor cores cut their sums off, so that long ones are taken outside of them.
        float part[4] = {};
        multiply_add_tf32(part, low, leading(b0), leading(b1));
        multiply_add_tf32(part, high, trailing(b0), trailing(b1));
        multiply_add_tf32(part, high, leading(b0), leading(b1));
#pragma unroll
        for (int i = 0; i < 4; ++i) c[i] += part[i];
    } else if constexpr (std::is_same_v<T, __half>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class T>
__device__ inline uint32_t pack(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 pair = __floats2half2_rn(low, high);
        memcpy(&bits, &pair, 4);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        memcpy(&bits, &pair, 4);
    }
    return bits;
}

__device__ inline float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Part k of the columns of 16 rows of a tile, as a left factor.
template <class T, int D>
__device__ inline void load_left(uint32_t (&r)[4], const T* rows, int k) {
    const int lane = lane_id();
    load_matrices<false>(r, rows + lane % 16 * PITCH<T, D> + k * DEPTH<T> + lane / 16 * (DEPTH<T> / 2));
}

/// acc += a @ b^T over D for a tile b of 8 * N rows; `left(m, k, r)` gives part k of a's rows m * 16 to m * 16 + 15.
template <class T, int D, int M, int N, class Left>
__device__ inline void add_dots(float (&acc)[M][N][4], const T* b, const Left& left) {
    const int lane = lane_id();
    const T* from = b + (lane % 8 + lane / 16 * 8) * PITCH<T, D> + lane / 8 % 2 * (DEPTH<T> / 2);
#pragma unroll
    for (int k = 0; k < D / DEPTH<T>; ++k) {
        uint32_t x[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m) left(m, k, x[m]);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t y[4];
            load_matrices<false>(y, from + n * 8 * PITCH<T, D> + k * DEPTH<T>);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply_add<T>(acc[m][n], x[m], y[0], y[1]);
                multiply_add<T>(acc[m][n + 1], x[m], y[2], y[3]);
            }
        }
    }
}

/// Computes scores again that infinite factors have made NaN, whose parts are not finite: for 16 rows of `a` and a tile b.
template <class T, int D, int N>
__device__ inline void mend_scores(float (&s)[N][4], const T* a, const T* b) {
    if constexpr (std::is_same_v<T, float>) {
        const T* rows = a + lane_id() / 4 * PITCH<T, D>;
        const T* columns = b + lane_id() % 4 * 2 * PITCH<T, D>;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (s[n][i] == s[n][i]) continue;
                float sum = 0;
#pragma unroll 1
                for (int d = 0; d < D; ++d)
                    sum += rows[i / 2 * 8 * PITCH<T, D> + d] * columns[(n * 8 + i % 2) * PITCH<T, D> + d];
                s[n][i] = sum;
            }
    }
}

/// acc += w @ b for a result w of this warp (8 * N columns), rounded to T, and 8 * C columns of a tile b of 8 * N rows of D.
template <class T, int D, int M, int C, int N>
__device__ inline void add_product(float (&acc)[M][C][4], const float (&w)[M][N][4], const T* b) {
    const int lane = lane_id();
    if constexpr (std::is_same_v<T, float>) {
        // A lane's columns of w, 2 * (l % 4) and the next, count as those that the mma takes from it, l % 4 and l % 4 + 4.
        const T* from = b + lane % 4 * 2 * PITCH<T, D> + lane / 4;
#pragma unroll
        for (int k = 0; k < N; ++k)
#pragma unroll
            for (int n = 0; n < C; ++n) {
                const T* at = from + k * 8 * PITCH<T, D> + n * 8;
                const uint32_t y[2] = {__float_as_uint(at[0]), __float_as_uint(at[PITCH<T, D>])};
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    const float(&own)[4] = w[m][k];
                    const uint32_t x[4] = {__float_as_uint(own[0]), __float_as_uint(own[2]), __float_as_uint(own[1]),
                                           __float_as_uint(own[3])};
                    multiply_add<T>(acc[m][n], x, y[0], y[1]);
                }
            }
    } else {
        const T* from = b + lane % 16 * PITCH<T, D> + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < N / 2; ++k) {
            uint32_t x[M][4];
#pragma unroll
            for (int m = 0; m < M; ++m) {
                x[m][0] = pack<T>(w[m][2 * k][0], w[m][2 * k][1]);
                x[m][1] = pack<T>(w[m][2 * k][2], w[m][2 * k][3]);
                x[m][2] = pack<T>(w[m][2 * k + 1][0], w[m][2 * k + 1][1]);
                x[m][3] = pack<T>(w[m][2 * k + 1][2], w[m][2 * k + 1][3]);
            }
#pragma unroll
            for (int n = 0; n < C; n += 2) {
                uint32_t y[4];
                load_matrices<true>(y, from + k * 16 * PITCH<T, D> + n * 8);
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    multiply_add<T>(acc[m][n], x[m], y[0], y[1]);
                    multiply_add<T>(acc[m][n + 1], x[m], y[2], y[3]);
                }
            }
        }
    }
}

/// Writes 16 rows of a result (8 * C columns) times a factor for either half of them, by way of 16 rows of shared memory that
/// are this warp's.
template <class T, int D, int C>
__device__ inline void store_rows(char* to, Side side, T* staging, const float (&acc)[C][4], float low, float high,
                                  int first, int rows, int columns, bool packets) {
    constexpr int VEC = PER_16_BYTES<T>;
    const int lane = lane_id();
    T* own = staging + lane / 4 * PITCH<T, D> + lane % 4 * 2;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < C; ++n) {
        *reinterpret_cast<Packet<T, 2>*>(own + n * 8) = {downcast<T>(acc[n][0] * low), downcast<T>(acc[n][1] * low)};
        *reinterpret_cast<Packet<T, 2>*>(own + 8 * PITCH<T, D> + n * 8) = {downcast<T>(acc[n][2] * high),
                                                                           downcast<T>(acc[n][3] * high)};
    }
    __syncwarp();
    if (packets) {
#pragma unroll
        for (int i = lane; i < 16 * 8 * C / VEC; i += 32) {
            const int r = i / (8 * C / VEC), c = i % (8 * C / VEC) * VEC;
            if (first + r < rows && c < columns)
                *reinterpret_cast<uint4*>(to + (first + r) * side.row + c * int(sizeof(T))) =
                    *reinterpret_cast<const uint4*>(staging + r * PITCH<T, D> + c);
        }
    } else {
        for (int i = lane; i < 16 * 8 * C; i += 32) {
            const int r = i / (8 * C), c = i % (8 * C);
            if (first + r < rows && c < columns)
                *reinterpret_cast<T*>(to + (first + r) * side.row + c * side.column) = staging[r * PITCH<T, D> + c];
        }
    }
}

__device__ inline int ceil_to_warp(int count) { return (count + 31) / 32 * 32; }

/// Over the 4 lanes that have a row.
__device__ inline float sum_of_4(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}
__device__ inline float largest_of_4(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

/// -inf for the scores of keys that a query may not look at. `query` and `key` are the first of the warp's part.
template <int N>
__device__ inline void hide(float (&s)[N][4], bool is_causal, int query, int key, int keys) {
    const int lane = lane_id(), row = query + lane / 4, column = key + lane % 4 * 2;
    const int ends[2] = {is_causal ? min(keys, row + 1) : keys, is_causal ? min(keys, row + 9) : keys};
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (column + n * 8 + i % 2 >= ends[i / 2]) s[n][i] = -INFINITY;
}

/// What masks that add some large negative number make of a score: less would leave no digits for what a row is summed to.
constexpr float HIDDEN = -1e5f;

/// Scores scaled and masked, for COUNT columns from `column` on, a multiple of COUNT; `row`: the first of this lane's two
/// rows; `at(j, i)`: number i of a lane's four in columns 8 * j to 8 * j + 7. Columns past the last get any number.
template <class T, int COUNT, class At>
__device__ inline void apply_mask(const HeadMask& mask, int row, int column, int rows, int columns, float scale,
                                  const At& at) {
    const int pair = lane_id() % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const char* from = mask.at + min(row + 8 * half, rows - 1) * mask.side.row;
        if (mask.is_bits) {
            const auto words = *reinterpret_cast<const Packet<uint32_t, COUNT / 32>*>(from + column / 8);
#pragma unroll
            for (int j = 0; j < COUNT / 8; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& s = at(j, 2 * half + i);
                    s = words.v[j / 4] >> (j % 4 * 8 + i + pair) & 1 ? s * scale : -INFINITY;
                }
        } else {
#pragma unroll
            for (int j = 0; j < COUNT / 8; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int c = min(column + 8 * j + pair + i, columns - 1);
                    float& s = at(j, 2 * half + i);
                    s = s * scale + upcast(*reinterpret_cast<const T*>(from + c * mask.side.column));
                    if (s < HIDDEN && s > -INFINITY) s = HIDDEN;
                }
        }
    }
}

/// The largest score so far of the two rows of a lane, and what earlier sums are to be multiplied by.
template <int N>
__device__ inline void raise_largest(float (&largest)[2], float (&rescale)[2], const float (&s)[N][4], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float now = largest[half];
#pragma unroll
        for (int n = 0; n < N; ++n) now = fmaxf(now, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        now = largest_of_4(now);
        rescale[half] = exp2_of((largest[half] - base_of(now)) * scale);
        largest[half] = now;
    }
}

}  // namespace norch::nn
