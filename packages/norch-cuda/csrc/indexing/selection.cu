// select_along: of short lines the most frequent element, by counting for each the equals that it has; of long ones an
// element of a rank, and the median.
#include "common/layout.h"
#include "indexing/ranking.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {
namespace selection {

constexpr int SELECTING = 128;     // threads of a line
constexpr int64_t LONGEST = 512;   // lines whose mode a sort does not find quicker
constexpr int64_t SHORTEST = 1024;  // lines of which a sort does not find a rank quicker
constexpr int64_t LONGEST_OF_FEW = int64_t(1) << 15;  // where there are few lines, which a block each would not be enough for
constexpr int64_t MANY = 64;

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

enum class Rank { kth, median, nanmedian };

/// The k-th element, from 0, in a stable order, or the lower median: of those that are not NaN, or NaN where there is one.
__global__ void __launch_bounds__(ranking::RANKING)
    find_ranks(const __grid_constant__ sorting::Rows r, Rank kind, uint32_t k, int bits, bool has_nan, uint64_t nan,
               char* values, char* indices, const char* x) {
    __shared__ ranking::Counts counts;
    int64_t offset[3];
    r.layout.offsets(blockIdx.x, offset);
    x += offset[2];
    const auto key_of = [&](int64_t i) { return sorting::key_at(x + i * r.stride[2], r.dtype); };
    const uint32_t n = uint32_t(r.n);
    uint32_t need = k + 1, before;
    if (kind != Rank::kth) {
        uint32_t missing = 0;
        if (has_nan)
            for (int64_t i = threadIdx.x; i < r.n; i += ranking::RANKING) missing += key_of(i) == nan;
        missing = over_block<ranking::RANKING>(missing, before);
        const uint32_t found = n - missing;
        if (kind == Rank::median) need = missing ? found + 1 : (n + 1) / 2;
        else need = found ? (found + 1) / 2 : 1;
    }
    const uint64_t key = ranking::key_of_rank(key_of, r.n, bits, need, counts);
    for (int64_t first = 0; need > 0; first += ranking::RANKING) {
        const int64_t i = first + threadIdx.x;
        const bool is_equal = i < r.n && key_of(i) == key;
        if (!__syncthreads_or(is_equal)) continue;
        const uint32_t equals = over_block<ranking::RANKING>(is_equal, before);
        if (is_equal && before + 1 == need) sorting::put(r, values + offset[0], indices + offset[1], x, 0, i);
        need = need > equals ? need - equals : 0;
    }
}

/// values, indices, input.
KernelPtr select_along(const Request& request) {
    const auto& operands = request.operands;
    const Operand& x = operands[2];
    const auto dim = size_t(request.attrs.integer("dim"));
    if (x.shape.empty() || operands[1].dtype != DType::i64) return nullptr;
    const std::string kind = request.attrs.text("kind");
    const bool is_mode = kind == "mode";
    sorting::Rows rows = {};
    rows.n = x.shape[dim];
    rows.dtype = x.dtype;
    const int64_t shortest = is_mode ? 1 : SHORTEST;
    if (operands[0].dtype != x.dtype || rows.n < shortest) return nullptr;
    if (rows.n > (is_mode ? LONGEST : x.numel() / rows.n < MANY ? LONGEST_OF_FEW : INT32_MAX)) return nullptr;
    for (size_t i = 0; i < 3; ++i) rows.stride[i] = operands[i].strides[dim] * size_of(operands[i].dtype);
    std::vector<Operand> lines = operands;
    for (Operand& o : lines) o.shape[dim] = 1;
    const std::vector<Piece<3>> pieces = cut<3>(collapse(lines, dims_but(x.ndim(), int(dim))));
    const int bits = 8 * int(size_of(x.dtype));
    const uint64_t nan = ~uint64_t(0) >> (64 - bits);
    const Rank rank = kind == "kth" ? Rank::kth : kind == "median" ? Rank::median : Rank::nanmedian;
    const auto k = uint32_t(request.attrs.integer("k"));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<3>& piece : pieces) {
            sorting::Rows r = rows;
            r.layout = piece.layout;
            char *const values = data[0] + piece.start[0], *const indices = data[1] + piece.start[1];
            const char* const from = data[2] + piece.start[2];
            if (is_mode)
                launch_kernel("mode", find_modes, piece.layout.numel, SELECTING, r, is_floating(r.dtype), nan, values,
                              indices, from);
            else
                launch_kernel("an element of a rank", find_ranks, piece.layout.numel, ranking::RANKING, r, rank, k, bits,
                              is_floating(r.dtype), nan, values, indices, from);
        }
    });
}

}  // namespace selection
}  // namespace

void add_selection(Registry& registry) { registry["select_along"] = selection::select_along; }

}  // namespace norch::indexing
