// true_indices: where the elements of a mask are that are True, in order, by dims, and how many there are. Blocks count those
// of their parts, and each then writes behind what the parts before it have. triangle_indices: where those of a triangle are.
#include <algorithm>

#include "indexing/block_counts.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

constexpr int FLAGS = 16, TILE = THREADS * FLAGS;
constexpr int64_t MOST_PARTS = 2048;

/// Which of the 16 elements from `i` on are True, as bits.
__device__ inline uint32_t bits_at(const uint8_t* mask, int64_t i, int64_t n) {
    uint32_t bits = 0;
    if (i + FLAGS <= n && reinterpret_cast<uintptr_t>(mask + i) % 16 == 0) {
        const auto packet = *reinterpret_cast<const Packet<uint8_t, FLAGS>*>(mask + i);
#pragma unroll
        for (int k = 0; k < FLAGS; ++k) bits |= uint32_t(packet.v[k] != 0) << k;
    } else {
#pragma unroll
        for (int k = 0; k < FLAGS; ++k)
            if (i + k < n && mask[i + k]) bits |= 1u << k;
    }
    return bits;
}

__global__ void __launch_bounds__(THREADS) count_true(const uint8_t* mask, int64_t n, int64_t part, uint32_t* counts) {
    const int64_t begin = blockIdx.x * part, end = min(begin + part, n);
    uint32_t count = 0, before;
    for (int64_t i = begin + threadIdx.x * FLAGS; i < end; i += TILE) count += __popc(bits_at(mask, i, end));
    count = over_block(count, before);
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

/// The sum of the first `count` counts; all threads of a block get it.
__device__ inline int64_t sum_of(const uint32_t* counts, uint32_t count) {
    __shared__ unsigned long long warps[THREADS / 32];
    unsigned long long sum = 0;
#pragma unroll 8
    for (uint32_t b = threadIdx.x; b < count; b += THREADS) sum += counts[b];
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (unsigned long long warp : warps) sum += warp;
    return int64_t(sum);
}

/// The dims of a mask, the innermost first.
struct Shape {
    int ndim;
    bool is_small;  // fewer than 2**31 elements
    int64_t size[MAX_DIMS];
    FastDivide by[MAX_DIMS];
};

/// Writes the indices of element `i`, which lie `apart` elements apart.
__device__ inline void write_indices(const Shape& shape, int64_t i, int64_t* out, int64_t apart) {
    if (shape.is_small) {
        Digits rest{uint32_t(i)};
        for (int d = 0; d + 1 < shape.ndim; ++d) out[(shape.ndim - 1 - d) * apart] = rest.next(shape.by[d]);
        i = rest.rest;
    } else {
        for (int d = 0; d + 1 < shape.ndim; ++d) {
            const int64_t quotient = i / shape.size[d];
            out[(shape.ndim - 1 - d) * apart] = i - quotient * shape.size[d];
            i = quotient;
        }
    }
    *out = i;
}

__global__ void __launch_bounds__(THREADS) write_places(const uint8_t* mask, int64_t n, int64_t part,
                                                        const uint32_t* counts, const __grid_constant__ Shape shape,
                                                        int64_t* out, int64_t most) {
    __shared__ uint16_t found[TILE];
    int64_t to = sum_of(counts, blockIdx.x);
    const int64_t begin = blockIdx.x * part, end = min(begin + part, n);
    for (int64_t tile = begin; tile < end; tile += TILE) {
        const int64_t i = tile + threadIdx.x * FLAGS;
        uint32_t bits = i < end ? bits_at(mask, i, end) : 0, at;
        const uint32_t total = over_block(__popc(bits), at);
        for (; bits; bits &= bits - 1) found[at++] = uint16_t(threadIdx.x * FLAGS + __ffs(bits) - 1);
        __syncthreads();
        for (uint32_t j = threadIdx.x; j < total; j += THREADS)
            if (to + j < most) write_indices(shape, tile + found[j], out + to + j, most);
        to += total;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS) add_counts(const uint32_t* counts, uint32_t parts, int64_t* out) {
    const int64_t total = sum_of(counts, parts);
    if (threadIdx.x == 0) *out = total;
}

/// Elements of a part: of all n there are at most MOST_PARTS.
int64_t part_of(int64_t n) { return std::max<int64_t>(TILE, ceil_div(ceil_div(n, MOST_PARTS), TILE) * TILE); }

/// Of a whole mask; null for others, which norch's formula serves.
KernelPtr count_nonzero(const Request& request) {
    const Operand &out = request.operands[0], &mask = request.operands[1];
    const int64_t n = mask.numel(), part = part_of(n);
    if (mask.dtype != DType::boolean || !mask.is_contiguous() || out.numel() != 1 || out.dtype != DType::i64 || !n ||
        part > int64_t(1) << 31)
        return nullptr;
    const auto parts = unsigned(ceil_div(n, part));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const Scratch<uint32_t> counts(parts);
        launch_kernel("count_nonzero", count_true, parts, THREADS, reinterpret_cast<const uint8_t*>(data[1]), n, part,
                      counts.data());
        launch_kernel("count_nonzero", add_counts, 1, THREADS, counts.data(), parts, reinterpret_cast<int64_t*>(data[0]));
    });
}

