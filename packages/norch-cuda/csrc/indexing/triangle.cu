// triangle: what tril and triu keep of the last two dims, and zeros. How far an element is from the main diagonal is a
// third operand of the loops, with strides and no memory.
#include "indexing/indexing.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {
namespace triangles {

template <class P>
__global__ void __launch_bounds__(THREADS)
    keep_elements(const __grid_constant__ Layout<3> layout, int64_t diagonal, bool lower, char* out, const char* x) {
    const Places<3> at(layout);
    P value[INDEX_UNROLL];
#pragma unroll
    for (int u = 0; u < INDEX_UNROLL; ++u) {
        value[u] = P(0);
        if (!at.is_there(u)) continue;
        const int64_t right = at.offset[u][2];  // of the main diagonal
        if (lower ? right <= diagonal : right >= diagonal) value[u] = *reinterpret_cast<const P*>(x + at.offset[u][1]);
    }
#pragma unroll
    for (int u = 0; u < INDEX_UNROLL; ++u)
        if (at.is_there(u)) *reinterpret_cast<P*>(out + at.offset[u][0]) = value[u];
}

/// out, input.
KernelPtr triangle(const Request& r) {
    const Operand &out = r.operands[0], &x = r.operands[1];
    if (x.is_scalar || x.dtype != out.dtype || x.ndim() < 2) return nullptr;
    Operand right(DType::u8, x.shape, std::vector<int64_t>(x.shape.size(), 0));  // a byte a column
    right.strides[right.strides.size() - 1] = 1;
    right.strides[right.strides.size() - 2] = -1;
    const int64_t diagonal = r.attrs.integer("diagonal");
    const bool lower = r.attrs.flag("lower");
    const auto pieces = cut<3>(collapse({out, x, right}));
    return make_kernel(0, [=, itemsize = size_of(x.dtype)](char* const* data, const Scalar*) {
        for (const Piece<3>& piece : pieces)
            visit_bits(itemsize, [&]<class P>(Tag<P>) {
                launch_kernel("triangle", keep_elements<P>, index_blocks(piece.layout.numel), THREADS, piece.layout,
                              diagonal - piece.start[2], lower, data[0] + piece.start[0], data[1] + piece.start[1]);
            });
    });
}

}  // namespace triangles
}  // namespace

void add_triangles(Registry& registry) { registry["triangle"] = triangles::triangle; }

}  // namespace norch::indexing
