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
    const Places<3> at(layout);
    int64_t k[U];
    P value[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!at.is_there(u)) continue;
        value[u] = *reinterpret_cast<const P*>(src + at.offset[u][0]);
        k[u] = *reinterpret_cast<const int64_t*>(index + at.offset[u][2]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
        if (at.is_there(u) && find_place(k[u], chosen, sink))
            *reinterpret_cast<P*>(out + at.offset[u][1] + k[u] * chosen.step) = value[u];
}

class Scatter final : public Kernel {
public:
    /// The loops are those of src, which is what is walked along; then out, index.
    Scatter(const Loops& loops, DType dtype, const Chosen& chosen)
        : loops_(loops, size_of(dtype), chosen.step), chosen_(chosen) {}

    void run(char* const* data, const Scalar*) const override {
        loops_.each(data[0], data[2], [&]<class P>(Tag<P>, const Piece<3>& piece) {
            launch_kernel("a scatter", scatter_elements<P>, index_blocks(piece.layout.numel), THREADS, piece.layout,
                          data[0] + piece.start[1], data[2] + piece.start[0], data[1] + piece.start[2], chosen_,
                          error_sink());
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
