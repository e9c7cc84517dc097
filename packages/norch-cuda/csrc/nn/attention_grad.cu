// The gradient of attention by tiles. The weights are computed again; one kernel goes over the queries
// and another over the keys, so that nothing is added up by two blocks.
#include "nn/attention_tiles.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

/// What the second kernel needs to know of a query.
struct RowFacts {
    float base;  // weights are 2 ** (scaled score - base)
    float mean;  // of the slopes of its weights
};

constexpr int ROWS = 64;  // of a block
template <class T, int D>
constexpr int KEYS_OF = D * sizeof(T) > 256 || sizeof(T) == 4 ? 32 : 64;  // in a tile of the kernel over the queries
template <class T, int D>
constexpr int QUERIES = D > 64 || sizeof(T) == 4 ? 32 : 64;  // in a tile of the kernel over the keys

template <class T, int D>
constexpr size_t QUERY_BYTES = sizeof(T) * (2 * ROWS + 4 * KEYS_OF<T, D>) * PITCH<T, D>;
template <class T, int D>
constexpr size_t KEY_BYTES =
    sizeof(T) * (2 * ROWS + 4 * QUERIES<T, D>) * PITCH<T, D> + 2 * QUERIES<T, D> * sizeof(RowFacts);

/// How many blocks of a kernel are to be on a multiprocessor at once: as many as registers and shared memory allow.
template <class T, int D>
constexpr int BLOCKS = D * sizeof(T) > 256 ? 1 : D * sizeof(T) > 128 ? 2 : 3;

/// `column`: the first of those that `acc` has.
template <class T, int D, int C>
__device__ inline void store_block(const Attention<BACKWARD>& a, const Place<BACKWARD>& place, int operand, T* staging,
                                   const float (&acc)[1][C][4], float factor, int first, int column = 0) {
    const int columns = operand == B_FOR_VALUE ? a.values : a.size;
    store_rows<T, D>(place.at[operand] + column * a.side[operand].column, a.side[operand], staging, acc[0], factor,
                     factor, first, operand == B_FOR_QUERY ? a.queries : a.keys, columns - column,
                     has_packets(a, operand));
}

/// The facts of a query from both results of the forward pass: what its slopes' mean is, 4 lanes sum.
template <class T>
__device__ inline RowFacts facts_of(const Attention<BACKWARD>& a, const Place<BACKWARD>& place, int row) {
    if (row >= a.queries) return {INFINITY, 0};
    const float sum = *reinterpret_cast<const float*>(place.at[B_SUMS] + row * a.side[B_SUMS].row);
    const char *grad = place.at[B_GRAD] + row * a.side[B_GRAD].row, *out = place.at[B_OUT] + row * a.side[B_OUT].row;
    float mean = 0;
    for (int c = lane_id() % 4; c < a.values; c += 4)
        mean += upcast(*reinterpret_cast<const T*>(grad + c * a.side[B_GRAD].column)) *
                upcast(*reinterpret_cast<const T*>(out + c * a.side[B_OUT].column));
    return {a.data[B_MASK] && sum == -INFINITY ? INFINITY : sum * LOG2E, mean};
}