/// Of a whole mask, into rows of a matrix; null for others.
KernelPtr true_indices(const Request& request) {
    const Operand &out = request.operands[0], &mask = request.operands[1];
    const int64_t n = mask.numel(), part = part_of(n), most = out.shape.back();
    if (mask.dtype != DType::boolean || !mask.is_contiguous() || !out.is_contiguous() || out.dtype != DType::i64 ||
        mask.ndim() > MAX_DIMS || part > int64_t(1) << 31)
        return nullptr;
    if (!n || !most) return make_kernel(0, [](char* const*, const Scalar*) {});
    Shape shape = {mask.ndim(), n <= INT32_MAX, {}, {}};
    for (int d = 0; d < shape.ndim; ++d) {
        shape.size[d] = mask.shape[size_t(shape.ndim - 1 - d)];
        if (shape.is_small) shape.by[d] = FastDivide(uint32_t(shape.size[d]));
    }
    const auto parts = unsigned(ceil_div(n, part));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const auto* mask = reinterpret_cast<const uint8_t*>(data[1]);
        const Scratch<uint32_t> counts(parts);
        launch_kernel("true_indices", count_true, parts, THREADS, mask, n, part, counts.data());
        launch_kernel("true_indices", write_places, parts, THREADS, mask, n, part, counts.data(), shape,
                      reinterpret_cast<int64_t*>(data[0]), most);
    });
}

// --- Triangles ------------------------------------------------------------------------------------------------------

/// Rows, of `columns` elements each; row i of the triangle ends, or begins, at i + edge.
struct Triangle {
    int64_t rows, columns, edge, count;
    bool is_lower;

    /// How many elements the rows before row i have, of which the first whole ones, or empty ones, come before `start`
    /// rows and the last from `end` rows on.
    __device__ int64_t before(int64_t i) const {
        const int64_t start = min(max(-edge, int64_t(0)), i), end = min(max(columns - edge, start), i);
        const int64_t ramp = end - start, sum = ramp * (start + edge) + ramp * (ramp - 1) / 2;  // of the edges between
        const int64_t filled = sum + (i - end) * columns;                                      // before the edge
        return is_lower ? filled : i * columns - filled;
    }
};

__global__ void __launch_bounds__(THREADS) write_triangle(const Triangle t, int64_t* out) {
    const int64_t stride = int64_t(gridDim.x) * THREADS;
    for (int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x; i < t.count; i += stride) {
        int64_t low = 0, high = t.rows;  // the last row that begins at i or before
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (t.before(middle) <= i ? low : high) = middle;
        }
        const int64_t first = t.is_lower ? 0 : min(max(low + t.edge, int64_t(0)), t.columns);
        out[i] = low;
        out[t.count + i] = first + i - t.before(low);
    }
}

KernelPtr triangle_indices(const Request& request) {
    const Operand& out = request.operands[0];
    if (!out.is_contiguous() || out.dtype != DType::i64) return nullptr;
    const int64_t rows = request.operands[1].numel(), columns = request.attrs.integer("col");
    const bool is_lower = request.attrs.flag("lower");
    const int64_t edge = std::clamp(request.attrs.integer("offset"), -rows - 1, columns + 1) + is_lower;
    const Triangle t{rows, columns, edge, request.attrs.integer("count"), is_lower};
    const int64_t blocks = std::min<int64_t>(ceil_div(t.count, THREADS), 1 << 20);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (t.count)
            launch_kernel("triangle_indices", write_triangle, unsigned(blocks), THREADS, t, reinterpret_cast<int64_t*>(data[0]));
    });
}

}  // namespace

void add_places(Registry& registry) {
    registry["triangle_indices"] = triangle_indices;
    registry["true_indices"] = true_indices;
    registry["count_nonzero"] = count_nonzero;
}

}  // namespace norch::indexing
