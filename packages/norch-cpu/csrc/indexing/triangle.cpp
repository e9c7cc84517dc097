// triangle: a copy of what lies on one side of a diagonal of the last two dims, zeros on the other.
#include <algorithm>
#include <cstring>

#include "common/layout.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::indexing {
namespace {

[[gnu::cold]] KernelPtr triangle(const Request& request) {
    Operand out = request.operands[0], x = request.operands[1];
    const int64_t size = size_of(out.dtype), diagonal = request.attrs.integer("diagonal");
    const bool lower = request.attrs.flag("lower");
    if (out.ndim() < 2) throw std::invalid_argument("a triangle of fewer than 2 dims");
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int64_t columns = out.shape.back();
    if (columns > 1 && (out.strides.back() != 1 || x.strides.back() != 1)) return nullptr;
    for (Operand* o : {&out, &x}) o->shape.pop_back(), o->strides.pop_back();
    const Loops loops = row_major_loops({&out, &x});
    const int64_t rows = out.shape.back();
    const double ns = 0.05 * double(columns * size) / 4 + 5;
    return make_kernel(ns * double(loops.numel), [=](char* const* data, const Scalar*) {
        parallel_for(loops.numel, ns, [&](int64_t begin, int64_t end) {
            Walker at(loops, loops.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, at.next()) {
                const int64_t before = std::clamp<int64_t>(i % rows + diagonal + lower, 0, columns) * size;
                const int64_t after = columns * size - before;
                if (lower) std::memcpy(at[0], at[1], size_t(before)), std::memset(at[0] + before, 0, size_t(after));
                else std::memset(at[0], 0, size_t(before)), std::memcpy(at[0] + before, at[1] + before, size_t(after));
            }
        });
    });
}

}  // namespace

void add_triangle(Registry& registry) { registry["triangle"] = triangle; }

}  // namespace norch::indexing
