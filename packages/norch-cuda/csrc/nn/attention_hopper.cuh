// What the attention kernels for compute capability 9.0 share: the problem as they get it, and the order of their work.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "nn/attention_tiles.cuh"
#include "nn/hopper.cuh"

namespace norch::hopper {

using namespace nn;  // operands, and what a row is summed over

constexpr int BOX_ROWS = 64;  // of the boxes of all tensor maps, and of a warpgroup's part of a tile
constexpr int64_t CACHED_BYTES = int64_t(24) << 20;  // of keys and values (or queries) that stay in the L2 cache

/// Attention as these kernels get it: tensor maps of all operands but the sums, with up to three batch dims.
template <int COUNT>
struct Problem {
    CUtensorMap maps[COUNT];
    int32_t batch[3];       // sizes of the batch dims, innermost first
    uint32_t broadcast[3];  // bit k: operand k has one in that batch dim
    int32_t heads, queries, keys;
    int32_t tiles;           // of a head
    int32_t together, span;  // heads that are worked on together, to stay in the L2 cache; and that blocks share evenly
    float scale;
    bool is_causal;
    char* sums;  // see F_SUMS; strides in bytes
    int64_t sums_row, sums_batch[3];
    const char* mask;
    MaskLayout mask_layout;
    int64_t mask_batch[3];
};

/// A tile of a head that a block works on.
struct Place {
    int head, tile;
};

/// The work of this block, one place after the other. Of heads that are worked on together the longest tiles come first
/// (`is_reversed`: the last ones). Blocks take turns in both directions, for each span of heads from another block on,
/// so that all have about as much to do.
template <int COUNT>
struct Work {
    const Problem<COUNT>& p;
    bool is_reversed;
    int first = 0, round = 0;

    __device__ bool next(Place& place) {
        const int blocks = gridDim.x;
        for (; first < p.heads; first += p.span, round = 0) {
            const int count = min(p.span, p.heads - first);
            const int block = (blockIdx.x + int(int64_t(blocks) * first / p.heads)) % blocks;
            const int at = round * blocks + (round & 1 ? blocks - 1 - block : block);
            ++round;
            if (at >= count * p.tiles) continue;
            const int part = at / (p.together * p.tiles) * p.together, heads = min(p.together, count - part);
            const int rest = at - part * p.tiles;
            place.head = first + part + rest % heads;
            place.tile = is_reversed ? p.tiles - 1 - rest / heads : rest / heads;
            return true;
        }
        return false;
    }
};

/// Copies of tiles of a head.
template <int COUNT>
struct Boxes {
    const Problem<COUNT>& p;
    int at[3];

    __device__ Boxes(const Problem<COUNT>& p, int head) : p(p) {
        at[0] = head % p.batch[0];
        at[1] = head / p.batch[0] % p.batch[1];
        at[2] = head / p.batch[0] / p.batch[1];
    }
    __device__ Corner corner(int operand, int row, int column) const {
        Corner out{column, row, {at[0], at[1], at[2]}};
#pragma unroll
        for (int d = 0; d < 3; ++d)
            if (p.broadcast[d] >> operand & 1) out.batch[d] = 0;
        return out;
    }
    __device__ float& sum(int row) const {
        return *reinterpret_cast<float*>(p.sums + row * p.sums_row + at[0] * p.sums_batch[0] + at[1] * p.sums_batch[1] +
                                         at[2] * p.sums_batch[2]);
    }
    __device__ HeadMask mask(bool turned) const {
        return mask_of(p.mask_layout, p.mask + at[0] * p.mask_batch[0] + at[1] * p.mask_batch[1] + at[2] * p.mask_batch[2],
                       turned);
    }
    /// ROWS rows from `row` on.
    template <class T, int D, int ROWS>
    __device__ void load(T* to, int operand, int row, Barrier* done) const {
#pragma unroll
        for (int c = 0; c < D / ACROSS; ++c)
#pragma unroll
            for (int r = 0; r < ROWS; r += BOX_ROWS)
                load_box(to + (c * ROWS + r) * ACROSS, &p.maps[operand], corner(operand, row + r, c * ACROSS), done);
    }
    template <class T, int D>
    __device__ void store(const T* from, int operand, int row, int column) const {
#pragma unroll
        for (int c = 0; c < D / ACROSS; ++c)
            store_box(&p.maps[operand], corner(operand, row, column + c * ACROSS), from + c * BOX_ROWS * ACROSS);
    }
};

template <class T, int D>
constexpr uint32_t ROW_BYTES = D * sizeof(T);

/// Each warp that computes says so when its products have read a buffer. Its lanes' own loads, and waits that no products
/// follow, need a __syncwarp before.
constexpr int WARPS = WARPGROUP / 32;
__device__ inline void done_with(Barrier* free) {
    if (threadIdx.x % 32 == 0) arrive(free);
}

/// Whether a tile of results has shared memory of its own; else it lies in that of what it was computed from.
template <int D>
constexpr bool HAS_STAGING = D <= 128;

/// Tiles of KEYS keys and values on their way from the warp that copies to GROUPS warpgroups. VALUES: how many buffers
/// the values have.
template <class T, int D, int GROUPS, int KEYS, int STAGES, int VALUES = STAGES>
struct KeyTiles {
    alignas(1024) T key[STAGES][KEYS * D];
    alignas(1024) T value[VALUES][KEYS * D];
    Barrier key_full[STAGES], key_free[STAGES], value_full[VALUES], value_free[VALUES];

