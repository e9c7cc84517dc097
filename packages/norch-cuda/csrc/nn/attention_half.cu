// Attention of float16 and bfloat16: products on the tensor cores, sums and the softmax in float32.
#include "nn/attention_half.cuh"

namespace norch::nn {
namespace {

constexpr int KEYS = 64;  // in a tile

template <int D, int M>
constexpr size_t FORWARD_BYTES = 2 * (64 * M + 4 * KEYS) * PITCH<__half, D>;

/// 64 * M queries of a head, 16 * M of them a warp's. Keys and values of the next tile come while one is worked on.
template <class T, int D, int M>
__global__ void __launch_bounds__(HALF_THREADS) forward_kernel(const __grid_constant__ Attention<FORWARD> a) {
    constexpr int ROWS = 64 * M, P = PITCH<T, D>, N = KEYS / 8;
    extern __shared__ __align__(16) char shared[];
    T *query = reinterpret_cast<T*>(shared), *key = query + ROWS * P, *value = key + 2 * KEYS * P;
    const Place<FORWARD> place(a, a.is_causal);
    const int first = int(place.tile) * ROWS, own = first + warp_id() * 16 * M;
    const int seen = keys_seen(a, min(first + ROWS, a.queries));
    const float scale = a.scale * LOG2E;
    auto load_keys = [&](int k, int stage) {
        load_tile<T, D, KEYS, HALF_THREADS>(key + stage * KEYS * P, place.at[F_KEY], a.side[F_KEY], k, a.keys, a.size,
                                            has_packets(a, F_KEY));
        load_tile<T, D, KEYS, HALF_THREADS>(value + stage * KEYS * P, place.at[F_VALUE], a.side[F_VALUE], k, a.keys,
                                            a.values, has_packets(a, F_VALUE));
        commit_copies();
    };
    load_tile<T, D, ROWS, HALF_THREADS>(query, place.at[F_QUERY], a.side[F_QUERY], first, a.queries, a.size,
                                        has_packets(a, F_QUERY));
    load_keys(0, 0);

    T* own_query = query + warp_id() * 16 * M * P;
    constexpr bool KEEPS_QUERY = M * D <= 128;  // in registers
    uint32_t left[KEEPS_QUERY ? M : 1][KEEPS_QUERY ? D / 16 : 1][4];
    float largest[M][2], sum[M][2] = {}, out[M][D / 8][4] = {};
#pragma unroll
    for (int m = 0; m < M; ++m) largest[m][0] = largest[m][1] = -INFINITY;
    for (int k = 0, stage = 0; k < seen; k += KEYS, stage ^= 1) {
        if (k + KEYS < seen) {
            load_keys(k + KEYS, stage ^ 1);
            wait_for_copies<1>();
        } else {
            wait_for_copies<0>();
        }
        __syncthreads();
        if (KEEPS_QUERY && k == 0) {
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int i = 0; i < D / 16; ++i)
                    if constexpr (KEEPS_QUERY) load_left<T, D>(left[m][i], own_query + m * 16 * P, i);
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
#pragma unroll
    for (int m = 0; m < M; ++m) {
        const float total[2] = {sum_of_4(sum[m][0]), sum_of_4(sum[m][1])};
        if (a.data[F_SUMS] && lane_id() % 4 == 0)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_sum(a, place, own + m * 16 + lane_id() / 4 + half * 8,
                          base_of(largest[m][half]) * a.scale + logf(total[half]));
        store_rows<T, D>(place.at[F_OUT], a.side[F_OUT], own_query + m * 16 * P, out[m], 1.0f / total[0],
                         1.0f / total[1], own + m * 16, a.queries, a.values, has_packets(a, F_OUT));
    }
}

template <class T, int D>
void attend(const Attention<FORWARD>& a) {
    if constexpr (D >= 64)
        if (a.heads() * ceil_div(a.queries, 128) >= multiprocessors())
            return launch_tiles<forward_kernel<T, D, 2>>(a, a.queries, 128, HALF_THREADS, FORWARD_BYTES<D, 2>);
    launch_tiles<forward_kernel<T, D, 1>>(a, a.queries, 64, HALF_THREADS, FORWARD_BYTES<D, 1>);
}

}  // namespace

void attend_half(const Attention<FORWARD>& a, DType dtype) {
    with_width(a.size, a.values, [&]<int D>(std::integral_constant<int, D>) {
        if (dtype == DType::f16) attend<__half, D>(a);
        else attend<__nv_bfloat16, D>(a);
    });
}

}  // namespace norch::nn
