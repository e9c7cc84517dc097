// embedding_sum: for each bag of indices the sum of the rows that they name.
#include "common/staging.h"
#include "indexing/indexing.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {
namespace bags {

/// Threads lie in groups of `lanes`, each of which has a bag: VEC columns a thread.
struct Bags {
    int64_t count, size, features, row_stride, indices, padding;  // size: of each bag, where there are no edges
    int lanes;
    Chosen rows, edges;
};

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) sum_bags(const Bags b, T* out, const int64_t* indices, const T* weight,
                                                    const int64_t* edges, const ErrorSink sink) {
    using C = computed<T>;
    constexpr int U = 8;  // rows that are waited for at once
    const int64_t bag = int64_t(blockIdx.x) * (THREADS / b.lanes) + threadIdx.x / b.lanes;
    const int64_t column = (int64_t(blockIdx.y) * b.lanes + threadIdx.x % b.lanes) * VEC;
    if (bag >= b.count || column >= b.features) return;
    int64_t begin = bag * b.size, end = begin + b.size;
    if (edges) {
        begin = edges[bag], end = edges[bag + 1];
        if (!find_place(begin, b.edges, sink) || !find_place(end, b.edges, sink)) end = begin;
    }
    Packet<C, VEC> sum = {};
    for (int64_t base = begin; base < end; base += U) {
        int64_t row[U];
        Packet<T, VEC> x[U] = {};
#pragma unroll
        for (int u = 0; u < U; ++u) row[u] = base + u < end ? indices[base + u] : b.padding;
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (base + u < end && find_place(row[u], b.rows, sink) && row[u] != b.padding)
                x[u] = *reinterpret_cast<const Packet<T, VEC>*>(weight + row[u] * b.row_stride + column);
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int v = 0; v < VEC; ++v) sum.v[v] += upcast(x[u].v[v]);
    }
    Packet<T, VEC> y;
#pragma unroll
    for (int v = 0; v < VEC; ++v) y.v[v] = downcast<T>(sum.v[v]);
    *reinterpret_cast<Packet<T, VEC>*>(out + bag * b.features + column) = y;
}

template <class T, int VEC>
void launch(Bags b, char* const* data) {
    const int64_t packets = b.features / VEC;
    b.lanes = 1;
    while (b.lanes < THREADS && b.lanes < packets) b.lanes *= 2;
    const dim3 blocks(unsigned(ceil_div(b.count, THREADS / b.lanes)), unsigned(ceil_div(packets, b.lanes)));
    launch_kernel("sums of rows", sum_bags<T, VEC>, blocks, THREADS, b, reinterpret_cast<T*>(data[0]),
                  reinterpret_cast<const int64_t*>(data[1]), reinterpret_cast<const T*>(data[2]),
                  reinterpret_cast<const int64_t*>(data[3]), error_sink());
}

}  // namespace bags

/// out (*shape, features), input (*shape, n) or (n) with offsets (bags + 1), weight (rows, features).
KernelPtr embedding_sum(const Request& r) {
    const Operand &out = r.operands[0], &input = r.operands[1], &weight = r.operands[2];
    if (!out.is_contiguous() || !out.numel() || !weight.numel() || (weight.shape[1] > 1 && weight.strides[1] != 1))
        return nullptr;
    const bool has_offsets = r.operands.size() > 3;
    bags::Bags b = {};
    b.features = weight.shape[1], b.row_stride = weight.strides[0];
    b.count = out.numel() / b.features;
    b.indices = input.numel(), b.size = has_offsets ? 0 : input.shape.back();
    b.padding = r.attrs.has("padding_idx") ? r.attrs.integer("padding_idx") : -1;
    b.rows = {1, weight.shape[0], false, op_number(r.op)};
    b.edges = {1, b.indices + 1, false, op_number(r.op)};
    auto index = std::make_shared<StagedOperand>(StagedOperand::contiguous_in(input, DType::i64));
    auto offsets = std::make_shared<StagedOperand>();
    if (has_offsets) *offsets = StagedOperand::contiguous_in(r.operands[3], DType::i64);
    return make_kernel(0, [=, dtype = out.dtype](char* const* data, const Scalar*) {
        const Seen indices(*index, data[1]), edges(*offsets, has_offsets ? data[3] : nullptr);
        char* const seen[] = {data[0], indices.data(), data[2], edges.data()};
        visit_floating_device(dtype, [&]<class T>(Tag<T>) {
            constexpr int VEC = PER_16_BYTES<T>;
            const bool is_vector = b.features % VEC == 0 && b.row_stride % VEC == 0 && is_aligned(data[0], 16) &&
                                   is_aligned(data[2], 16);
            if (is_vector) bags::launch<T, VEC>(b, seen);
            else bags::launch<T, 1>(b, seen);
        });
    });
}

}  // namespace

void add_embedding_sum(Registry& registry) { registry["embedding_sum"] = embedding_sum; }

}  // namespace norch::indexing
