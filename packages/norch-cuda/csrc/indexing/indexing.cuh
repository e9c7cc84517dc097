// What gather, scatter and scatter_add share: loops over index's shape, in which the tensor that is indexed has stride
// 0 along the dim. An index out of range is reported, and its element left alone (or 0, where one must be written).
#pragma once

#include <string>

#include "common/operands.h"
#include "runtime/device.cuh"

namespace norch::indexing {

constexpr int INDEX_UNROLL = 4;

/// What an index chooses from: steps in bytes along a dim of a size. `wraps`: whether -1 is the last.
struct Chosen {
    int64_t step, size;
    bool wraps;
    int32_t op;
};

inline Chosen chosen_along(const std::string& op, const Operand& operand, int dim) {
    return {stride_along(operand, dim), size_along(operand, dim), true, op_number(op)};
}

/// The place that index k means; where there is none, false, which has been reported.
__device__ inline bool find_place(int64_t& k, const Chosen& chosen, const ErrorSink& sink) {
    const int64_t given = k;
    if (k < 0 && chosen.wraps) k += chosen.size;
    if (uint64_t(k) < uint64_t(chosen.size)) return true;
    report_index(sink, chosen.op, given, chosen.size);
    return false;
}

/// The elements of INDEX_UNROLL places of some loops that a thread has, spread over its block: their byte offsets.
template <int N>
struct Places {
    uint32_t first, numel;
    int64_t offset[INDEX_UNROLL][N];

    __device__ explicit Places(const Layout<N>& layout)
        : first(blockIdx.x * (THREADS * INDEX_UNROLL) + threadIdx.x), numel(layout.numel) {
#pragma unroll
        for (int u = 0; u < INDEX_UNROLL; ++u)
            if (is_there(u)) layout.offsets(first + u * THREADS, offset[u]);
    }
    __device__ bool is_there(int u) const { return first + u * THREADS < numel; }
};

/// Makes elements of up to 16 bytes out of the innermost ones of some loops of two tensors and an index (strides[0], [1]
/// and [2]), where one index serves a row and the rows allow it. Returns the size of what is moved at once.
inline int64_t widen_rows(Loops& loops, int64_t itemsize, int64_t step) {
    if (loops.shape.empty()) return itemsize;
    const size_t last = loops.shape.size() - 1;
    const auto& strides = loops.strides;
    if (strides[0][last] != itemsize || strides[1][last] != itemsize || strides[2][last] != 0) return itemsize;
    for (int64_t bytes = 16; bytes > itemsize; bytes /= 2) {
        bool fits = loops.shape[last] * itemsize % bytes == 0 && step % bytes == 0;
        for (size_t d = 0; fits && d < last; ++d) fits = strides[0][d] % bytes == 0 && strides[1][d] % bytes == 0;
        if (!fits) continue;
        loops.numel /= bytes / itemsize;
        loops.shape[last] /= bytes / itemsize;
        loops.strides[0][last] = loops.strides[1][last] = bytes;
        return bytes;
    }
    return itemsize;
}

/// Calls f(Tag<P>) with a type of a number of bytes to be moved at once.
template <class F>
void visit_packet(int64_t bytes, const F& f) {
    switch (bytes) {
        case 1: return f(Tag<uint8_t>{});
        case 2: return f(Tag<uint16_t>{});
        case 4: return f(Tag<uint32_t>{});
        case 8: return f(Tag<uint2>{});
        default: return f(Tag<uint4>{});
    }
}

/// The blocks of INDEX_UNROLL elements a thread.
inline unsigned index_blocks(uint32_t numel) { return unsigned(ceil_div(numel, THREADS * INDEX_UNROLL)); }

/// Loops of two tensors and an index, as they are and by rows as many bytes at once as can be.
class IndexedLoops {
public:
    IndexedLoops(Loops loops, int64_t itemsize, int64_t step) : itemsize_(itemsize), elementwise_(cut<3>(loops)) {
        bytes_ = widen_rows(loops, itemsize, step);
        if (bytes_ != itemsize) vectorized_ = cut<3>(loops);
    }

    /// Calls f(tag of what is moved at once, piece) for each piece; a and b are the two tensors.
    template <class F>
    void each(const char* a, const char* b, const F& f) const {
        const bool is_vectorized = bytes_ != itemsize_ && is_aligned(a, size_t(bytes_)) && is_aligned(b, size_t(bytes_));
        for (const Piece<3>& piece : is_vectorized ? vectorized_ : elementwise_)
            visit_packet(is_vectorized ? bytes_ : itemsize_, [&](auto tag) { f(tag, piece); });
    }

private:
    int64_t itemsize_, bytes_;
    std::vector<Piece<3>> elementwise_, vectorized_;
};

/// The kernel of gather and embedding: out[i] = x[at index[i]], for loops of out, x, index (int64 or int32).
KernelPtr gather_kernel(const Loops& loops, DType dtype, DType index, const Chosen& chosen);

}  // namespace norch::indexing
