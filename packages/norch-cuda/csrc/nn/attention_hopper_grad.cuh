// The gradient of attention of float16 and bfloat16 on compute capability 9.0. One kernel goes over the queries and
// another over the keys, so that nothing is added up by two blocks, and what is computed stays in registers, as the left
// factors of the last products.
#pragma once

#include "nn/attention_hopper.cuh"

namespace norch::hopper {

using GradProblem = Problem<B_SUMS>;

constexpr int GROUPS = 2;  // warpgroups that compute, each for 64 rows of a block's tile
constexpr int ROWS = GROUPS * BOX_ROWS;

/// What the kernel over the keys needs to know of queries: weights are 2 ** (scaled score - base), and the mean of a
/// query's slopes. Rows of `padded` numbers: bases of each head, then means of each head.
struct Facts {
    float *base, *mean;
    int32_t padded;
};

/// Of what a warpgroup has for as long as a block works on a place.
template <int AHEAD>
struct RowBarriers {
    Barrier full[AHEAD][GROUPS], free[AHEAD][GROUPS];

    /// `groups`: how many warpgroups have the same rows.
    __device__ void init(int groups = 1) {
        for (int i = 0; i < AHEAD; ++i)
            for (int g = 0; g < GROUPS; ++g) {
                init_barrier(&full[i][g], 1);
                init_barrier(&free[i][g], WARPS * groups);
            }
    }
};

/// What the warpgroups have for as long as a block works on a place. AHEAD: 2 where the rows of the next place are copied
/// while a block works on the last.
template <class T, int D, int AHEAD>
struct alignas(1024) QueryRows {
    T query[AHEAD][GROUPS][64 * D], grad[AHEAD][GROUPS][64 * D], result[AHEAD][GROUPS][64 * D], out[GROUPS][64 * D];

    __device__ T* staging(int, int group) { return out[group]; }
};
template <class T, int AHEAD>
struct alignas(1024) QueryRows<T, 256, AHEAD> {  // results of the forward pass come in buffers of keys
    T query[AHEAD][GROUPS][64 * 256], grad[AHEAD][GROUPS][64 * 256];