/// The gradient of 64 queries: over the keys once for their facts, unless the forward pass left those, and once for the
/// gradient.
template <class T, int D>
__global__ void __launch_bounds__(TILE_THREADS, BLOCKS<T, D>)
    query_kernel(const __grid_constant__ Attention<BACKWARD> a, RowFacts* facts) {
    constexpr int P = PITCH<T, D>, KEYS = KEYS_OF<T, D>, N = KEYS / 8;
    extern __shared__ __align__(16) char shared[];
    T *query = reinterpret_cast<T*>(shared), *grad = query + ROWS * P;
    T *key = grad + ROWS * P, *value = key + 2 * KEYS * P;
    const Place<BACKWARD> place(a, a.is_causal);
    const int first = int(place.tile) * ROWS, own = first + warp_id() * 16, lane = lane_id();
    const int seen = keys_seen(a, min(first + ROWS, a.queries)), tiles = (seen + KEYS - 1) / KEYS;
    const bool has_mask = a.data[B_MASK];
    const HeadMask mask = mask_of(a.mask, place.at[B_MASK], false);
    const float scale = has_mask ? LOG2E : a.scale * LOG2E;  // masked scores are scaled already
    T *own_query = query + warp_id() * 16 * P, *own_grad = grad + warp_id() * 16 * P;
    auto load_keys = [&](int tile, int stage) {
        load_block<T, D, KEYS, TILE_THREADS>(key + stage * KEYS * P, a, place, B_KEY, tile * KEYS);
        load_block<T, D, KEYS, TILE_THREADS>(value + stage * KEYS * P, a, place, B_VALUE, tile * KEYS);
        commit_copies();
    };
    load_block<T, D, ROWS, TILE_THREADS>(query, a, place, B_QUERY, first);
    load_block<T, D, ROWS, TILE_THREADS>(grad, a, place, B_GRAD, first);
    const bool has_sums = a.data[B_SUMS];
    const int begin = has_sums ? tiles : 0;
    load_keys(0, begin & 1);

    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, mean[2] = {}, base[2] = {};
    if (has_sums) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = own + lane / 4 + half * 8;
            RowFacts found = facts_of<T>(a, place, row);
            base[half] = found.base;
            found.mean = mean[half] = sum_of_4(found.mean);
            if (lane % 4 == 0) facts[place.head * padded_queries(a, ROWS) + row] = found;
        }
    }
    float acc[1][D / 8][4] = {};
    for (int step = begin; step < 2 * tiles; ++step) {
        const int stage = step & 1, k = (step < tiles ? step : step - tiles) * KEYS;
        if (step + 1 < 2 * tiles) {
            load_keys(step + 1 < tiles ? step + 1 : step + 1 - tiles, stage ^ 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        float s[1][N][4] = {}, slope[1][N][4] = {};
        add_dots<T, D>(s, key + stage * KEYS * P,
                       [&](int, int i, uint32_t(&r)[4]) { load_left<T, D>(r, own_query, i); });
        add_dots<T, D>(slope, value + stage * KEYS * P,
                       [&](int, int i, uint32_t(&r)[4]) { load_left<T, D>(r, own_grad, i); });
        mend_scores<T, D>(s[0], own_query, key + stage * KEYS * P);
        if (has_mask)
            apply_mask<T, KEYS>(mask, own + lane / 4, k, a.queries, a.keys, a.scale,
                                [&](int j, int i) -> float& { return s[0][j][i]; });
        if (k + KEYS > a.keys || (a.is_causal && k + KEYS > own + 1)) hide(s[0], a.is_causal, own, k, a.keys);
        if (step < tiles) {
            float rescale[2];
            raise_largest(largest, rescale, s[0], scale);
            float added[2] = {}, added_mean[2] = {};
#pragma unroll
            for (int half = 0; half < 2; ++half) base[half] = base_of(largest[half]) * scale;
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float weight = exp2_of(s[0][n][i] * scale - base[i / 2]);
                    added[i / 2] += weight;
                    added_mean[i / 2] += weight * slope[0][n][i];
                }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sum[half] = sum[half] * rescale[half] + added[half];
                mean[half] = mean[half] * rescale[half] + added_mean[half];
            }
        } else {
            if (!has_sums && step == tiles) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float total = sum_of_4(sum[half]), slopes = sum_of_4(mean[half]);
                    const bool sees_nothing = has_mask && total == 0;
                    mean[half] = sees_nothing ? 0.0f : slopes / total;
                    base[half] = sees_nothing ? INFINITY : base[half] + log2f(total);
                    const int row = own + lane / 4 + half * 8;
                    // A query past the last gets no weight anywhere.
                    if (lane % 4 == 0)
                        facts[place.head * padded_queries(a, ROWS) + row] =
                            row < a.queries ? RowFacts{base[half], mean[half]} : RowFacts{INFINITY, 0};
                }
            }
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    slope[0][n][i] = exp2_of(s[0][n][i] * scale - base[i / 2]) * (slope[0][n][i] - mean[i / 2]);
            add_product<T, D>(acc, slope, key + stage * KEYS * P);
        }
        __syncthreads();
    }
    store_block<T, D>(a, place, B_FOR_QUERY, own_query, acc, a.scale, own);
}

/// How many columns of the gradients a block of key_kernel has: the registers hold no more of both.
template <int D>
constexpr int ACROSS = std::min(D, 128);