    __device__ void init() {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(&key_full[i], 1);
            init_barrier(&key_free[i], WARPS * GROUPS);
        }
        for (int i = 0; i < VALUES; ++i) {
            init_barrier(&value_full[i], 1);
            init_barrier(&value_free[i], WARPS * GROUPS);
        }
    }
    /// Copies the first `seen` keys and values, the last tile first. `operand`: which one the keys are.
    template <int COUNT>
    __device__ void copy(const Boxes<COUNT>& boxes, int operand, int seen, Turn<STAGES>& turn, Turn<VALUES>& values) {
        for (int tile = (seen + KEYS - 1) / KEYS - 1; tile >= 0; --tile) {
            const int i = turn.stage, v = values.stage;
            wait(&key_free[i], turn.parity);
            arrive_expecting(&key_full[i], KEYS * ROW_BYTES<T, D>);
            boxes.template load<T, D, KEYS>(key[i], operand, tile * KEYS, &key_full[i]);
            wait(&value_free[v], values.parity);
            arrive_expecting(&value_full[v], KEYS * ROW_BYTES<T, D>);
            boxes.template load<T, D, KEYS>(value[v], operand + 1, tile * KEYS, &value_full[v]);
            turn.advance();
            values.advance();
        }
    }
};

/// How many keys the queries before `end` see together.
template <int COUNT>
__device__ inline int keys_seen(const Problem<COUNT>& p, int end) {
    return p.is_causal ? min(p.keys, end) : p.keys;
}

/// -inf for the scores of keys that a query may not look at. `query`: the lane's first row; `key`: the first column.
template <int N>
__device__ inline void hide(float (&s)[N / 2], bool is_causal, int query, int key, int keys) {
    const int column = key + threadIdx.x % 4 * 2;
    const int low = (is_causal ? min(keys, query + 1) : keys) - column;
    const int high = (is_causal ? min(keys, query + 9) : keys) - column;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (8 * j + i >= low) s[4 * j + i] = -INFINITY;
            if (8 * j + i >= high) s[4 * j + 2 + i] = -INFINITY;
        }
}

/// Scores scaled and masked: `row` the lane's first row, `column` the first column; past the last any number.
template <class T, int N>
__device__ inline void apply_mask(float (&s)[N / 2], const HeadMask& mask, int row, int column, int rows, int columns,
                                  float scale) {
    nn::apply_mask<T, N>(mask, row, column, rows, columns, scale,
                         [&](int j, int i) -> float& { return s[4 * j + i]; });
}

/// Writes a warpgroup's 64 rows, times a factor for each half of a lane's rows, through its shared memory `staging`.
/// `column`: the first of those that it has.
template <class T, int D, int COUNT>
__device__ inline void write_rows(const Problem<COUNT>& p, int head, int operand, int first, T* staging,
                                  const float (&c)[D / 2], float low, float high, int column = 0) {
    const int barrier = threadIdx.x / WARPGROUP;  // from 1 on: the first warpgroup copies
    if (threadIdx.x % WARPGROUP == 0) wait_for_stores();
    sync_named(barrier, WARPGROUP);
    write_tile<T, D>(staging, c, low, high);
    publish_shared();
    sync_named(barrier, WARPGROUP);
    if (threadIdx.x % WARPGROUP == 0) {
        Boxes<COUNT>(p, head).template store<T, D>(staging, operand, first, column);
        commit_stores();
    }
}

/// Waits until the rows of a warpgroup are copied from `staging`, which others may then fill.
__device__ inline void await_rows(Barrier* free) {
    if (threadIdx.x % WARPGROUP == 0) wait_for_stores();
    sync_named(threadIdx.x / WARPGROUP, WARPGROUP);
    done_with(free);
}

// --- On the host ----------------------------------------------------------------------------------------------------

/// The driver's cuTensorMapEncodeTiled.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
    static const auto found = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult result;
        check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result),
              "asking for tensor maps");
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    }();
    return found;
}

