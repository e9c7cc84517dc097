// Attention of float16 and bfloat16 on compute capability 9.0, after Shah et al., "FlashAttention-3", 2024: a warp
// copies tiles of keys and values, and each warpgroup has 64 queries, whose products run beside its softmax.
#pragma once

#include "nn/attention_hopper.cuh"

namespace norch::hopper {

using ForwardProblem = Problem<F_SUMS>;

/// A warpgroup's queries, and where its results lie before they are copied: in place of those where both have no room.
template <class T, int D, int GROUPS>
struct alignas(1024) QueryRows {
    T query[GROUPS][64 * D], out[GROUPS][64 * D];

    __device__ T* staging(int group) { return out[group]; }
};
template <class T, int GROUPS>
struct alignas(1024) QueryRows<T, 256, GROUPS> {
    T query[GROUPS][64 * 256];

    __device__ T* staging(int group) { return query[group]; }
};
template <class T, int D, int GROUPS, int KEYS, int STAGES>
struct alignas(1024) ForwardShared : QueryRows<T, D, GROUPS> {
    KeyTiles<T, D, GROUPS, KEYS, STAGES> tiles;
    Barrier query_full[GROUPS], query_free[GROUPS];
};

/// The softmax of a lane's two rows as their scores become known.
struct Softmax {
    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};