    __device__ T* staging(int stage, int group) { return query[stage][group]; }
};

template <class T, int D, int KEYS, int STAGES, int VALUES, int AHEAD>
struct alignas(1024) QueryShared : QueryRows<T, D, AHEAD> {
    KeyTiles<T, D, GROUPS, KEYS, STAGES, VALUES> tiles;
    RowBarriers<AHEAD> rows;
};

/// Elements of a packet of 16 bytes of row r, of 64 rows of a matrix in shared memory.
template <class T>
__device__ inline void add_dot(float& sum, const T* a, const T* b, int row, int packet) {
    const int at = (packet / 8 * 64 + row) * ACROSS + (packet % 8 ^ row % 8) * 8;
    T x[8], y[8];
    *reinterpret_cast<uint4*>(x) = *reinterpret_cast<const uint4*>(a + at);
    *reinterpret_cast<uint4*>(y) = *reinterpret_cast<const uint4*>(b + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(float(x[i]), float(y[i]), sum);
}

template <class T, int D, int KEYS, int STAGES, int VALUES, int AHEAD, bool HAS_MASK>
__global__ void __launch_bounds__((GROUPS + 1) * WARPGROUP, 1)
    query_kernel(const __grid_constant__ GradProblem p, Facts facts) {
    static_assert(HAS_STAGING<D> || KEYS == 64, "results have the form of keys");
    using Shared = QueryShared<T, D, KEYS, STAGES, VALUES, AHEAD>;
    extern __shared__ __align__(1024) char memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        shared.rows.init();
        shared.tiles.init();
        publish_barriers();
    }
    __syncthreads();
    Work<B_SUMS> work{p, p.is_causal};
    Turn<AHEAD> rows;
    Turn<STAGES> turn;
    Turn<VALUES> values;
    Place place;
    auto& tiles = shared.tiles;
    if (threadIdx.x < WARPGROUP) {
        give_registers<24>();
        if (threadIdx.x != 0) return;
        rows.parity = turn.parity = values.parity = 1;  // all is free at first
        while (work.next(place)) {
            const Boxes<B_SUMS> boxes(p, place.head);
            const int first = place.tile * ROWS;
            for (int g = 0; g < GROUPS; ++g) {
                Barrier* full = &shared.rows.full[rows.stage][g];
                wait(&shared.rows.free[rows.stage][g], rows.parity);
                arrive_expecting(full, (HAS_STAGING<D> ? 3 : 2) * 64 * ROW_BYTES<T, D>);
                boxes.template load<T, D, 64>(shared.query[rows.stage][g], B_QUERY, first + g * 64, full);
                boxes.template load<T, D, 64>(shared.grad[rows.stage][g], B_GRAD, first + g * 64, full);
                if constexpr (HAS_STAGING<D>)
                    boxes.template load<T, D, 64>(shared.result[rows.stage][g], B_OUT, first + g * 64, full);
            }
            rows.advance();
            for (int g = 0; g < GROUPS && !HAS_STAGING<D>; ++g, turn.advance()) {
                Barrier* full = &tiles.key_full[turn.stage];
                wait(&tiles.key_free[turn.stage], turn.parity);
                arrive_expecting(full, 64 * ROW_BYTES<T, D>);
                boxes.template load<T, D, 64>(tiles.key[turn.stage], B_OUT, first + g * 64, full);
            }
            tiles.copy(boxes, B_KEY, keys_seen(p, first + ROWS), turn, values);
        }
        return;
    }
    take_registers<240>();
    const int group = threadIdx.x / WARPGROUP - 1, own = group * 64, lane = threadIdx.x % 32;
    const int lane_row = threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    const float scale = HAS_MASK ? LOG2E : p.scale * LOG2E;  // masked scores are scaled already
    while (work.next(place)) {
        const int first = place.tile * ROWS + own, row = first + lane_row;
        int tile = (keys_seen(p, place.tile * ROWS + ROWS) + KEYS - 1) / KEYS - 1;
        float base[2], mean[2] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = row + 8 * half;
            base[half] = at < p.queries ? Boxes<B_SUMS>(p, place.head).sum(at) * LOG2E : INFINITY;
            if (HAS_MASK && base[half] == -INFINITY) base[half] = INFINITY;  // it sees nothing: no weights
        }
        HeadMask mask;
        if constexpr (HAS_MASK) mask = Boxes<B_SUMS>(p, place.head).mask(false);
        wait(&shared.rows.full[rows.stage][group], rows.parity);
        auto add_dots_with = [&](const T* result) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int packet = 0; packet < D / 8; packet += 4)
                    add_dot(mean[half], shared.grad[rows.stage][group], result, lane_row + 8 * half, packet + lane % 4);
        };
        if constexpr (HAS_STAGING<D>) add_dots_with(shared.result[rows.stage][group]);
        for (int g = 0; g < GROUPS && !HAS_STAGING<D>; ++g, turn.advance()) {
            wait(&tiles.key_full[turn.stage], turn.parity);
            if (g == group) add_dots_with(tiles.key[turn.stage]);
            __syncwarp();
            done_with(&tiles.key_free[turn.stage]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            mean[half] = sum_of_4(mean[half]);
            const int at = row + 8 * half;
            if (lane % 4 == 0 && at < p.queries) {
                facts.base[int64_t(place.head) * facts.padded + at] = base[half];
                facts.mean[int64_t(place.head) * facts.padded + at] = mean[half];
            }
        }
        for (; p.is_causal && tile * KEYS >= first + 64; --tile) {  // no query of this warpgroup sees it
            wait(&tiles.key_full[turn.stage], turn.parity);
            wait(&tiles.value_full[values.stage], values.parity);
            __syncwarp();
            done_with(&tiles.key_free[turn.stage]);
            done_with(&tiles.value_free[values.stage]);
            turn.advance();
            values.advance();
        }
        float s[KEYS / 2], slope[KEYS / 2], out[D / 2] = {};
        uint32_t packed[KEYS / 16][4];
        int last = -1;
        for (; tile >= 0; --tile) {
            wait(&tiles.key_full[turn.stage], turn.parity);
            begin_dots<T, D, KEYS, 64, KEYS>(s, shared.query[rows.stage][group], tiles.key[turn.stage]);
            wait(&tiles.value_full[values.stage], values.parity);
            begin_dots<T, D, KEYS, 64, KEYS>(slope, shared.grad[rows.stage][group], tiles.value[values.stage]);
            wait_for_products<1>(s, out);
            if (last >= 0) done_with(&tiles.key_free[last]);
            if constexpr (HAS_MASK) apply_mask<T, KEYS>(s, mask, row, tile * KEYS, p.queries, p.keys, p.scale);
            if (tile * KEYS + KEYS > p.keys || (p.is_causal && tile * KEYS + KEYS > first + 1))
                hide<KEYS>(s, p.is_causal, row, tile * KEYS, p.keys);
#pragma unroll
            for (int i = 0; i < KEYS / 2; ++i) s[i] = exp2_of(s[i] * scale - base[i / 2 % 2]);
            wait_for_products<0>(slope);
            done_with(&tiles.value_free[values.stage]);
            values.advance();
#pragma unroll
            for (int i = 0; i < KEYS / 2; ++i) s[i] *= slope[i] - mean[i / 2 % 2];
            pack_all<T, KEYS>(packed, s);
            begin_weighted<T, D, KEYS>(out, packed, tiles.key[turn.stage]);
            last = turn.stage;
            turn.advance();
        }
        wait_for_products<0>(out);
        done_with(&tiles.key_free[last]);
        __syncwarp();
        Barrier* free = &shared.rows.free[rows.stage][group];
        if constexpr (HAS_STAGING<D>) done_with(free);
        T* staging = shared.staging(rows.stage, group);
        rows.advance();
        write_rows<T, D>(p, place.head, B_FOR_QUERY, first, staging, out, p.scale, p.scale);
        if constexpr (!HAS_STAGING<D>) await_rows(free);
    }
    if (threadIdx.x % WARPGROUP == 0) wait_for_stores();
}

