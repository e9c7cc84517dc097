// A block owns some rows of the output and some columns: it goes through the index, notes in order which rows of the
// source are for its rows, and adds them up in shared memory. Where that makes few blocks the index is cut into chunks,
// whose sums are added up in order. Of many indices for each row see row_runs.cu.
// Nothing depends on which block comes first.
#include <algorithm>

#include "indexing/row_sums.cuh"
#include "runtime/allocator.h"

namespace norch::indexing {
namespace {

// --- The index as int32 ---------------------------------------------------------------------------------------------

__device__ inline int64_t load_integer(const char* data, DType dtype) {
    switch (dtype) {
        case DType::i64: return *reinterpret_cast<const int64_t*>(data);
        case DType::i32: return *reinterpret_cast<const int32_t*>(data);
        case DType::i16: return *reinterpret_cast<const int16_t*>(data);
        case DType::i8: return *reinterpret_cast<const int8_t*>(data);
        default: return *reinterpret_cast<const uint8_t*>(data);
    }
}

/// The row of each index; `none` for the padding and for what is no row.
__global__ void __launch_bounds__(THREADS) find_rows(const __grid_constant__ Layout<1> layout, const char* index,
                                                     DType dtype, int32_t* rows, const Chosen chosen, int64_t padding,
                                                     int32_t none, const ErrorSink sink) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= layout.numel) return;
    int64_t offset[1];
    layout.offsets(i, offset);
    int64_t k = load_integer(index + offset[0], dtype);
    rows[i] = find_place(k, chosen, sink) && k != padding ? int32_t(k) : none;
}

// --- Sums -----------------------------------------------------------------------------------------------------------

constexpr int PER_THREAD = 4, STEP = THREADS * PER_THREAD, LISTED = 2 * STEP;  // indices
constexpr int WARPS = THREADS / 32;

/// How the work is cut. Threads lie in groups of `lanes`, which share the columns of a slice; a group has each rows
/// whose number it is (modulo the count of groups).
struct Plan {
    int64_t n, rows, features, out_stride, src_stride, chunk;
    int lanes, rows_per_block, chunks, slices;
    bool adds;
};

constexpr int MAX_GROUPS = 32;

/// The rows of the source that a block has to add, in order; and that list's places group by group.
struct Found {
    int32_t source[LISTED];
    uint16_t row[LISTED], place[LISTED];
    int counts[2][WARPS], per_group[MAX_GROUPS];
};

__device__ inline void load_rows(int32_t (&given)[PER_THREAD], const int32_t* rows, int64_t base, int64_t end) {
    const int64_t first = base + threadIdx.x / 32 * (32 * PER_THREAD) + threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < PER_THREAD; ++j) given[j] = first + j * 32 < end ? rows[first + j * 32] : -1;
}

/// Appends what is ours of STEP indices from `base` on; returns how many there are now.
__device__ inline int find(Found& found, int count, int parity, const int32_t (&given)[PER_THREAD], int64_t base,
                           int64_t first_row, int rows_per_block) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned below = (1u << lane) - 1;
    unsigned hits[PER_THREAD];
    int mine = 0;
#pragma unroll
    for (int j = 0; j < PER_THREAD; ++j) {
        hits[j] = __ballot_sync(~0u, given[j] >= first_row && given[j] < first_row + rows_per_block);
        mine += __popc(hits[j]);
    }
    if (lane == 0) found.counts[parity][warp] = mine;
    __syncthreads();
    int at = count;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        if (w < warp) at += found.counts[parity][w];
        count += found.counts[parity][w];
    }
#pragma unroll
    for (int j = 0; j < PER_THREAD; ++j) {
        if (hits[j] >> lane & 1) {
            const int to = at + __popc(hits[j] & below);
            found.source[to] = int32_t(base + warp * (32 * PER_THREAD) + j * 32 + lane);
            found.row[to] = uint16_t(given[j] - first_row);
        }
        at += __popc(hits[j]);
    }
    return count;
}

