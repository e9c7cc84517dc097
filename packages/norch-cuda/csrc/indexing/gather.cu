// gather, embedding, which is a gather of rows, and two indices as one.
#include "common/staging.h"
#include "indexing/indexing.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

template <class P, class Index>
__global__ void __launch_bounds__(THREADS) gather_elements(const __grid_constant__ Layout<3> layout, char* out,
                                                           const char* x, const char* index, const Chosen chosen,
                                                           const ErrorSink sink) {
    constexpr int U = INDEX_UNROLL;
    const Places<3> at(layout);
    int64_t k[U];
    P value[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (at.is_there(u)) k[u] = int64_t(*reinterpret_cast<const Index*>(index + at.offset[u][2]));
#pragma unroll
    for (int u = 0; u < U; ++u) {
        value[u] = P{};
        if (at.is_there(u) && find_place(k[u], chosen, sink))
            value[u] = *reinterpret_cast<const P*>(x + at.offset[u][1] + k[u] * chosen.step);
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (at.is_there(u)) *reinterpret_cast<P*>(out + at.offset[u][0]) = value[u];
}

class Gather final : public Kernel {
public:
    Gather(const Loops& loops, DType dtype, DType index, const Chosen& chosen)
        : loops_(loops, size_of(dtype), chosen.step), is_int32_(index == DType::i32), chosen_(chosen) {}

    void run(char* const* data, const Scalar*) const override {
        loops_.each(data[0], data[1], [&]<class P>(Tag<P>, const Piece<3>& piece) {
            auto* kernel = is_int32_ ? gather_elements<P, int32_t> : gather_elements<P, int64_t>;
            launch_kernel("a gather", kernel, index_blocks(piece.layout.numel), THREADS, piece.layout,
                          data[0] + piece.start[0], data[1] + piece.start[1], data[2] + piece.start[2], chosen_,
                          error_sink());
        });
    }

private:
    IndexedLoops loops_;
    bool is_int32_;
    Chosen chosen_;
};

KernelPtr gather(const Request& r) {
    const Operand &out = r.operands[0], &x = r.operands[1], &index = r.operands[2];
    const int dim = int(r.attrs.integer("dim"));
    return gather_kernel(collapse({out, indexed(x, out.shape, dim), index}), out.dtype, index.dtype,
                         chosen_along(r.op, x, dim));
}

/// out (*shape, features), input (*shape), weight (rows, features): a negative index is out of range here.
KernelPtr embedding(const Request& r) {
    const Operand &out = r.operands[0], &weight = r.operands[2];
    const bool is_ready = r.operands[1].dtype == DType::i64 || r.operands[1].dtype == DType::i32;
    auto staged = std::make_shared<StagedOperand>();
    staged->view = r.operands[1];
    if (!is_ready) staged->stage(r.operands[1], DType::i64);
    Operand index = staged->view, rows = weight;
    index.shape = rows.shape = out.shape;
    index.strides.push_back(0);
    rows.strides.assign(out.shape.size(), 0);
    rows.strides.back() = weight.strides[1];
    const Chosen chosen = {stride_along(weight, 0), weight.shape[0], false, op_number(r.op)};
    std::shared_ptr<Kernel> take = gather_kernel(collapse({out, rows, index}), out.dtype, index.dtype, chosen);
    return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
        const Seen seen(*staged, data[1]);
        char* const operands[] = {data[0], data[2], seen.data()};
        take->run(operands, scalars);
    });
}

/// Places along two dims, of which steps are places of one.
__global__ void __launch_bounds__(THREADS) flat_places(const __grid_constant__ Layout<3> layout, char* out,
                                                       const char* first, const char* second, const Chosen rows,
                                                       const Chosen columns, const ErrorSink sink) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= layout.numel) return;
    int64_t offset[3];
    layout.offsets(i, offset);
    int64_t row = *reinterpret_cast<const int64_t*>(first + offset[1]);
    int64_t column = *reinterpret_cast<const int64_t*>(second + offset[2]);
    const bool is_there = find_place(row, rows, sink) && find_place(column, columns, sink);
    *reinterpret_cast<int64_t*>(out + offset[0]) = is_there ? row * rows.step + column : 0;
}

KernelPtr flat_index(const Request& r) {
    for (const Operand& o : r.operands)
        if (o.dtype != DType::i64 || o.is_scalar || o.shape != r.operands[0].shape) return nullptr;
    const std::vector<int64_t>& sizes = r.attrs.integers("sizes");
    const int32_t op = op_number("index");
    const Chosen rows = {sizes[1], sizes[0], true, op}, columns = {1, sizes[1], true, op};
    const std::vector<Piece<3>> pieces = cut<3>(collapse(r.operands));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<3>& piece : pieces)
            launch_kernel("an index", flat_places, unsigned(ceil_div(piece.layout.numel, THREADS)), THREADS, piece.layout,
                          data[0] + piece.start[0], data[1] + piece.start[1], data[2] + piece.start[2], rows, columns,
                          error_sink());
    });
}

}  // namespace

KernelPtr gather_kernel(const Loops& loops, DType dtype, DType index, const Chosen& chosen) {
    return std::make_unique<Gather>(loops, dtype, index, chosen);
}

void add_gather(Registry& registry) {
    registry["gather"] = gather;
    registry["embedding"] = embedding;
    registry["flat_index"] = flat_index;
}

}  // namespace norch::indexing
