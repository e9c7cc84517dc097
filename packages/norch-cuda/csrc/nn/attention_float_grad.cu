// The gradient of attention of float32. The weights are computed again. Where all queries and keys of a head fit one
// tile one kernel does all; else one goes over the queries and another over the keys, so that nothing is added up by
// two blocks.
#include "nn/attention_float.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

/// What the second kernel needs to know of a query.
struct RowFacts {
    float base;    // subtracted from its scores
    float factor;  // 1 / the sum of its weights
    float mean;    // of the slopes of its weights
    float unused;
};
template <int D>
constexpr size_t BACKWARD_BYTES = 4 * (4 * BLOCK * PITCH<float, D> + BLOCK * WEIGHTS_PITCH) + BLOCK * sizeof(RowFacts);

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
__device__ inline void score(float (&s)[4][4], float (&slope)[4][4], const Attention<BACKWARD>& a, const float* query,
                             const float* grad, const float* key, const float* value, int first, int k) {
    constexpr int P = PITCH<float, D>;
    const int x = thread_x(), y = thread_y();
    add_dots<D>(s, query + y * 4 * P, key + x * P);
    add_dots<D>(slope, grad + y * 4 * P, value + x * P);
    scale_scores(s, a.scale, a.is_causal, first, k, a.keys);
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
    score<D>(s, slope, a, query, grad, key, value, 0, 0);
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
        const float factor = 1.0f / sum_of_16(sum);
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

/// The gradient of 64 queries: over the keys once for their facts, and once for the gradient.
template <int D>
__global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2)
    query_kernel(const __grid_constant__ Attention<BACKWARD> a, RowFacts* facts) {
    constexpr int P = PITCH<float, D>;
    extern __shared__ __align__(16) float shared[];
    float *query = shared, *grad = query + BLOCK * P, *key = grad + BLOCK * P, *value = key + BLOCK * P;
    float* slopes = value + BLOCK * P;
    const Place<BACKWARD> place(a, a.is_causal);
    const int first = int(place.tile) * BLOCK, x = thread_x(), y = thread_y();
    const int seen = keys_seen(a, min(first + BLOCK, a.queries));
    float largest[4], sum[4] = {}, mean[4] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) largest[r] = -INFINITY;
    load_block<float, D, BLOCK, THREADS>(query, a, place, B_QUERY, first);
    load_block<float, D, BLOCK, THREADS>(grad, a, place, B_GRAD, first);
    auto load_keys = [&](int k) {
        __syncthreads();
        load_block<float, D, BLOCK, THREADS>(key, a, place, B_KEY, k);
        load_block<float, D, BLOCK, THREADS>(value, a, place, B_VALUE, k);
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
    };
    for (int k = 0; k < seen; k += BLOCK) {
        load_keys(k);
        float s[4][4] = {}, slope[4][4] = {};
        score<D>(s, slope, a, query, grad, key, value, first, k);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            float now = fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]));
            now = fmaxf(largest[r], largest_of_16(now));
            const float base = base_of(now), rescale = expf(largest[r] - base);
            largest[r] = now;
            sum[r] *= rescale;
            mean[r] *= rescale;
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float weight = expf(s[r][c] - base);
                sum[r] += weight;
                mean[r] += weight * slope[r][c];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        largest[r] = base_of(largest[r]);
        sum[r] = 1.0f / sum_of_16(sum[r]);
        mean[r] = sum_of_16(mean[r]) * sum[r];
        if (x == 0) facts[place.head * padded_queries(a, BLOCK) + first + y * 4 + r] =
                {largest[r], sum[r], mean[r], 0};
    }
    float acc[4][D / 16] = {};
    for (int k = 0; k < seen; k += BLOCK) {
        load_keys(k);
        float s[4][4] = {}, slope[4][4] = {};
        score<D>(s, slope, a, query, grad, key, value, first, k);
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int c = 0; c < 4; ++c)
                slopes[(y * 4 + r) * WEIGHTS_PITCH + x + 16 * c] =
                    expf(s[r][c] - largest[r]) * sum[r] * (slope[r][c] - mean[r]);
        __syncwarp();
        add_product<D>(acc, slopes + y * 4 * WEIGHTS_PITCH, key, min(BLOCK, (seen - k + 3) & ~3));
    }
    store_block<D>(a, place, B_FOR_QUERY, acc, a.scale, first);
}

