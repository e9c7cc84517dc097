// flip: a copy that walks the input backwards along some dims.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/layout.h"
#include "common/operands.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::indexing {
namespace {

/// From one element of a row to the next, and from one row to the next, in bytes.
struct Steps {
    int64_t column, row;
};

/// `rows` rows of n elements of U, whatever they mean.
template <class U>
void copy_rows(char* out, const Steps& to, const char* from, const Steps& of, int64_t rows, int64_t n) {
    constexpr int64_t size = sizeof(U), SHORT = 8;  // no vectors are made of rows so short
    for (int64_t r = 0; r < rows; ++r, out += to.row, from += of.row) {
        if (n > SHORT && to.column == size && of.column == size) {
            std::memcpy(out, from, size_t(n * size));
        } else if (n > SHORT && to.column == size && of.column == -size) {
            U* line = reinterpret_cast<U*>(out);
            const U* first = reinterpret_cast<const U*>(from) - (n - 1);
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) line[i] = first[n - 1 - i];
        } else {
            for (int64_t i = 0; i < n; ++i)
                *reinterpret_cast<U*>(out + i * to.column) = *reinterpret_cast<const U*>(from + i * of.column);
        }
    }
}

[[gnu::cold]] KernelPtr flip(const Request& request) {
    Operand out = request.operands[0], x = request.operands[1];
    const int64_t size = size_of(x.dtype), numel = out.numel();
    int64_t out_start = 0, start = 0;  // of the element that comes first
    for (int64_t d : request.attrs.integers("dims")) {
        if (d < 0 || d >= x.ndim()) throw std::invalid_argument("flip along a dim that is not there");
        const auto reverse = [&](Operand& o) {
            const int64_t first = std::max<int64_t>(o.shape[size_t(d)] - 1, 0) * o.strides[size_t(d)] * size;
            o.strides[size_t(d)] *= -1;
            return first;
        };
        // What lies side by side in the input stays so: the output is written backwards.
        if (x.strides[size_t(d)] == 1 && out.strides[size_t(d)] != 1) out_start += reverse(out);
        else start += reverse(x);
    }
    if (!numel) return make_kernel(0, [](char* const*, const Scalar*) {});
    const Loops loops = collapse({out, x});
    const int outer = std::max(loops.ndim() - 1, 0);
    const int64_t n = loops.ndim() ? loops.shape.back() : 1, last = outer ? loops.shape[size_t(outer - 1)] : 1;
    const auto steps = [&](size_t k) {
        const auto& strides = loops.strides[k];
        return Steps{loops.ndim() ? strides.back() : size, outer ? strides[size_t(outer - 1)] : 0};
    };
    if (steps(0).column != size || std::abs(steps(1).column) != size) {
        std::shared_ptr<Kernel> copy = copy_kernel(out, x);
        return make_kernel(copy->work, [=](char* const* data, const Scalar*) { run_copy(*copy, data[0] + out_start, data[1] + start); });
    }
    const auto copy = size == 8 ? copy_rows<uint64_t> : size == 4 ? copy_rows<uint32_t> : size == 2 ? copy_rows<uint16_t> : copy_rows<uint8_t>;
    const double ns = 0.1 * double(n * size) / 4 + 2;
    return make_kernel(ns * double(numel / n), [=, to = steps(0), of = steps(1)](char* const* data, const Scalar*) {
        parallel_for(loops.numel / n, ns, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin, rows; i < end; i += rows) {
                rows = std::min(end - i, last - i % last);
                char* at[] = {data[0] + out_start, data[1] + start};
                loops.move(at, outer, i);
                copy(at[0], to, at[1], of, rows, n);
            }
        });
    });
}

}  // namespace

void add_flip(Registry& registry) { registry["flip"] = flip; }

}  // namespace norch::indexing