inline CUtensorMap encoded(CUtensorMapDataType type, int ndim, void* data, const cuuint64_t* dims,
                           const cuuint64_t* steps, const cuuint32_t* box, CUtensorMapSwizzle swizzle) {
    const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
    CUtensorMap map;
    const CUresult result = tensor_map_encoder()(&map, type, cuuint32_t(ndim), data, dims, steps, box, ones,
                                                 CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        throw std::runtime_error("attention: no tensor map, error " + std::to_string(int(result)));
    return map;
}

/// The map of a matrix (rows, columns) of 16-bit floats for each place of a batch. Strides are multiples of 16 bytes; a
/// batch dim of stride 0 has one place.
inline CUtensorMap tensor_map(DType dtype, char* data, int columns, int rows, int64_t row_stride,
                              const int64_t (&sizes)[3], const int64_t (&strides)[3]) {
    cuuint64_t dims[5] = {cuuint64_t(columns), cuuint64_t(rows)}, steps[4] = {cuuint64_t(row_stride)};
    for (int d = 0; d < 3; ++d) {
        dims[2 + d] = strides[d] ? cuuint64_t(sizes[d]) : 1;
        steps[1 + d] = strides[d] ? cuuint64_t(strides[d]) : 16;
    }
    const cuuint32_t box[5] = {ACROSS, BOX_ROWS, 1, 1, 1};
    const auto type = dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return encoded(type, 5, data, dims, steps, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

/// The map of a contiguous table of numbers, of which `across` of a row are copied at a time; those past a row's end are
/// zeros. `columns`: a multiple of 4.
inline CUtensorMap table_map(float* data, int64_t columns, int64_t rows, int across) {
    const cuuint64_t dims[2] = {cuuint64_t(columns), cuuint64_t(rows)}, step = cuuint64_t(columns) * sizeof(float);
    const cuuint32_t box[2] = {cuuint32_t(across), 1};
    return encoded(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, dims, &step, box, CU_TENSOR_MAP_SWIZZLE_NONE);
}

/// The problem, all but its tiles. N is COUNT, the sums and the mask; `query`: which operand that is.
template <int N>
Problem<N - 2> problem_of(const Attention<N>& a, DType dtype, int query) {
    constexpr int SUMS = N - 2, MASK = N - 1;
    Problem<SUMS> p = {};
    int64_t sizes[3] = {1, 1, 1};
    for (int d = 0; d < a.batch.ndim; ++d) sizes[d] = a.batch.size[d].divisor;
    for (int k = 0; k < N; ++k) {
        int64_t strides[3] = {};
        for (int d = 0; d < a.batch.ndim; ++d) strides[d] = a.batch.stride[k][d];
        if (k == SUMS) {
            std::copy_n(strides, 3, p.sums_batch);
            continue;
        }
        if (k == MASK) {
            std::copy_n(strides, 3, p.mask_batch);
            continue;
        }
        // Queries and their gradients come as out and its gradient do, keys as values.
        const bool is_key = k == query + 1 || k == query + 2 || (N == BACKWARD && (k == B_FOR_KEY || k == B_FOR_VALUE));
        const bool is_size = k == query || k == query + 1 || (N == BACKWARD && (k == B_FOR_QUERY || k == B_FOR_KEY));
        p.maps[k] = tensor_map(dtype, a.data[k], is_size ? a.size : a.values, is_key ? a.keys : a.queries,
                               a.side[k].row, sizes, strides);
        for (int d = 0; d < 3; ++d) p.broadcast[d] |= uint32_t(strides[d] == 0) << k;
    }
    for (int d = 0; d < 3; ++d) p.batch[d] = int32_t(sizes[d]);
    p.heads = int32_t(a.heads());
    p.queries = a.queries;
    p.keys = a.keys;
    const int64_t bytes = int64_t(2) * std::max(a.queries, a.keys) * (a.size + a.values);
    const int64_t parts = ceil_div(p.heads, std::clamp<int64_t>(CACHED_BYTES / bytes, 1, p.heads));
    p.together = int32_t(ceil_div(p.heads, parts));
    p.span = a.is_causal ? p.together : p.heads;  // where all tiles take as long, one round after the other is even
    p.scale = a.scale;
    p.is_causal = a.is_causal;
    p.sums = a.data[SUMS];
    p.sums_row = a.side[SUMS].row;
    p.mask = a.data[MASK];
    p.mask_layout = a.mask;
    return p;
}

/// Launches a kernel of GROUPS warpgroups beside the one that copies, a block with ROWS of the `count` rows of a head. The
/// blocks share the work.
template <auto KERNEL, int GROUPS, class Shared, int ROWS = GROUPS * BOX_ROWS, int COUNT, class... More>
void launch_shared(Problem<COUNT> p, int count, const More&... more) {
    static bool is_prepared[64];
    const int device = launch_stream().device;
    if (device >= 64 || !is_prepared[device]) {
        constexpr auto SIZE = cudaFuncAttributeMaxDynamicSharedMemorySize;
        check(cudaFuncSetAttribute(KERNEL, SIZE, int(sizeof(Shared))), "attention");
        if (device < 64) is_prepared[device] = true;
    }
    p.tiles = int32_t(ceil_div(count, ROWS));
    const uint32_t blocks = uint32_t(std::min<int64_t>(int64_t(p.heads) * p.tiles, multiprocessors()));
    launch_kernel("attention", KERNEL, Grid{blocks, (GROUPS + 1) * WARPGROUP, sizeof(Shared)}, p, more...);
}

}  // namespace norch::hopper