/// How many warpgroups have the same keys, each a part of the gradients' columns: registers hold no more of both.
template <int D>
constexpr int PARTS = D > 128 ? 2 : 1;

template <class T, int D, int AHEAD>
struct alignas(1024) KeyRows {
    T key[AHEAD][GROUPS][64 * D], value[AHEAD][GROUPS][64 * D], for_key[GROUPS][64 * D], for_value[GROUPS][64 * D];
};
template <class T, int AHEAD>
struct alignas(1024) KeyRows<T, 256, AHEAD> {
    T key[AHEAD][1][64 * 256], value[AHEAD][1][64 * 256];
};

template <class T, int D, int QUERIES, int STAGES, int AHEAD>
struct alignas(1024) KeyShared : KeyRows<T, D, AHEAD> {
    T query[STAGES][QUERIES * D], grad[STAGES][QUERIES * D];
    float base[STAGES][QUERIES], mean[STAGES][QUERIES];
    RowBarriers<AHEAD> rows;
    Barrier full[STAGES], free[STAGES];
};

/// The gradients of GROUPS / PARTS * 64 keys and values: here rows are keys, and columns queries.
template <class T, int D, int QUERIES, int STAGES, int AHEAD, bool HAS_MASK>
__global__ void __launch_bounds__((GROUPS + 1) * WARPGROUP, 1)
    key_kernel(const __grid_constant__ GradProblem p, const __grid_constant__ CUtensorMap facts) {
    using Shared = KeyShared<T, D, QUERIES, STAGES, AHEAD>;
    constexpr int SETS = GROUPS / PARTS<D>, OWN = SETS * 64, WIDTH = D / PARTS<D>;
    extern __shared__ __align__(1024) char memory[];
    auto& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
        shared.rows.init(PARTS<D>);
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(&shared.full[i], 1);
            init_barrier(&shared.free[i], WARPS * GROUPS);
        }
        publish_barriers();
    }
    __syncthreads();
    Work<B_SUMS> work{p, false};
    Turn<AHEAD> rows;
    Turn<STAGES> turn;
    Place place;
    if (threadIdx.x < WARPGROUP) {
        give_registers<24>();
        if (threadIdx.x != 0) return;
        rows.parity = turn.parity = 1;  // all is free at first
        while (work.next(place)) {
            const Boxes<B_SUMS> boxes(p, place.head);
            const int first = place.tile * OWN;
            for (int g = 0; g < SETS; ++g) {
                Barrier* full = &shared.rows.full[rows.stage][g];
                wait(&shared.rows.free[rows.stage][g], rows.parity);
                arrive_expecting(full, 2 * 64 * ROW_BYTES<T, D>);
                boxes.template load<T, D, 64>(shared.key[rows.stage][g], B_KEY, first + g * 64, full);
                boxes.template load<T, D, 64>(shared.value[rows.stage][g], B_VALUE, first + g * 64, full);
            }
            rows.advance();
            for (int q = p.is_causal ? first / QUERIES * QUERIES : 0; q < p.queries; q += QUERIES) {
                Barrier* full = &shared.full[turn.stage];
                wait(&shared.free[turn.stage], turn.parity);
                arrive_expecting(full, QUERIES * (2 * ROW_BYTES<T, D> + 2 * sizeof(float)));
                boxes.template load<T, D, QUERIES>(shared.query[turn.stage], B_QUERY, q, full);
                load_row(shared.base[turn.stage], &facts, q, place.head, full);
                boxes.template load<T, D, QUERIES>(shared.grad[turn.stage], B_GRAD, q, full);
                load_row(shared.mean[turn.stage], &facts, q, p.heads + place.head, full);
                turn.advance();
            }
        }
        return;
    }
    take_registers<240>();
    const int group = threadIdx.x / WARPGROUP - 1, set = group / PARTS<D>, part = group % PARTS<D>, own = set * 64;
    const int lane = threadIdx.x % 32, lane_row = threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    const float scale = HAS_MASK ? LOG2E : p.scale * LOG2E;  // masked scores are scaled already
    while (work.next(place)) {
        const int first = place.tile * OWN + own, key = first + lane_row;
        HeadMask mask;
        if constexpr (HAS_MASK) mask = Boxes<B_SUMS>(p, place.head).mask(true);
        wait(&shared.rows.full[rows.stage][set], rows.parity);
        int q = p.is_causal ? place.tile * OWN / QUERIES * QUERIES : 0;
        for (; p.is_causal && q < p.queries && q + QUERIES <= first; q += QUERIES) {  // these see no key of its
            wait(&shared.full[turn.stage], turn.parity);
            __syncwarp();
            done_with(&shared.free[turn.stage]);
            turn.advance();
        }
        float s[QUERIES / 2], slope[QUERIES / 2], for_key[WIDTH / 2] = {}, for_value[WIDTH / 2] = {};
        uint32_t weights[QUERIES / 16][4], slopes[QUERIES / 16][4];
        for (; q < p.queries; q += QUERIES) {
            const float2* base = reinterpret_cast<const float2*>(shared.base[turn.stage]) + lane % 4;
            const float2* mean = reinterpret_cast<const float2*>(shared.mean[turn.stage]) + lane % 4;
            const bool hides = q + QUERIES > p.queries || (p.is_causal && q < first + 63);
            // Of column 8 j + i those are seen that are in [from, end) for a lane's first row, from 8 on for its other.
            const int column = q + lane % 4 * 2;
            const int from = p.is_causal ? key - column : -QUERIES, end = p.queries - column;
            auto blank = [&](float (&c)[QUERIES / 2]) {
#pragma unroll
                for (int j = 0; j < QUERIES / 8; ++j)
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        if (8 * j + i < from || 8 * j + i >= end) c[4 * j + i] = 0;
                        if (8 * j + i < from + 8 || 8 * j + i >= end) c[4 * j + 2 + i] = 0;
                    }
            };
            wait(&shared.full[turn.stage], turn.parity);
            begin_dots<T, D, QUERIES, 64, QUERIES>(s, shared.key[rows.stage][set], shared.query[turn.stage]);
            begin_dots<T, D, QUERIES, 64, QUERIES>(slope, shared.value[rows.stage][set], shared.grad[turn.stage]);
            wait_for_products<1>(s);
            if constexpr (HAS_MASK) apply_mask<T, QUERIES>(s, mask, key, q, p.keys, p.queries, p.scale);
#pragma unroll
            for (int j = 0; j < QUERIES / 8; ++j) {
                const float2 b = base[4 * j];
                s[4 * j] = exp2_of(s[4 * j] * scale - b.x);
                s[4 * j + 1] = exp2_of(s[4 * j + 1] * scale - b.y);
                s[4 * j + 2] = exp2_of(s[4 * j + 2] * scale - b.x);
                s[4 * j + 3] = exp2_of(s[4 * j + 3] * scale - b.y);
            }
            if (hides) blank(s);
            wait_for_products<0>(slope);
#pragma unroll
            for (int j = 0; j < QUERIES / 8; ++j) {
                const float2 m = mean[4 * j];
                slope[4 * j] = s[4 * j] * (slope[4 * j] - m.x);
                slope[4 * j + 1] = s[4 * j + 1] * (slope[4 * j + 1] - m.y);
                slope[4 * j + 2] = s[4 * j + 2] * (slope[4 * j + 2] - m.x);
                slope[4 * j + 3] = s[4 * j + 3] * (slope[4 * j + 3] - m.y);
            }
            if (hides) blank(slope);
            pack_all<T, QUERIES>(weights, s);
            pack_all<T, QUERIES>(slopes, slope);
            begin_weighted<T, WIDTH, QUERIES>(for_value, weights, shared.grad[turn.stage] + part * WIDTH * QUERIES);
            begin_weighted<T, WIDTH, QUERIES>(for_key, slopes, shared.query[turn.stage] + part * WIDTH * QUERIES);
            wait_for_products<0>(for_key, for_value);  // the next products have no registers before
            __syncwarp();
            done_with(&shared.free[turn.stage]);
            turn.advance();
        }
        Barrier* free = &shared.rows.free[rows.stage][set];
        T *key_staging, *value_staging;
        if constexpr (HAS_STAGING<D>) {
            done_with(free);
            key_staging = shared.for_key[group], value_staging = shared.for_value[group];
        } else {
            sync_named(GROUPS + 1, GROUPS * WARPGROUP);  // the others have read the keys too
            key_staging = shared.key[rows.stage][set] + part * WIDTH * 64;
            value_staging = shared.value[rows.stage][set] + part * WIDTH * 64;
        }
        rows.advance();
        const int column = part * WIDTH;
        write_rows<T, WIDTH>(p, place.head, B_FOR_KEY, first, key_staging, for_key, p.scale, p.scale, column);
        write_rows<T, WIDTH>(p, place.head, B_FOR_VALUE, first, value_staging, for_value, 1.0f, 1.0f, column);
        if constexpr (!HAS_STAGING<D>) await_rows(free);
    }
    if (threadIdx.x % WARPGROUP == 0) wait_for_stores();
}

}  // namespace norch::hopper
