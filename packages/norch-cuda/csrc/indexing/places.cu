// true_places: where the elements of a mask are that are True, in order, and how many there are. Blocks count those of their
// parts, and each then writes behind what the parts before it have. triangle_indices: where those of a triangle are.
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

__global__ void __launch_bounds__(THREADS) write_places(const uint8_t* mask, int64_t n, int64_t part,
                                                        const uint32_t* counts, int64_t* out, int64_t most) {
    __shared__ uint16_t found[TILE];
    __shared__ unsigned long long first;
    if (threadIdx.x == 0) first = 0;
    __syncthreads();
    unsigned long long earlier = 0;
    for (uint32_t b = threadIdx.x; b < blockIdx.x; b += THREADS) earlier += counts[b];
    if (earlier) atomicAdd(&first, earlier);
    __syncthreads();
    int64_t to = int64_t(first);
    const int64_t begin = blockIdx.x * part, end = min(begin + part, n);
    for (int64_t tile = begin; tile < end; tile += TILE) {
        const int64_t i = tile + threadIdx.x * FLAGS;
        uint32_t bits = i < end ? bits_at(mask, i, end) : 0, at;
        const uint32_t total = over_block(__popc(bits), at);
        for (; bits; bits &= bits - 1) found[at++] = uint16_t(threadIdx.x * FLAGS + __ffs(bits) - 1);
        __syncthreads();
        for (uint32_t j = threadIdx.x; j < total; j += THREADS)
            if (to + j < most) out[to + j] = tile + found[j];
        to += total;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS) add_counts(const uint32_t* counts, uint32_t parts, int64_t* out) {
    __shared__ unsigned long long total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    unsigned long long own = 0;
    for (uint32_t b = threadIdx.x; b < parts; b += THREADS) own += counts[b];
    if (own) atomicAdd(&total, own);
    __syncthreads();
    if (threadIdx.x == 0) *out = int64_t(total);
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

KernelPtr true_places(const Request& request) {
    const Operand &out = request.operands[0], &mask = request.operands[1];
    const int64_t n = mask.numel(), most = out.numel();
    if (mask.dtype != DType::boolean || !mask.is_contiguous() || !out.is_contiguous() || out.dtype != DType::i64)
        return nullptr;
    if (!n || !most) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int64_t part = part_of(n);
    if (part > int64_t(1) << 31) return nullptr;
    const auto parts = unsigned(ceil_div(n, part));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const auto* mask = reinterpret_cast<const uint8_t*>(data[1]);
        const Scratch<uint32_t> counts(parts);
        launch_kernel("true_places", count_true, parts, THREADS, mask, n, part, counts.data());
        launch_kernel("true_places", write_places, parts, THREADS, mask, n, part, counts.data(),
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
    registry["true_places"] = true_places;
    registry["count_nonzero"] = count_nonzero;
}

}  // namespace norch::indexing