/// Where the places of a group start, and with `list` the places in order; a warp for each group.
__device__ inline void list_groups(Found& found, int count, int groups) {
    const int lane = threadIdx.x % 32;
    for (bool list : {false, true}) {
        for (int group = threadIdx.x / 32; group < groups; group += WARPS) {
            int at = 0;
            for (int g = 0; list && g < group; ++g) at += found.per_group[g];
            for (int m = lane; m - lane < count; m += 32) {
                const bool is_mine = m < count && (found.row[m] & (groups - 1)) == group;
                const unsigned mine = __ballot_sync(~0u, is_mine);
                if (list && is_mine) found.place[at + __popc(mine & ((1u << lane) - 1))] = uint16_t(m);
                at += __popc(mine);
            }
            if (!list && lane == 0) found.per_group[group] = at;
        }
        __syncthreads();
    }
}

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) sum_rows(const Plan plan, const int32_t* rows, const T* src, T* out,
                                                    computed<T>* partial) {
    using C = computed<T>;
    using Sum = Packet<C, VEC>;
    extern __shared__ __align__(16) char shared[];
    __shared__ Found found;
    Sum* sums = reinterpret_cast<Sum*>(shared);  // [rows_per_block][lanes]
    const int groups = THREADS / plan.lanes, group = threadIdx.x / plan.lanes, lane = threadIdx.x % plan.lanes;
    const int64_t first_row = int64_t(blockIdx.x) * plan.rows_per_block;
    const int64_t column = (int64_t(blockIdx.y) * plan.lanes + lane) * VEC;
    const bool is_inside = column < plan.features;
    for (int r = group; r < plan.rows_per_block; r += groups) sums[r * plan.lanes + lane] = Sum{};

    const int64_t begin = blockIdx.z * plan.chunk, end = min(plan.n, begin + plan.chunk);
    int count = 0, parity = 0;
    int32_t given[PER_THREAD], next[PER_THREAD];
    load_rows(next, rows, begin, end);
    for (int64_t base = begin; base < end; base += STEP, parity ^= 1) {
#pragma unroll
        for (int j = 0; j < PER_THREAD; ++j) given[j] = next[j];
        load_rows(next, rows, base + STEP, end);
        count = find(found, count, parity, given, base, first_row, plan.rows_per_block);
        if (count <= LISTED - STEP && base + STEP < end) continue;
        __syncthreads();
        list_groups(found, count, groups);
        int at = 0;
        for (int g = 0; g < group; ++g) at += found.per_group[g];
        const int stop = at + found.per_group[group];
        constexpr int U = 8;
        for (; is_inside && at < stop; at += U) {
            Packet<T, VEC> x[U];
            int row[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const int place = found.place[min(at + u, stop - 1)];
                row[u] = found.row[place];
                x[u] = *reinterpret_cast<const Packet<T, VEC>*>(src + found.source[place] * plan.src_stride + column);
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (at + u >= stop) break;
                Sum& sum = sums[row[u] * plan.lanes + lane];
#pragma unroll
                for (int v = 0; v < VEC; ++v) sum.v[v] += upcast(x[u].v[v]);
            }
        }
        __syncthreads();
        count = 0;
    }

    if (!is_inside) return;
    for (int r = group; r < plan.rows_per_block && first_row + r < plan.rows; r += groups) {
        const Sum sum = sums[r * plan.lanes + lane];
        if (partial) {
            const int64_t at = (blockIdx.z * plan.rows + first_row + r) * plan.features + column;
            *reinterpret_cast<Sum*>(partial + at) = sum;
            continue;
        }
        T* to = out + (first_row + r) * plan.out_stride + column;
        if (plan.adds) {
#pragma unroll
            for (int v = 0; v < VEC; ++v)
                if (sum.v[v] != C(0)) to[v] = downcast<T>(upcast(to[v]) + sum.v[v]);
        } else {
            Packet<T, VEC> packet;
#pragma unroll
            for (int v = 0; v < VEC; ++v) packet.v[v] = downcast<T>(sum.v[v]);
            *reinterpret_cast<Packet<T, VEC>*>(to) = packet;
        }
    }
}

/// The sums of the chunks: of each PARTS-th by one thread, then of those.
template <class T>
__global__ void __launch_bounds__(THREADS) sum_chunks(const Plan plan, const computed<T>* partial, T* out) {
    using C = computed<T>;
    constexpr int PARTS = 8, COLUMNS = THREADS / PARTS;
    __shared__ C sums[PARTS][COLUMNS];
    const int part = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;
    const int64_t size = plan.rows * plan.features, i = int64_t(blockIdx.x) * COLUMNS + column;
    C sum = 0;
    if (i < size) {
#pragma unroll 8
        for (int chunk = part; chunk < plan.chunks; chunk += PARTS) sum += partial[chunk * size + i];
    }
    sums[part][column] = sum;
    __syncthreads();
    if (part > 0 || i >= size) return;
#pragma unroll
    for (int p = 1; p < PARTS; ++p) sum += sums[p][column];
    const int64_t row = i / plan.features;
    T& to = out[row * plan.out_stride + (i - row * plan.features)];
    if (!plan.adds) to = downcast<T>(sum);
    else if (sum != C(0)) to = downcast<T>(upcast(to) + sum);
}

// --- The plan -------------------------------------------------------------------------------------------------------

constexpr int64_t SHARED_BYTES = 56 * 1024, BLOCKS = 396, MIN_CHUNK = 128;  // BLOCKS: three for each multiprocessor

Plan plan_of(const RowSums& sums, int64_t itemsize, int vec) {
    Plan plan = {};
    plan.n = sums.index.numel();
    plan.rows = sums.rows;
    plan.features = sums.features;
    plan.out_stride = sums.out_stride;
    plan.src_stride = sums.src_stride;
    plan.adds = sums.adds;
    // As many lanes as leave the fewest idle.
    int64_t least = INT64_MAX;
    for (int lanes = THREADS; lanes >= 8; lanes /= 2) {
        const int64_t columns = ceil_div(plan.features, lanes * vec) * lanes * vec;
        if (columns >= least) continue;
        least = columns;
        plan.lanes = lanes;
    }
    plan.slices = int(ceil_div(plan.features, plan.lanes * vec));
    int64_t rows = std::clamp<int64_t>(SHARED_BYTES / (plan.lanes * vec * itemsize), 1, plan.rows);
    int64_t blocks = ceil_div(plan.rows, rows) * plan.slices;
    int64_t chunks = std::min(ceil_div(BLOCKS, blocks), ceil_div(plan.n, MIN_CHUNK));
    chunks = std::max<int64_t>(1, std::min(chunks, plan.n / plan.rows));
    blocks = std::max<int64_t>(1, BLOCKS / (plan.slices * chunks));
    rows = std::min(rows, ceil_div(plan.rows, blocks));
    plan.chunk = ceil_div(std::max<int64_t>(plan.n, 1), chunks);
    plan.chunks = int(ceil_div(std::max<int64_t>(plan.n, 1), plan.chunk));
    plan.rows_per_block = int(rows);
    return plan;
}

