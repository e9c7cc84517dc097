// select_along: of short lines the most frequent element, by counting for each the equals that it has.
#include "common/layout.h"
#include "indexing/sorting.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {
namespace selection {

constexpr int SELECTING = 128;     // threads of a line
constexpr int64_t LONGEST = 512;  // lines that a sort is not quicker for

struct Candidate {
    uint64_t key;
    uint32_t count, index;  // of no elements: count 0

    __device__ bool is_behind(const Candidate& other) const {
        if (count != other.count) return count < other.count;
        return key != other.key ? key > other.key : index > other.index;
    }
};

/// NaN equals nothing. `nan`: its key, of a dtype that has one.
__global__ void __launch_bounds__(SELECTING)
    find_modes(const __grid_constant__ sorting::Rows r, bool has_nan, uint64_t nan, char* values, char* indices, const char* x) {
    __shared__ uint64_t keys[LONGEST];
    __shared__ Candidate found[SELECTING / 32];
    const int n = int(r.n);
    int64_t offset[3];
    r.layout.offsets(blockIdx.x, offset);
    x += offset[2];
    for (int i = int(threadIdx.x); i < n; i += SELECTING) keys[i] = sorting::key_at(x + i * r.stride[2], r.dtype);
    __syncthreads();
    Candidate best = {};
    for (int i = int(threadIdx.x); i < n; i += SELECTING) {
        const uint64_t key = keys[i];
        uint32_t count = 0;
        int last = i;
        if (has_nan && key == nan) {
            count = 1;
        } else {
            for (int j = 0; j < n; ++j)
                if (keys[j] == key) ++count, last = j;
        }
        const Candidate other{key, count, uint32_t(i)};
        if (last == i && best.is_behind(other)) best = other;  // the last of its equals stands for them
    }
    const auto take = [&best](const Candidate& other) {
        if (best.is_behind(other)) best = other;
    };
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        take({__shfl_xor_sync(~0u, best.key, step), __shfl_xor_sync(~0u, best.count, step),
              __shfl_xor_sync(~0u, best.index, step)});
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x) return;
#pragma unroll
    for (int w = 1; w < SELECTING / 32; ++w) take(found[w]);
    sorting::put(r, values + offset[0], indices + offset[1], x, 0, best.index);
}

/// values, indices, input.
KernelPtr select_along(const Request& request) {
    const auto& operands = request.operands;
    const Operand& x = operands[2];
    const auto dim = size_t(request.attrs.integer("dim"));
    if (request.attrs.text("kind") != "mode" || x.shape.empty() || operands[1].dtype != DType::i64) return nullptr;
    sorting::Rows rows = {};
    rows.n = x.shape[dim];
    rows.dtype = x.dtype;
    if (operands[0].dtype != x.dtype || rows.n < 1 || rows.n > LONGEST) return nullptr;
    for (size_t i = 0; i < 3; ++i) rows.stride[i] = operands[i].strides[dim] * size_of(operands[i].dtype);
    std::vector<Operand> lines = operands;
    for (Operand& o : lines) o.shape[dim] = 1;
    const std::vector<Piece<3>> pieces = cut<3>(collapse(lines, dims_but(x.ndim(), int(dim))));
    const uint64_t nan = ~uint64_t(0) >> (64 - 8 * size_of(x.dtype));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<3>& piece : pieces) {
            sorting::Rows r = rows;
            r.layout = piece.layout;
            launch_kernel("mode", find_modes, piece.layout.numel, SELECTING, r, is_floating(r.dtype), nan,
                          data[0] + piece.start[0], data[1] + piece.start[1], data[2] + piece.start[2]);
        }
    });
}

}  // namespace selection
}  // namespace

void add_selection(Registry& registry) { registry["select_along"] = selection::select_along; }

}  // namespace norch::indexing
