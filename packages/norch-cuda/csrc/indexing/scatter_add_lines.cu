// scatter_add of floats in long lines along its dim, the same in every run: as integers, as scatter_add.cu has them, but in
// shared memory. Of many lines each is a block's; few are cut into parts, whose integers are added up.
#include <algorithm>

#include "indexing/exact_sum.cuh"
#include "indexing/scatter_add_lines.h"
#include "runtime/allocator.h"

namespace norch::indexing {
namespace {
namespace lines {

/// Lines along the dim: bytes between elements of out, src and index; how many src and index have, in all and in a part.
struct Line {
    int64_t out_step, src_step, index_step;
    int count, part, parts, headroom;
};

/// Calls f(index, addend) for what a block has of a part of a line.
template <class T, class F>
__device__ inline void each_of(const Line& line, int part, const char* src, const char* index, const F& f) {
    const int end = min(line.count, (part + 1) * line.part);
#pragma unroll 4
    for (int i = part * line.part + int(threadIdx.x); i < end; i += THREADS)
        f(*reinterpret_cast<const int64_t*>(index + i * line.index_step),
          double(upcast(*reinterpret_cast<const T*>(src + i * line.src_step))));
}

/// The place of an index that was reported if there is none.
__device__ inline bool is_place(int64_t& k, int size) {
    if (k < 0) k += size;
    return uint64_t(k) < uint64_t(size);
}

template <class T>
__global__ void __launch_bounds__(THREADS) add_lines(const __grid_constant__ Layout<3> lines, char* out, const char* src,
                                                     const char* index, const Line line, const Chosen chosen,
                                                     const ErrorSink sink) {
    extern __shared__ __align__(16) char shared[];
    const int size = int(chosen.size);
    auto* high = reinterpret_cast<unsigned long long*>(shared);
    auto* low = high + (sizeof(T) == 8 ? size : 0);
    auto* seen = reinterpret_cast<uint32_t*>(low + size);
    int64_t offset[3];
    lines.offsets(blockIdx.x, offset);
    src += offset[0], index += offset[2];
    for (int k = threadIdx.x; k < size; k += THREADS) {
        high[k] = low[k] = 0;
        seen[k] = 0;
    }
    __syncthreads();
    each_of<T>(line, 0, src, index, [&](int64_t k, double x) {
        if (find_place(k, chosen, sink)) note(seen + k, x);
    });
    __syncthreads();
    each_of<T>(line, 0, src, index, [&](int64_t k, double x) {
        if (is_place(k, size)) add_in_units<T>(seen[k], line.headroom, high + k, low + k, x);
    });
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS)
        if (seen[k])
            write_sum(*reinterpret_cast<T*>(out + offset[1] + k * line.out_step), seen[k], line.headroom, high[k],
                      sizeof(T) == 8 ? low[k] : 0);
}

// --- In parts -------------------------------------------------------------------------------------------------------

/// First the largest exponent at each place of a line.
template <class T>
__global__ void __launch_bounds__(THREADS) note_parts(const __grid_constant__ Layout<3> lines, const char* src,
                                                      const char* index, const Line line, const Chosen chosen,
                                                      const ExactSums sums, const ErrorSink sink) {
    extern __shared__ __align__(16) char shared[];
    auto* seen = reinterpret_cast<uint32_t*>(shared);
    const int size = int(chosen.size), at = int(blockIdx.x) / line.parts, part = int(blockIdx.x) - at * line.parts;
    int64_t offset[3];
    lines.offsets(at, offset);
    for (int k = threadIdx.x; k < size; k += THREADS) seen[k] = 0;
    __syncthreads();
    each_of<T>(line, part, src + offset[0], index + offset[2], [&](int64_t k, double x) {
        if (find_place(k, chosen, sink)) note(seen + k, x);
    });
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) {
        if (seen[k] >= PLUS_INFINITY) atomicOr(sums.seen + int64_t(at) * size + k, seen[k]);
        else if (seen[k]) atomicMax(sums.seen + int64_t(at) * size + k, seen[k]);
    }
}

/// Then the sums.
template <class T>
__global__ void __launch_bounds__(THREADS) add_parts(const __grid_constant__ Layout<3> lines, const char* src,
                                                     const char* index, const Line line, const Chosen chosen,
                                                     const ExactSums sums) {
    extern __shared__ __align__(16) char shared[];
    const int size = int(chosen.size), at = int(blockIdx.x) / line.parts, part = int(blockIdx.x) - at * line.parts;
    auto* high = reinterpret_cast<unsigned long long*>(shared);
    auto* low = high + (sizeof(T) == 8 ? size : 0);
    auto* seen = reinterpret_cast<uint32_t*>(low + size);
    int64_t offset[3];
    lines.offsets(at, offset);
    const int64_t first = int64_t(at) * size;
    for (int k = threadIdx.x; k < size; k += THREADS) {
        high[k] = low[k] = 0;
        seen[k] = sums.seen[first + k];
    }
    __syncthreads();
    each_of<T>(line, part, src + offset[0], index + offset[2], [&](int64_t k, double x) {
        if (is_place(k, size)) add_in_units<T>(seen[k], line.headroom, high + k, low + k, x);
    });
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) {
        if (high[k]) atomicAdd(sums.high + first + k, high[k]);
        if (sizeof(T) == 8 && low[k]) atomicAdd(sums.low + first + k, low[k]);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) write_parts(const __grid_constant__ Layout<3> lines, char* out, const Line line,
                                                       const ExactSums sums, int size) {
    const int64_t i = blockIdx.x * int64_t(THREADS) + threadIdx.x, at = i / size, k = i - at * size;
    if (at >= lines.numel || !sums.seen[i]) return;
    int64_t offset[3];
    lines.offsets(uint32_t(at), offset);
    write_sum(*reinterpret_cast<T*>(out + offset[1] + k * line.out_step), sums.seen[i], line.headroom, sums.high[i],
              sizeof(T) == 8 ? sums.low[i] : 0);
}

// --- Kernels --------------------------------------------------------------------------------------------------------

template <class T>
class LinesAdd final : public Kernel {
public:
    LinesAdd(const Loops& lines, const Line& line, const Chosen& chosen)
        : pieces_(cut<3>(lines)), line_(line), chosen_(chosen) {}

