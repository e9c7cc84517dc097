// Attention by tiles: products on the tensor cores, sums and the softmax in float32.
#include "nn/attention_tiles.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

template <class T, int D>
constexpr int KEYS_OF = D * sizeof(T) > 256 ? 32 : 64;  // in a tile

template <class T, int D, int M>
constexpr size_t FORWARD_BYTES = sizeof(T) * (64 * M + 4 * KEYS_OF<T, D>) * PITCH<T, D>;

/// What a block found whose keys are a part of all: of each of its 64 rows D sums of weighted values, the largest score and
/// the sum of the weights relative to that. No data where a block has all keys.
struct Parts {
    float* out;
    float2* facts;
    int32_t keys;  // of a part

    __device__ int64_t row(int part, int head) const { return (int64_t(part) * gridDim.x + head) * 64; }
};

/// 64 * M queries of a head, 16 * M of them a warp's. Keys and values of the next tile come while one is worked on.
template <class T, int D, int M>
__global__ void __launch_bounds__(TILE_THREADS)
    forward_kernel(const __grid_constant__ Attention<FORWARD> a, const Parts parts) {
    constexpr int ROWS = 64 * M, P = PITCH<T, D>, KEYS = KEYS_OF<T, D>, N = KEYS / 8;
    extern __shared__ __align__(16) char shared[];
    T *query = reinterpret_cast<T*>(shared), *key = query + ROWS * P, *value = key + 2 * KEYS * P;
    const Place<FORWARD> place(a, a.is_causal);
    const int first = int(place.tile) * ROWS, own = first + warp_id() * 16 * M;
    const int begin = int(blockIdx.y) * parts.keys;
    const int seen = parts.out ? min(a.keys, begin + parts.keys) : keys_seen(a, min(first + ROWS, a.queries));
    const bool has_mask = a.data[F_MASK];
    const HeadMask mask = mask_of(a.mask, place.at[F_MASK], false);
    const float scale = has_mask ? LOG2E : a.scale * LOG2E;  // masked scores are scaled already
    auto load_keys = [&](int k, int stage) {
        load_tile<T, D, KEYS, TILE_THREADS>(key + stage * KEYS * P, place.at[F_KEY], a.side[F_KEY], k, a.keys, a.size,
                                            has_packets(a, F_KEY));
        load_tile<T, D, KEYS, TILE_THREADS>(value + stage * KEYS * P, place.at[F_VALUE], a.side[F_VALUE], k, a.keys,
                                            a.values, has_packets(a, F_VALUE));
        commit_copies();
    };
    load_tile<T, D, ROWS, TILE_THREADS>(query, place.at[F_QUERY], a.side[F_QUERY], first, a.queries, a.size,
                                        has_packets(a, F_QUERY));
    load_keys(begin, 0);

    T* own_query = query + warp_id() * 16 * M * P;
    constexpr bool KEEPS_QUERY = M * D * sizeof(T) <= 256;  // in registers
    uint32_t left[KEEPS_QUERY ? M : 1][KEEPS_QUERY ? D / DEPTH<T> : 1][4];
    float largest[M][2], sum[M][2] = {}, out[M][D / 8][4] = {};
#pragma unroll
    for (int m = 0; m < M; ++m) largest[m][0] = largest[m][1] = -INFINITY;
    for (int k = begin, stage = 0; k < seen; k += KEYS, stage ^= 1) {
        if (k + KEYS < seen) {
            load_keys(k + KEYS, stage ^ 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        if (KEEPS_QUERY && k == begin) {
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int i = 0; i < D / DEPTH<T>; ++i)
                    if constexpr (KEEPS_QUERY) load_left<T, D>(left[m][i], own_query + m * 16 * P, i);
        }
        if (own >= a.queries) {  // the others' copies come from all
            __syncthreads();
            continue;
        }
        float s[M][N][4] = {};
        add_dots<T, D>(s, key + stage * KEYS * P, [&](int m, int i, uint32_t(&r)[4]) {
            if constexpr (KEEPS_QUERY) {
#pragma unroll
                for (int j = 0; j < 4; ++j) r[j] = left[m][i][j];
            } else {
                load_left<T, D>(r, own_query + m * 16 * P, i);
            }
        });
        const bool hides = k + KEYS > a.keys || (a.is_causal && k + KEYS > own + 1);
#pragma unroll
        for (int m = 0; m < M; ++m) {
            mend_scores<T, D>(s[m], own_query + m * 16 * P, key + stage * KEYS * P);
            if (has_mask)
                apply_mask<T, KEYS>(mask, own + m * 16 + lane_id() / 4, k, a.queries, a.keys, a.scale,
                                    [&](int j, int i) -> float& { return s[m][j][i]; });
            if (hides) hide(s[m], a.is_causal, own + m * 16, k, a.keys);
            float rescale[2];
            raise_largest(largest[m], rescale, s[m], scale);
            const float base[2] = {base_of(largest[m][0]) * scale, base_of(largest[m][1]) * scale};
            float added[2] = {};
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    s[m][n][i] = exp2_of(s[m][n][i] * scale - base[i / 2]);
                    added[i / 2] += s[m][n][i];
                }
            sum[m][0] = sum[m][0] * rescale[0] + added[0];
            sum[m][1] = sum[m][1] * rescale[1] + added[1];
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) out[m][n][i] *= rescale[i / 2];
        }
        add_product<T, D>(out, s, value + stage * KEYS * P);
        __syncthreads();
    }
    wait_for_copies<0>();  // of a part without keys
