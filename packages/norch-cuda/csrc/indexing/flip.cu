// flip: a copy that walks the input backwards along some dims.
#include <algorithm>

#include "indexing/indexing.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {
namespace flipping {

template <class P>
__global__ void __launch_bounds__(THREADS) copy_elements(const __grid_constant__ Layout<2> layout, char* out, const char* x) {
    const Places<2> at(layout);
    P value[INDEX_UNROLL];
#pragma unroll
    for (int u = 0; u < INDEX_UNROLL; ++u)
        if (at.is_there(u)) value[u] = *reinterpret_cast<const P*>(x + at.offset[u][1]);
#pragma unroll
    for (int u = 0; u < INDEX_UNROLL; ++u)
        if (at.is_there(u)) *reinterpret_cast<P*>(out + at.offset[u][0]) = value[u];
}

KernelPtr flip(const Request& r) {
    const Operand& out = r.operands[0];
    Operand x = r.operands[1];
    const int64_t itemsize = size_of(x.dtype);
    int64_t start = 0;  // of the element that comes first
    for (int64_t d : r.attrs.integers("dims")) {
        if (d < 0 || d >= x.ndim()) throw std::invalid_argument("flip along a dim that is not there");
        start += std::max<int64_t>(x.shape[size_t(d)] - 1, 0) * x.strides[size_t(d)] * itemsize;
        x.strides[size_t(d)] *= -1;
    }
    const auto pieces = cut<2>(collapse({out, x}));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        for (const Piece<2>& piece : pieces)
            visit_bits(itemsize, [&]<class P>(Tag<P>) {
                launch_kernel("flip", copy_elements<P>, index_blocks(piece.layout.numel), THREADS, piece.layout,
                              data[0] + piece.start[0], data[1] + start + piece.start[1]);
            });
    });
}

}  // namespace flipping
}  // namespace

void add_flip(Registry& registry) { registry["flip"] = flipping::flip; }

}  // namespace norch::indexing
