// flip: a copy that walks the input backwards along some dims.
#include <algorithm>
#include <cstring>

#include "common/layout.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::indexing {
namespace {

/// Elements of U, whatever they mean: the first at `from`, the others `stride` bytes apart.
template <class U>
void copy_line(char* out, int64_t out_stride, const char* from, int64_t stride, int64_t n) {
    constexpr int64_t size = sizeof(U);
    if (out_stride == size && stride == size) {
        std::memcpy(out, from, size_t(n * size));
    } else if (out_stride == size && stride == -size) {
        U* to = reinterpret_cast<U*>(out);
        const U* first = reinterpret_cast<const U*>(from) - (n - 1);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) to[i] = first[n - 1 - i];
    } else {
        for (int64_t i = 0; i < n; ++i)
            *reinterpret_cast<U*>(out + i * out_stride) = *reinterpret_cast<const U*>(from + i * stride);
    }
}

[[gnu::cold]] KernelPtr flip(const Request& request) {
    const Operand& out = request.operands[0];
    Operand x = request.operands[1];
    const int64_t size = size_of(x.dtype);
    int64_t start = 0;  // of the element that comes first
    for (int64_t d : request.attrs.integers("dims")) {
        if (d < 0 || d >= x.ndim()) throw std::invalid_argument("flip along a dim that is not there");
        start += std::max<int64_t>(x.shape[size_t(d)] - 1, 0) * x.strides[size_t(d)] * size;
        x.strides[size_t(d)] *= -1;
    }
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    const Loops loops = collapse({out, x});
    const int outer = std::max(loops.ndim() - 1, 0);
    const int64_t n = loops.ndim() ? loops.shape.back() : 1;
    const int64_t out_stride = loops.ndim() ? loops.strides[0].back() : size, stride = loops.ndim() ? loops.strides[1].back() : size;
    const auto line = size == 8 ? copy_line<uint64_t> : size == 4 ? copy_line<uint32_t> : size == 2 ? copy_line<uint16_t> : copy_line<uint8_t>;
    const double ns = 0.1 * double(n * size) / 4 + 2;
    return make_kernel(ns * double(out.numel() / n), [=](char* const* data, const Scalar*) {
        char* const from[] = {data[0], data[1] + start};
        parallel_for(loops.numel / n, ns, [&](int64_t begin, int64_t end) {
            Walker at(loops, outer, from, begin);
            for (int64_t i = begin; i < end; ++i, at.next()) line(at[0], out_stride, at[1], stride, n);
        });
    });
}

}  // namespace

void add_flip(Registry& registry) { registry["flip"] = flip; }

}  // namespace norch::indexing