    /// Turns scores into weights; what was summed before is to be multiplied by `rescale`. Maxima and sums are taken in
    /// several chains, since one would be waited for.
    template <int N, bool HAS_MASK>
    __device__ void weigh(float (&s)[N / 2], float (&rescale)[2], float scale) {
        float base[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float now[4] = {largest[half], largest[half], largest[half], largest[half]};
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
                now[j % 4] = fmaxf(now[j % 4], fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
            now[0] = largest_of_4(fmaxf(fmaxf(now[0], now[1]), fmaxf(now[2], now[3])));
            base[half] = HAS_MASK ? base_of(now[0]) : base_of(now[0]) * scale;
            rescale[half] = exp2_of(HAS_MASK ? (largest[half] - base[half]) * scale : largest[half] * scale - base[half]);
            largest[half] = now[0];
        }
        float added[4] = {};
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            s[i] = exp2_of(HAS_MASK ? (s[i] - base[i / 2 % 2]) * scale : s[i] * scale - base[i / 2 % 2]);
            added[i % 4] += s[i];
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
            sum[half] = sum[half] * rescale[half] + (added[2 * half] + added[2 * half + 1]);
    }
};

template <class T, int D, int GROUPS, int KEYS, int STAGES>
__device__ void produce(ForwardShared<T, D, GROUPS, KEYS, STAGES>& shared, const ForwardProblem& p) {
    constexpr int ROWS = GROUPS * 64;
    Work<F_SUMS> work{p, p.is_causal};
    Turn<1> query;
    Turn<STAGES> turn, values;
    query.parity = turn.parity = values.parity = 1;  // all is free at first
    for (Place place; work.next(place);) {
        const Boxes<F_SUMS> boxes(p, place.head);
        const int first = place.tile * ROWS;
        for (int g = 0; g < GROUPS; ++g) {
            wait(&shared.query_free[g], query.parity);
            arrive_expecting(&shared.query_full[g], 64 * ROW_BYTES<T, D>);
            boxes.template load<T, D, 64>(shared.query[g], F_QUERY, first + g * 64, &shared.query_full[g]);
        }
        query.advance();
        shared.tiles.copy(boxes, F_KEY, keys_seen(p, first + ROWS), turn, values);
    }
}

template <class T, int D, int GROUPS, int KEYS, int STAGES, bool HAS_MASK>
__device__ void consume(ForwardShared<T, D, GROUPS, KEYS, STAGES>& shared, const ForwardProblem& p) {
    constexpr int ROWS = GROUPS * 64, BOTH = 2 * WARPGROUP;
    const int group = threadIdx.x / WARPGROUP - 1, thread = threadIdx.x % WARPGROUP;
    const int own = group * 64, lane_row = own + thread / 32 * 16 + thread % 32 / 4;
    const float scale = HAS_MASK ? LOG2E : p.scale * LOG2E;  // masked scores are scaled already
    Work<F_SUMS> work{p, p.is_causal};
    Turn<1> query;
    Turn<STAGES> turn;  // of the keys; that of the values is one behind
    // Warpgroups begin their products in turn, so that the softmax of one runs beside the products of another.
    constexpr int FIRST_BARRIER = 4;
    auto await_turn = [&] { sync_named(FIRST_BARRIER + group, BOTH); };
    auto give_turn = [&] { arrive_named(FIRST_BARRIER + (group + 1 == GROUPS ? 0 : group + 1), BOTH); };
    if (group == GROUPS - 1) give_turn();
    auto& tiles = shared.tiles;

    for (Place place; work.next(place);) {
        const int first = place.tile * ROWS, row = first + lane_row;
        int tile = (keys_seen(p, first + ROWS) + KEYS - 1) / KEYS - 1;
        Softmax softmax;
        float s[KEYS / 2], out[D / 2] = {}, rescale[2];
        uint32_t weights[KEYS / 16][4];
        const T* own_query = shared.query[group];
        HeadMask mask;
        if constexpr (HAS_MASK) mask = Boxes<F_SUMS>(p, place.head).mask(false);
        auto weigh = [&] {
            if constexpr (HAS_MASK) apply_mask<T, KEYS>(s, mask, row, tile * KEYS, p.queries, p.keys, p.scale);
            if (tile * KEYS + KEYS > p.keys || (p.is_causal && tile * KEYS + KEYS > first + own + 1))
                hide<KEYS>(s, p.is_causal, row, tile * KEYS, p.keys);
            softmax.weigh<KEYS, HAS_MASK>(s, rescale, scale);
        };
        wait(&shared.query_full[group], query.parity);
        wait(&tiles.key_full[turn.stage], turn.parity);
        await_turn();
        begin_dots<T, D, KEYS, 64, KEYS>(s, own_query, tiles.key[turn.stage]);
        give_turn();
        wait_for_products<0>(s);
        done_with(&tiles.key_free[turn.stage]);
        weigh();
        pack_all<T, KEYS>(weights, s);
        for (--tile; tile >= 0; --tile) {
            const Turn<STAGES> before = turn;
            turn.advance();
            wait(&tiles.key_full[turn.stage], turn.parity);
            await_turn();
            begin_dots<T, D, KEYS, 64, KEYS>(s, own_query, tiles.key[turn.stage]);
            wait(&tiles.value_full[before.stage], before.parity);
            begin_weighted<T, D, KEYS>(out, weights, tiles.value[before.stage]);
            give_turn();
            wait_for_products<1>(s);
            done_with(&tiles.key_free[turn.stage]);
            weigh();
            wait_for_products<0>(out);
            done_with(&tiles.value_free[before.stage]);
#pragma unroll
            for (int i = 0; i < D / 2; ++i) out[i] *= rescale[i / 2 % 2];
            pack_all<T, KEYS>(weights, s);
        }
        if constexpr (HAS_STAGING<D>) done_with(&shared.query_free[group]);
        wait(&tiles.value_full[turn.stage], turn.parity);
        begin_weighted<T, D, KEYS>(out, weights, tiles.value[turn.stage]);
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float total = sum_of_4(softmax.sum[half]);
            factor[half] = factor_of(total, HAS_MASK);
            if (p.sums && thread % 4 == 0 && row + 8 * half < p.queries)
                Boxes<F_SUMS>(p, place.head).sum(row + 8 * half) =
                    base_of(softmax.largest[half]) * (HAS_MASK ? 1.0f : p.scale) + logf(total);
        }
        wait_for_products<0>(out);
        done_with(&tiles.value_free[turn.stage]);
        write_rows<T, D>(p, place.head, F_OUT, first + own, shared.staging(group), out, factor[0], factor[1]);
        if constexpr (!HAS_STAGING<D>) await_rows(&shared.query_free[group]);
        turn.advance();
        query.advance();
    }
    if (thread == 0) wait_for_stores();
    if (group == 0) await_turn();
}

template <class T, int D, int GROUPS, int KEYS, int STAGES, bool HAS_MASK>
__global__ void __launch_bounds__((GROUPS + 1) * WARPGROUP, 1)
    forward_kernel(const __grid_constant__ ForwardProblem p) {
    extern __shared__ __align__(1024) char memory[];
    auto& shared = *reinterpret_cast<ForwardShared<T, D, GROUPS, KEYS, STAGES>*>(memory);
    if (threadIdx.x == 0) {
        for (int g = 0; g < GROUPS; ++g) {
            init_barrier(&shared.query_full[g], 1);
            init_barrier(&shared.query_free[g], WARPS);
        }
        shared.tiles.init();
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        give_registers<GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x == 0) produce<T, D, GROUPS, KEYS, STAGES>(shared, p);
    } else {
        take_registers<GROUPS == 3 ? 160 : 240>();
        consume<T, D, GROUPS, KEYS, STAGES, HAS_MASK>(shared, p);
    }
}

}  // namespace norch::hopper