/// The gradients of 64 keys and values: here rows are keys, and columns queries.
template <int D>
__global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2)
    key_kernel(const __grid_constant__ Attention<BACKWARD> a, const RowFacts* facts) {
    constexpr int P = PITCH<float, D>;
    extern __shared__ __align__(16) float shared[];
    float *key = shared, *value = key + BLOCK * P, *query = value + BLOCK * P, *grad = query + BLOCK * P;
    float* weights = grad + BLOCK * P;
    auto* fact = reinterpret_cast<RowFacts*>(weights + BLOCK * WEIGHTS_PITCH);
    const Place<BACKWARD> place(a, false);
    const int first = int(place.tile) * BLOCK, x = thread_x(), y = thread_y();
    float for_key[4][D / 16] = {}, for_value[4][D / 16] = {};
    load_block<float, D, BLOCK, THREADS>(key, a, place, B_KEY, first);
    load_block<float, D, BLOCK, THREADS>(value, a, place, B_VALUE, first);
    for (int q = a.is_causal ? first : 0; q < a.queries; q += BLOCK) {
        __syncthreads();
        load_block<float, D, BLOCK, THREADS>(query, a, place, B_QUERY, q);
        load_block<float, D, BLOCK, THREADS>(grad, a, place, B_GRAD, q);
        if (threadIdx.x < BLOCK)
            copy_async(fact + threadIdx.x, facts + place.head * padded_queries(a, BLOCK) + q + threadIdx.x, true);
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
        float s[4][4] = {}, slope[4][4] = {};
        add_dots<D>(s, key + y * 4 * P, query + x * P);
        add_dots<D>(slope, value + y * 4 * P, grad + x * P);
        float* own = weights + y * 4 * WEIGHTS_PITCH + x;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int column = q + x + 16 * c;
            const bool is_query = column < a.queries;
            const RowFacts of = fact[x + 16 * c];
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const bool sees = is_query && (!a.is_causal || first + y * 4 + r <= column);
                s[r][c] = sees ? expf(s[r][c] * a.scale - of.base) * of.factor : 0.0f;
                slope[r][c] = s[r][c] * (slope[r][c] - of.mean);
            }
        }
        write_tile(own, s);
        const int end = min(BLOCK, (a.queries - q + 3) & ~3);
        __syncwarp();
        add_product<D>(for_value, weights + y * 4 * WEIGHTS_PITCH, grad, end);
        __syncwarp();
        write_tile(own, slope);
        __syncwarp();
        add_product<D>(for_key, weights + y * 4 * WEIGHTS_PITCH, query, end);
    }
    commit_copies();
    wait_for_copies<0>();  // of a key that no query sees
    store_block<D>(a, place, B_FOR_KEY, for_key, a.scale, first);
    store_block<D>(a, place, B_FOR_VALUE, for_value, 1.0f, first);
}

template <int D>
void attend_grad(const Attention<BACKWARD>& a) {
    constexpr size_t bytes = BACKWARD_BYTES<D>;
    static_assert(bytes <= ATTENTION_SHARED_BYTES, "attention.cu asks whether there is this much");
    if (a.queries <= BLOCK && a.keys <= BLOCK) {
        const int parts = int(a.heads()) < multiprocessors() ? 2 : 1;
        return launch_tiles<small_kernel<D>>(a, parts, 1, THREADS, bytes);
    }
    const Scratch<RowFacts> facts(size_t(a.heads()) * size_t(padded_queries(a, BLOCK)));
    launch_tiles<query_kernel<D>>(a, a.queries, BLOCK, THREADS, bytes, facts.data());
    launch_tiles<key_kernel<D>>(a, a.keys, BLOCK, THREADS, bytes,
                                static_cast<const RowFacts*>(facts.data()));
}

}  // namespace

void attend_float_grad(const Attention<BACKWARD>& a) {
    with_width(a.size, a.values, [&]<int D>(std::integral_constant<int, D>) { attend_grad<D>(a); });
}

}  // namespace norch::nn
