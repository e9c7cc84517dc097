// topk of long rows: a block finds the key of rank k digit by digit, by counting, then takes what goes before it, and of its
// equals the first; these are sorted in shared memory, so that the result is the start of a stable sort.
#include <algorithm>

#include "common/layout.h"
#include "indexing/ranking.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

using namespace sorting;

constexpr int TOPK_THREADS = ranking::RANKING;
constexpr int64_t SHORTEST = 2049;           // rows that sort does not do in shared memory
constexpr int64_t MOST = 2048;               // that are taken
constexpr int64_t LONGEST = int64_t(1) << 20;  // where there are few rows, which a block each would not be enough for

template <class Entry>
__global__ void __launch_bounds__(TOPK_THREADS)
    topk_rows(const __grid_constant__ Rows r, uint32_t k, int bits, int log_width, char* values, char* indices,
              const char* x) {
    extern __shared__ __align__(16) char shared[];
    auto* const entries = reinterpret_cast<Entry*>(shared);
    __shared__ ranking::Counts counts;
    __shared__ uint32_t taken;
    int64_t offset[3];
    r.layout.offsets(blockIdx.x, offset);
    x += offset[2];
    const auto key_of = [&](int64_t i) { return key_at(x + i * r.stride[2], r.dtype) ^ r.flip; };
    uint32_t need = k;
    const uint64_t prefix = ranking::key_of_rank(key_of, r.n, bits, need, counts);
    // `need` of those that equal the prefix, and all that go before it.
    if (threadIdx.x == 0) taken = 0;
    uint32_t equals = 0;
    __syncthreads();
    for (int64_t first = 0; first < r.n; first += TOPK_THREADS) {
        const int64_t i = first + threadIdx.x;
        const uint64_t key = i < r.n ? key_of(i) : ~uint64_t(0);
        if (i < r.n && key < prefix) entries[slot(int(atomicAdd(&taken, 1u)))] = Entry(key, uint32_t(i));
        if (equals >= need) continue;
        const bool is_equal = i < r.n && key == prefix;
        if (!__syncthreads_or(is_equal)) continue;
        uint32_t at;
        const uint32_t found = over_block<TOPK_THREADS>(is_equal, at);
        at += equals;
        if (is_equal && at < need) entries[slot(int(k - need + at))] = Entry(key, uint32_t(i));
        equals += found;
    }
    for (int e = int(k) + threadIdx.x; e < 1 << log_width; e += TOPK_THREADS) entries[slot(e)] = Entry(~uint64_t(0), ~0u);
    sort_entries(entries, 1 << log_width, log_width);
    for (int e = threadIdx.x; e < int(k); e += TOPK_THREADS)
        put(r, values + offset[0], indices + offset[1], x, e, entries[slot(e)].index());
}

/// values, indices, input. Null where sorting whole rows takes no longer.
KernelPtr topk(const Request& request) {
    const auto& operands = request.operands;
    const int64_t dim = request.attrs.integer("dim"), k = request.attrs.integer("k");
    if (operands[2].shape.empty() || operands[0].dtype != operands[2].dtype || operands[1].dtype != DType::i64)
        return nullptr;
    Rows rows = {};
    rows.n = operands[2].shape[size_t(dim)];
    rows.dtype = operands[2].dtype;
    const int bits = 8 * int(size_of(rows.dtype));
    rows.flip = request.attrs.flag("largest") ? ~uint64_t(0) >> (64 - bits) : 0;
    for (int i = 0; i < 3; ++i) rows.stride[i] = operands[size_t(i)].strides[size_t(dim)] * size_of(operands[size_t(i)].dtype);
    // The loops are over the rows: their own sizes along the dim differ.
    std::vector<Operand> lines = operands;
    for (Operand& o : lines) o.shape[size_t(dim)] = 1;
    const std::vector<Piece<3>> pieces = cut<3>(collapse(lines, dims_but(lines[0].ndim(), dim)));
    const int64_t count = operands[2].numel() / std::max<int64_t>(rows.n, 1);
    if (k < 1 || k > MOST || rows.n < SHORTEST || rows.n > INT32_MAX || (rows.n > LONGEST && count < 64)) return nullptr;
    int log_width = 0;
    while ((int64_t(1) << log_width) < k) ++log_width;
    const bool is_wide = bits == 64;
    const size_t width = size_t(1) << log_width;
    const size_t bytes = (width + width / 8) * (is_wide ? sizeof(Paired) : sizeof(Packed));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<3>& piece : pieces) {
            Rows r = rows;
            r.layout = piece.layout;
            launch_kernel("topk", is_wide ? topk_rows<Paired> : topk_rows<Packed>,
                          Grid{piece.layout.numel, TOPK_THREADS, bytes}, r, uint32_t(k), bits, log_width,
                          data[0] + piece.start[0], data[1] + piece.start[1], data[2] + piece.start[2]);
        }
    });
}

}  // namespace

void add_topk(Registry& registry) { registry["topk"] = topk; }

}  // namespace norch::indexing
