// Attention of float32, in float32 throughout.
#include "nn/attention_float.cuh"

namespace norch::nn {
namespace {

template <int D, int R>
constexpr size_t FORWARD_BYTES = 4 * ((16 * R + 2 * BLOCK) * PITCH<float, D> + 16 * R * WEIGHTS_PITCH);

/// 16 * R queries of a head. Weights stay relative to the largest score so far (M. Milakov and N. Gimelshein, "Online
/// normalizer calculation for softmax", 2018).
template <int D, int R>
__global__ void __launch_bounds__(THREADS) forward_kernel(const __grid_constant__ Attention<FORWARD> a) {
    constexpr int ROWS = 16 * R, P = PITCH<float, D>;
    extern __shared__ __align__(16) float shared[];
    float *query = shared, *key = query + ROWS * P, *value = key + BLOCK * P, *weights = value + BLOCK * P;
    const Place<FORWARD> place(a, a.is_causal);
    const int first = int(place.tile) * ROWS, x = thread_x(), y = thread_y();
    const int seen = keys_seen(a, min(first + ROWS, a.queries));
    float largest[R], sum[R] = {}, out[R][D / 16] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) largest[r] = -INFINITY;
    load_tile<float, D, ROWS, THREADS>(query, place.at[F_QUERY], a.side[F_QUERY], first, a.queries, a.size,
                                       has_packets(a, F_QUERY));
    for (int k = 0; k < seen; k += BLOCK) {
        __syncthreads();
        load_tile<float, D, BLOCK, THREADS>(key, place.at[F_KEY], a.side[F_KEY], k, a.keys, a.size,
                                            has_packets(a, F_KEY));
        load_tile<float, D, BLOCK, THREADS>(value, place.at[F_VALUE], a.side[F_VALUE], k, a.keys, a.values,
                                            has_packets(a, F_VALUE));
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
        float s[R][4] = {};
        add_dots<D, 2>(s, query + y * R * P, key + x * P);
        scale_scores(s, a.scale, a.is_causal, first, k, a.keys);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float now = fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]));
            now = fmaxf(largest[r], largest_of_16(now));
            const float base = base_of(now), rescale = expf(largest[r] - base);
            largest[r] = now;
            sum[r] *= rescale;
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float weight = expf(s[r][c] - base);
                sum[r] += weight;
                weights[(y * R + r) * WEIGHTS_PITCH + x + 16 * c] = weight;
            }
#pragma unroll
            for (int c = 0; c < D / 16; ++c) out[r][c] *= rescale;
        }
        __syncwarp();
        add_product<D>(out, weights + y * R * WEIGHTS_PITCH, value, min(BLOCK, (seen - k + 3) & ~3));
    }
    float factor[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const float total = sum_of_16(sum[r]);
        factor[r] = 1.0f / total;
        if (a.data[F_SUMS] && x == 0) store_sum(a, place, first + y * R + r, base_of(largest[r]) + logf(total));
    }
    store_rows<D>(place.at[F_OUT], a.side[F_OUT], out, factor, first, a.queries, a.values, has_packets(a, F_OUT));
}

template <int D>
void attend(const Attention<FORWARD>& a) {
    if constexpr (D <= 64)
        if (a.heads() * ceil_div(a.queries, 64) < 2 * multiprocessors())
            return launch_tiles<forward_kernel<D, 2>>(a, a.queries, 32, THREADS, FORWARD_BYTES<D, 2>);
    launch_tiles<forward_kernel<D, 4>>(a, a.queries, 64, THREADS, FORWARD_BYTES<D, 4>);
}

}  // namespace

void attend_float(const Attention<FORWARD>& a) {
    with_width(a.size, a.values, [&]<int D>(std::integral_constant<int, D>) { attend<D>(a); });
}

}  // namespace norch::nn