/// The gradients of 64 keys and values: here rows are keys, and columns queries.
template <class T, int D>
__global__ void __launch_bounds__(TILE_THREADS, std::min(2, BLOCKS<T, D>))
    key_kernel(const __grid_constant__ Attention<BACKWARD> a, const RowFacts* facts) {
    constexpr int P = PITCH<T, D>, COUNT = QUERIES<T, D>, N = COUNT / 8;
    const int first_column = int(blockIdx.y) * ACROSS<D>;
    extern __shared__ __align__(16) char shared[];
    T *key = reinterpret_cast<T*>(shared), *value = key + ROWS * P;
    T *query = value + ROWS * P, *grad = query + 2 * COUNT * P;
    auto* fact = reinterpret_cast<RowFacts*>(grad + 2 * COUNT * P);
    const Place<BACKWARD> place(a, false);
    const int first = int(place.tile) * ROWS, own = first + warp_id() * 16, lane = lane_id();
    const bool has_mask = a.data[B_MASK];
    const HeadMask mask = mask_of(a.mask, place.at[B_MASK], true);
    const float scale = has_mask ? LOG2E : a.scale * LOG2E;  // masked scores are scaled already
    T *own_key = key + warp_id() * 16 * P, *own_value = value + warp_id() * 16 * P;
    auto load_queries = [&](int q, int stage) {
        load_block<T, D, COUNT, TILE_THREADS>(query + stage * COUNT * P, a, place, B_QUERY, q);
        load_block<T, D, COUNT, TILE_THREADS>(grad + stage * COUNT * P, a, place, B_GRAD, q);
        if (threadIdx.x < COUNT / 2)
            copy_async(fact + stage * COUNT + 2 * threadIdx.x,
                       facts + place.head * padded_queries(a, ROWS) + q + 2 * threadIdx.x, true);
        commit_copies();
    };
    load_block<T, D, ROWS, TILE_THREADS>(key, a, place, B_KEY, first);
    load_block<T, D, ROWS, TILE_THREADS>(value, a, place, B_VALUE, first);
    const int begin = a.is_causal ? first : 0;
    if (begin < a.queries) load_queries(begin, 0);

    float for_key[1][ACROSS<D> / 8][4] = {}, for_value[1][ACROSS<D> / 8][4] = {};
    for (int q = begin, stage = 0; q < a.queries; q += COUNT, stage ^= 1) {
        if (q + COUNT < a.queries) {
            load_queries(q + COUNT, stage ^ 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        float s[1][N][4] = {}, slope[1][N][4] = {};
        add_dots<T, D>(s, query + stage * COUNT * P,
                       [&](int, int i, uint32_t(&r)[4]) { load_left<T, D>(r, own_key, i); });
        add_dots<T, D>(slope, grad + stage * COUNT * P,
                       [&](int, int i, uint32_t(&r)[4]) { load_left<T, D>(r, own_value, i); });
        mend_scores<T, D>(s[0], own_key, query + stage * COUNT * P);
        if (has_mask)
            apply_mask<T, COUNT>(mask, own + lane / 4, q, a.keys, a.queries, a.scale,
                                 [&](int j, int i) -> float& { return s[0][j][i]; });
        const bool hides = a.is_causal && q < own + 15;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int column = n * 8 + lane % 4 * 2;
            const RowFacts pair[2] = {fact[stage * COUNT + column], fact[stage * COUNT + column + 1]};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bool sees = !hides || own + lane / 4 + i / 2 * 8 <= q + column + i % 2;
                const float weight = sees ? exp2_of(s[0][n][i] * scale - pair[i % 2].base) : 0.0f;
                s[0][n][i] = weight;
                slope[0][n][i] = weight * (slope[0][n][i] - pair[i % 2].mean);
            }
        }
        add_product<T, D>(for_value, s, grad + stage * COUNT * P + first_column);
        add_product<T, D>(for_key, slope, query + stage * COUNT * P + first_column);
        __syncthreads();
    }
    commit_copies();
    wait_for_copies<0>();  // of a key that no query sees
    __syncthreads();
    store_block<T, D>(a, place, B_FOR_KEY, own_key, for_key, a.scale, own, first_column);
    store_block<T, D>(a, place, B_FOR_VALUE, own_value, for_value, 1.0f, own, first_column);
}

template <class T, int D>
void attend_grad(const Attention<BACKWARD>& a) {
    static_assert(std::max(QUERY_BYTES<T, D>, KEY_BYTES<T, D>) <= ATTENTION_SHARED_BYTES, "attention.cu asks for this much");
    const Scratch<RowFacts> facts(size_t(a.heads()) * size_t(padded_queries(a, ROWS)));
    launch_tiles<query_kernel<T, D>>(a, a.queries, ROWS, TILE_THREADS, QUERY_BYTES<T, D>, facts.data());
    launch_parts<key_kernel<T, D>>(a, a.keys, ROWS, D / ACROSS<D>, TILE_THREADS, KEY_BYTES<T, D>,
                                   static_cast<const RowFacts*>(facts.data()));
}

}  // namespace

void attend_grad_by_tiles(const Attention<BACKWARD>& a, DType dtype) {
    if (dtype == DType::f32 && is_small(a)) return attend_small_grad(a);
    with_width(dtype, a.size, a.values,
               [&]<class T, int D>(Tag<T>, std::integral_constant<int, D>) { attend_grad<T, D>(a); });
}

}  // namespace norch::nn