template <class T>
class RowSumsKernel final : public Kernel {
public:
    static constexpr int VEC = sizeof(T) == 8 ? 2 : 4;
    using C = computed<T>;

    explicit RowSumsKernel(const RowSums& sums)
        : dtype_(sums.index.dtype),
          chosen_{0, sums.rows, sums.wraps, sums.op},
          padding_(sums.padding),
          index_(cut<1>(row_major_loops({&sums.index}))),
          elementwise_(plan_of(sums, sizeof(C), 1)),
          vectorized_(plan_of(sums, sizeof(C), VEC)),
          has_packets_(sums.features % VEC == 0 && sums.out_stride % VEC == 0 && sums.src_stride % VEC == 0) {}

    const Plan& plan() const { return has_packets_ ? vectorized_ : elementwise_; }

    void run(char* const* data, const Scalar*) const override {
        constexpr size_t bytes = VEC * sizeof(T);
        const bool is_vectorized = has_packets_ && is_aligned(data[0], bytes) && is_aligned(data[1], bytes);
        const Plan& plan = is_vectorized ? vectorized_ : elementwise_;
        const size_t index_bytes = size_t(ceil_div(plan.n, 64) * 64) * sizeof(int32_t);
        const int64_t size = plan.rows * plan.features;
        Scratch<> scratch(index_bytes + (plan.chunks > 1 ? size_t(plan.chunks * size) * sizeof(C) : 0));
        auto* rows = reinterpret_cast<int32_t*>(scratch.data());
        auto* partial = plan.chunks > 1 ? reinterpret_cast<C*>(scratch.data() + index_bytes) : nullptr;
        launch_find_rows(index_, dtype_, chosen_, padding_, -1, data[2], rows);
        auto* out = reinterpret_cast<T*>(data[0]);
        const auto* src = reinterpret_cast<const T*>(data[1]);
        is_vectorized ? sum<VEC>(plan, rows, src, out, partial) : sum<1>(plan, rows, src, out, partial);
        if (!partial) return;
        launch_kernel("adding up sums of rows", sum_chunks<T>, unsigned(ceil_div(size, THREADS / 8)), THREADS,
                      plan, partial, out);
    }

private:
    template <int V>
    static void sum(const Plan& plan, const int32_t* rows, const T* src, T* out, C* partial) {
        const int bytes = plan.rows_per_block * plan.lanes * V * int(sizeof(C));
        if (bytes > 30 * 1024)
            check(cudaFuncSetAttribute(sum_rows<T, V>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                  "asking for shared memory");
        const auto blocks = unsigned(ceil_div(plan.rows, plan.rows_per_block));
        const dim3 grid(blocks, unsigned(plan.slices), unsigned(plan.chunks));
        sum_rows<T, V><<<grid, THREADS, size_t(bytes), stream_handle()>>>(plan, rows, src, out, partial);
        check_launch("summing rows");
    }

    DType dtype_;
    Chosen chosen_;
    int64_t padding_;
    std::vector<Piece<1>> index_;
    Plan elementwise_, vectorized_;
    bool has_packets_;
};

}  // namespace

void launch_find_rows(const std::vector<Piece<1>>& index, DType dtype, const Chosen& chosen, int64_t padding, int32_t none,
                      const char* data, int32_t* rows) {
    for (const Piece<1>& piece : index) {
        launch_kernel("finding rows", find_rows, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS, piece.layout,
                      data + piece.start[0], dtype, rows, chosen, padding, none, error_sink());
        rows += piece.layout.numel;
    }
}

KernelPtr row_sums_kernel(const RowSums& sums) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - 1;
    if (sums.rows > LIMIT || sums.index.numel() > LIMIT || sums.features > LIMIT) return nullptr;
    if (sums.rows == 0 || sums.features == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (KernelPtr kernel = sorted_row_sums(sums)) return kernel;
    return visit_floating_device(sums.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        auto kernel = std::make_unique<RowSumsKernel<T>>(sums);
        const Plan& plan = kernel->plan();
        if (plan.slices > 65535) return nullptr;
        // Every block of rows goes through the whole index.
        const int64_t reads = ceil_div(plan.rows, plan.rows_per_block) * plan.slices;
        if (sums.adds && plan.n > 65536 && reads > 16 * plan.features) return nullptr;
        return kernel;
    });
}

}  // namespace norch::indexing
