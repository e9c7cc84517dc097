// scatter: where an index comes twice, which of its values is kept is left open, and may change from run to run.
#include "indexing/indexing.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

template <class P>
__global__ void __launch_bounds__(THREADS) scatter_elements(const __grid_constant__ Layout<3> layout, char* out,
                                                            const char* src, const char* index, const Chosen chosen,
                                                            const ErrorSink sink) {
    constexpr int U = INDEX_UNROLL;
    const uint32_t first = blockIdx.x * (THREADS * U) + threadIdx.x;
    char* to[U];
    int64_t k[U];
    P value[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const uint32_t i = first + u * THREADS;
        if (i < layout.numel) {
            int64_t offset[3];
            layout.offsets(i, offset);
            value[u] = *reinterpret_cast<const P*>(src + offset[0]);
            to[u] = out + offset[1];
            k[u] = *reinterpret_cast<const int64_t*>(index + offset[2]);
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (first + u * THREADS < layout.numel && find_place(k[u], chosen, sink))
            *reinterpret_cast<P*>(to[u] + k[u] * chosen.step) = value[u];
}

class Scatter final : public Kernel {
public:
    /// The loops are those of src, which is what is walked along; then out, index.
    Scatter(const Loops& loops, DType dtype, const Chosen& chosen)
        : loops_(loops, size_of(dtype), chosen.step), chosen_(chosen) {}

    void run(char* const* data, const Scalar*) const override {
        loops_.each(data[0], data[2], [&]<class P>(Tag<P>, const Piece<3>& piece) {
            scatter_elements<P><<<index_blocks(piece.layout.numel), THREADS, 0, stream_handle()>>>(
                piece.layout, data[0] + piece.start[1], data[2] + piece.start[0], data[1] + piece.start[2], chosen_,
                error_sink());
            check_launch("a scatter");
        });
    }

private:
    IndexedLoops loops_;
    Chosen chosen_;
};

KernelPtr scatter(const Request& r) {
    const Operand &out = r.operands[0], &index = r.operands[1], &src = r.operands[2];
    const int dim = int(r.attrs.integer("dim"));
    return std::make_unique<Scatter>(collapse({src, indexed(out, index.shape, dim), index}), out.dtype,
                                     chosen_along(r.op, out, dim));
}

}  // namespace

void add_scatter(Registry& registry) { registry["scatter"] = scatter; }

}  // namespace norch::indexing
