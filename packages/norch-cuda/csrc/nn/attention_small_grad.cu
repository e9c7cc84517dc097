// The gradient of attention of float32 where all queries and keys of a head fit one tile: one kernel does all. 256 threads
// are 16 rows of 16: thread (y, x) has rows R * y to R * y + R - 1 of a result; half a warp has them whole.
#include "nn/attention.cuh"

namespace norch::nn {
namespace {

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

/// acc[r][c] += a[r] . b[16 * c] over D floats of rows of `a` and `b`: a product with a transposed matrix.
template <int D, int R, int C>
__device__ inline void add_dots(float (&acc)[R][C], const float* a, const float* b) {
#pragma unroll 1  // there are no registers for more
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

/// Masks the scaled scores of a tile whose first row and column, a multiple of 64, are those given.
template <int R>
__device__ inline void apply_mask(float (&s)[R][4], const HeadMask& mask, int row, int column, int rows, int columns) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const char* from = mask.at + min(row + thread_y() * R + r, rows - 1) * mask.side.row;
        if (mask.is_bits) {
            const auto words = *reinterpret_cast<const Packet<uint32_t, 2>*>(from + column / 8);
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if (!(words.v[c / 2] >> (c % 2 * 16 + thread_x()) & 1)) s[r][c] = -INFINITY;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c)
                s[r][c] += *reinterpret_cast<const float*>(from + min(column + thread_x() + 16 * c, columns - 1) *
                                                                      mask.side.column);
        }
    }
}


template <int D>
constexpr size_t BACKWARD_BYTES = 4 * (4 * BLOCK * PITCH<float, D> + BLOCK * WEIGHTS_PITCH);

template <int D>
__device__ inline void store_block(const Attention<BACKWARD>& a, const Place<BACKWARD>& place, int operand,
                                   const float (&acc)[4][D / 16], float factor, int first) {
    const float factors[4] = {factor, factor, factor, factor};
    store_rows<D>(place.at[operand], a.side[operand], acc, factors, first,
                  operand == B_FOR_QUERY ? a.queries : a.keys, operand == B_FOR_VALUE ? a.values : a.size,
                  has_packets(a, operand));
}

/// The scores of some queries and keys, and the slopes of the weights that those give.
template <int D>
__device__ inline void score(float (&s)[4][4], float (&slope)[4][4], const Attention<BACKWARD>& a, const char* mask,
                             const float* query, const float* grad, const float* key, const float* value, int first,
                             int k) {
    constexpr int P = PITCH<float, D>;
    const int x = thread_x(), y = thread_y();
    add_dots<D>(s, query + y * 4 * P, key + x * P);
    add_dots<D>(slope, grad + y * 4 * P, value + x * P);
    scale_scores(s, a.scale, a.is_causal, first, k, a.keys);
    if (a.data[B_MASK]) apply_mask(s, mask_of(a.mask, mask, false), first, k, a.queries, a.keys);
}

/// A thread's part of the tile of weights, or of slopes.
__device__ inline void write_tile(float* own, const float (&x)[4][4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) own[r * WEIGHTS_PITCH + 16 * c] = x[r][c];
}

/// A head of at most 64 queries and 64 keys: by one block, or by two where there are few heads, for its queries and for
/// its keys.
template <int D>
__global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2) small_kernel(const __grid_constant__ Attention<BACKWARD> a) {
    constexpr int P = PITCH<float, D>;
    extern __shared__ __align__(16) float shared[];
    float *query = shared, *grad = query + BLOCK * P, *key = grad + BLOCK * P, *value = key + BLOCK * P;
    float* weights = value + BLOCK * P;
    const Place<BACKWARD> place(a, false);
    const int x = thread_x(), y = thread_y();
    load_block<float, D, BLOCK, THREADS>(query, a, place, B_QUERY, 0);
    load_block<float, D, BLOCK, THREADS>(key, a, place, B_KEY, 0);
    load_block<float, D, BLOCK, THREADS>(grad, a, place, B_GRAD, 0);
    load_block<float, D, BLOCK, THREADS>(value, a, place, B_VALUE, 0);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[4][4] = {}, slope[4][4] = {};
    score<D>(s, slope, a, place.at[B_MASK], query, grad, key, value, 0, 0);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const float base = base_of(largest_of_16(fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]))));
        float sum = 0, mean = 0;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            s[r][c] = expf(s[r][c] - base);
            sum += s[r][c];
            mean += s[r][c] * slope[r][c];
        }
        const float factor = factor_of(sum_of_16(sum), a.data[B_MASK]);
        mean = sum_of_16(mean) * factor;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            s[r][c] *= factor;
            slope[r][c] = (slope[r][c] - mean) * s[r][c];
        }
    }
    float* own = weights + y * 4 * WEIGHTS_PITCH + x;
    const bool is_for_keys = place.tile == 0, is_for_queries = a.tiles.divisor == 1 || !is_for_keys;
    const int from = a.is_causal ? y * 4 : 0;  // a key has no weight for the queries before it
    if (is_for_keys) {
        write_tile(own, s);
        __syncthreads();
        float acc[4][D / 16] = {};
        add_turned_product<D>(acc, weights + y * 4, grad, from, a.queries);
        store_block<D>(a, place, B_FOR_VALUE, acc, 1.0f, 0);
        __syncthreads();
    }
    write_tile(own, slope);
    __syncthreads();
    if (is_for_keys) {
        float acc[4][D / 16] = {};
        add_turned_product<D>(acc, weights + y * 4, query, from, a.queries);
        store_block<D>(a, place, B_FOR_KEY, acc, a.scale, 0);
    }
    if (is_for_queries) {
        float acc[4][D / 16] = {};
        add_product<D>(acc, weights + y * 4 * WEIGHTS_PITCH, key, (keys_seen(a, y * 4 + 4) + 3) & ~3);
        store_block<D>(a, place, B_FOR_QUERY, acc, a.scale, 0);
    }
}

template <int D>
void attend_grad(const Attention<BACKWARD>& a) {
    constexpr size_t bytes = BACKWARD_BYTES<D>;
    static_assert(bytes <= ATTENTION_SHARED_BYTES, "attention.cu asks whether there is this much");
    const int parts = int(a.heads()) < multiprocessors() ? 2 : 1;
    launch_tiles<small_kernel<D>>(a, parts, 1, THREADS, bytes);
}

}  // namespace

void attend_small_grad(const Attention<BACKWARD>& a) {
    const int width = std::max(a.size, a.values);
    if (width <= 32) attend_grad<32>(a);
    else if (width <= 64) attend_grad<64>(a);
    else attend_grad<128>(a);
}

}  // namespace norch::nn