    void run(char* const* data, const Scalar*) const override {
        constexpr const char* WHAT = "a scatter_add";
        const size_t shared = size_t(chosen_.size) * BYTES_PER_PLACE<T>;
        for (const Piece<3>& piece : pieces_) {
            char *const out = data[0] + piece.start[1], *const src = data[2] + piece.start[0];
            char* const index = data[1] + piece.start[2];
            const unsigned lines = piece.layout.numel;
            if (line_.parts == 1) {
                launch_kernel(WHAT, add_lines<T>, Grid{lines, THREADS, shared}, piece.layout, out, src, index, line_, chosen_,
                              error_sink());
                continue;
            }
            const int64_t places = lines * chosen_.size;
            const Scratch<> scratch(size_t(places) * BYTES_PER_PLACE<T>);
            check(cudaMemsetAsync(scratch.data(), 0, size_t(places) * BYTES_PER_PLACE<T>, stream_handle()), "clearing sums");
            ExactSums sums = {};
            sums.high = reinterpret_cast<unsigned long long*>(scratch.data());
            sums.low = sums.high + (sizeof(T) == 8 ? places : 0);
            sums.seen = reinterpret_cast<uint32_t*>(sums.low + places);
            const Grid parts{lines * unsigned(line_.parts), THREADS, shared};
            launch_kernel(WHAT, note_parts<T>, parts, piece.layout, src, index, line_, chosen_, sums, error_sink());
            launch_kernel(WHAT, add_parts<T>, parts, piece.layout, src, index, line_, chosen_, sums);
            launch_kernel(WHAT, write_parts<T>, unsigned(ceil_div(places, THREADS)), THREADS, piece.layout, out, line_, sums,
                          int(chosen_.size));
        }
    }

private:
    std::vector<Piece<3>> pieces_;
    Line line_;
    Chosen chosen_;
};

}  // namespace lines
}  // namespace

KernelPtr add_by_lines(const Request& r, const Chosen& chosen, int dim) {
    constexpr int64_t MANY = 132, LEAST = 128, LEAST_PART = 2048;
    const Operand &out = r.operands[0], &index = r.operands[1], &src = r.operands[2];
    const int64_t count = size_along(index, dim), lines = count ? index.numel() / count : 0;
    if (!is_floating(out.dtype) || count < LEAST || lines < 1) return nullptr;
    if (src.strides[dim] > 1 || index.strides[dim] > 1) return nullptr;
    const int64_t most = count / std::max(LEAST_PART, chosen.size);
    const int64_t parts = lines < MANY ? std::min(most, ceil_div(4 * MANY, lines)) : 1;
    if (parts < 1 || (parts == 1 && (lines < MANY || count > 65536)) || count > INT32_MAX / 2) return nullptr;
    const int64_t part = ceil_div(count, parts);
    const lines::Line line = {chosen.step, stride_along(src, dim), stride_along(index, dim), int(count), int(part),
                              int(ceil_div(count, part)), bits_of(count)};
    return visit_floating_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if (chosen.size * BYTES_PER_PLACE<T> > 48 * 1024) return nullptr;
        return std::make_unique<lines::LinesAdd<T>>(
            collapse({src, indexed(out, index.shape, dim), index}, dims_but(index.ndim(), dim)), line, chosen);
    });
}

}  // namespace norch::indexing