#pragma unroll
    for (int m = 0; m < M; ++m) {
        const float total[2] = {sum_of_4(sum[m][0]), sum_of_4(sum[m][1])};
        if (M == 1 && parts.out) {
            const int lane = lane_id();
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = own + lane / 4 + half * 8;
                if (row >= a.queries) continue;
                const int64_t at = parts.row(blockIdx.y, blockIdx.x) + row;
                if (lane % 4 == 0) parts.facts[at] = {largest[m][half], total[half]};
#pragma unroll
                for (int n = 0; n < D / 8; ++n)
                    *reinterpret_cast<float2*>(parts.out + at * D + n * 8 + lane % 4 * 2) = {out[m][n][2 * half],
                                                                                            out[m][n][2 * half + 1]};
            }
            continue;
        }
        if (a.data[F_SUMS] && lane_id() % 4 == 0)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_sum(a, place, own + m * 16 + lane_id() / 4 + half * 8,
                          base_of(largest[m][half]) * (has_mask ? 1.0f : a.scale) + logf(total[half]));
        store_rows<T, D>(place.at[F_OUT], a.side[F_OUT], own_query + m * 16 * P, out[m], factor_of(total[0], has_mask),
                         factor_of(total[1], has_mask), own + m * 16, a.queries, a.values, has_packets(a, F_OUT));
    }
}

/// Puts together what the parts of a head's keys gave, up to 32: a warp for each query.
template <class T>
__global__ void __launch_bounds__(TILE_THREADS)
    join_kernel(const __grid_constant__ Attention<FORWARD> a, Parts parts, int count, int width) {
    const int row = blockIdx.y * (TILE_THREADS / 32) + warp_id(), head = blockIdx.x, lane = lane_id();
    if (row >= a.queries) return;
    const bool has_mask = a.data[F_MASK];
    const float scale = has_mask ? LOG2E : a.scale * LOG2E;
    int64_t offset[FORWARD];
    a.batch.offsets(head, offset);
    const float2 fact = lane < count ? parts.facts[parts.row(lane, head) + row] : float2{-INFINITY, 0};
    float largest = fact.x;
#pragma unroll
    for (int step = 16; step; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, step));
    const float weight = exp2_of((fact.x - base_of(largest)) * scale);
    float total = fact.y * weight;
#pragma unroll
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
    const float factor = factor_of(total, has_mask);
    for (int c = lane; c < ceil_to_warp(a.values); c += 32) {
        float sum = 0;
        for (int p = 0; p < count; ++p)
            sum += __shfl_sync(0xffffffff, weight, p) * parts.out[(parts.row(p, head) + row) * width + min(c, width - 1)];
        if (c < a.values)
            *reinterpret_cast<T*>(a.data[F_OUT] + offset[F_OUT] + row * a.side[F_OUT].row + c * a.side[F_OUT].column) =
                downcast<T>(sum * factor);
    }
    if (a.data[F_SUMS] && lane == 0)
        *reinterpret_cast<float*>(a.data[F_SUMS] + offset[F_SUMS] + row * a.side[F_SUMS].row) =
            base_of(largest) * (has_mask ? 1.0f : a.scale) + logf(total);
}

/// By several blocks for each head, where there are few queries and heads and many keys.
template <class T, int D>
void attend_by_parts(const Attention<FORWARD>& a, int count) {
    const int heads = int(a.heads());
    const int32_t keys = int32_t(ceil_div(ceil_div(a.keys, count), KEYS_OF<T, D>)) * KEYS_OF<T, D>;
    const Scratch<float> out(size_t(count) * heads * 64 * D);
    const Scratch<float2> facts(size_t(count) * heads * 64);
    const Parts parts = {out.data(), facts.data(), keys};
    launch_parts<forward_kernel<T, D, 1>>(a, a.queries, 64, count, TILE_THREADS, FORWARD_BYTES<T, D, 1>, parts);
    const dim3 blocks(uint32_t(heads), uint32_t(ceil_div(a.queries, TILE_THREADS / 32)));
    launch_kernel("attention", join_kernel<T>, blocks, TILE_THREADS, a, parts, count, D);
}

template <class T, int D>
void attend(const Attention<FORWARD>& a) {
    constexpr int LEAST_KEYS = 256;  // of a part
    constexpr int64_t AT_ONCE = 220000 / FORWARD_BYTES<T, D, 1>;  // blocks that a multiprocessor has room for
    const int64_t blocks = std::min<int64_t>(AT_ONCE, 4) * multiprocessors(), heads = a.heads();
    if (!a.is_causal && a.queries <= 64 && heads * 2 <= blocks && a.keys >= 2 * LEAST_KEYS)
        return attend_by_parts<T, D>(a, int(std::min<int64_t>({32, blocks / heads, a.keys / LEAST_KEYS})));
    const Parts all = {};
    if constexpr (sizeof(T) == 2 && (D == 64 || D == 128))
        if (heads * ceil_div(a.queries, 128) >= multiprocessors())
            return launch_tiles<forward_kernel<T, D, 2>>(a, a.queries, 128, TILE_THREADS, FORWARD_BYTES<T, D, 2>, all);
    launch_tiles<forward_kernel<T, D, 1>>(a, a.queries, 64, TILE_THREADS, FORWARD_BYTES<T, D, 1>, all);
}

}  // namespace

void attend_by_tiles(const Attention<FORWARD>& a, DType dtype) {
    with_width(dtype, a.size, a.values, [&]<class T, int D>(Tag<T>, std::integral_constant<int, D>) { attend<T, D>(a); });
}

}  // namespace norch::nn
