#include "common/layout.h"

#include <algorithm>
#include <cstdlib>

namespace norch {

Loops collapse(const std::vector<Operand>& operands) {
    return collapse(operands, dims_but(operands[0].ndim()));
}

Loops collapse(const std::vector<Operand>& operands, const std::vector<int>& given) {
    Loops out;
    const Operand& first = operands[0];
    std::vector<int> dims;
    for (int d : given) {
        out.numel *= first.shape[d];
        if (first.shape[d] != 1) dims.push_back(d);
    }
    auto stride = [&](size_t operand, int d) {
        const Operand& o = operands[operand];
        return o.is_scalar ? 0 : o.strides[d] * size_of(o.dtype);
    };
    // Descending strides of the output; what the output leaves open (broadcast dims in a reduction) the inputs decide.
    std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
        for (size_t i = 0; i < operands.size(); ++i) {
            int64_t s = stride(i, a), t = stride(i, b);
            if (s != t && (s || i) && (t || i)) return std::abs(s) > std::abs(t);  // flip walks backwards
        }
        return false;
    });
    out.strides.resize(operands.size());
    for (int d : dims) {
        bool merges = !out.shape.empty();
        for (size_t i = 0; merges && i < operands.size(); ++i)
            merges = out.strides[i].back() == stride(i, d) * first.shape[d];
        if (merges) {
            out.shape.back() *= first.shape[d];
            for (size_t i = 0; i < operands.size(); ++i) out.strides[i].back() = stride(i, d);
        } else {
            out.shape.push_back(first.shape[d]);
            for (size_t i = 0; i < operands.size(); ++i) out.strides[i].push_back(stride(i, d));
        }
    }
    return out;
}

Loops row_major_loops(const std::vector<const Operand*>& operands) {
    Loops out;
    out.strides.resize(operands.size());
    const auto& shape = operands[0]->shape;
    for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t n = shape[d];
        out.numel *= n;
        if (n == 1) continue;
        bool merges = !out.shape.empty();
        for (size_t k = 0; merges && k < operands.size(); ++k)
            merges = out.strides[k].back() == operands[k]->strides[d] * size_of(operands[k]->dtype) * n;
        if (merges) out.shape.back() *= n;
        else out.shape.push_back(n);
        for (size_t k = 0; k < operands.size(); ++k) {
            const int64_t stride = operands[k]->strides[d] * size_of(operands[k]->dtype);
            if (merges) out.strides[k].back() = stride;
            else out.strides[k].push_back(stride);
        }
    }
    return out;
}

std::vector<int> dims_but(int ndim, int64_t left_out) {
    std::vector<int> dims;
    for (int d = 0; d < ndim; ++d)
        if (d != left_out) dims.push_back(d);
    return dims;
}

namespace {

/// Whether the inner loop should run over what is kept: over whichever lies closer together.
bool prefers_columns(const Loops& kept, const Loops& reduced, int64_t size) {
    if (!kept.ndim() || !reduced.ndim()) return kept.ndim() > 0;
    const int64_t k = kept.strides[0].back(), r = reduced.strides[0].back();
    if (k == size || r == size) return k == size;
    return k != 0 && (k < r || r == 0);
}

}  // namespace

ReductionLoops reduction_loops(const Operand& out, const Operand& x, const std::vector<int64_t>& dims) {
    std::vector<int> kept, reduced;
    for (int d = 0; d < x.ndim(); ++d)
        (std::find(dims.begin(), dims.end(), d) != dims.end() ? reduced : kept).push_back(d);
    // The input decides the order of the loops: there is more of it.
    ReductionLoops loops{collapse({x, out}, kept), collapse({x}, reduced), false};
    loops.is_columns = prefers_columns(loops.kept, loops.reduced, size_of(x.dtype));
    return loops;
}

Walker::Walker(const Loops& loops, int dims, char* const* data, int64_t start)
    : loops_(loops), dims_(dims), index_(dims), pointers_(data, data + loops.strides.size()) {
    loops.move(pointers_.data(), dims, start);
    for (int d = dims - 1; d >= 0; start /= loops.shape[d--]) index_[d] = start % loops.shape[d];
}

void Walker::next() {
    for (int d = dims_ - 1; d >= 0; --d) {
        if (++index_[d] < loops_.shape[d]) {
            for (size_t i = 0; i < pointers_.size(); ++i) pointers_[i] += loops_.strides[i][d];
            return;
        }
        index_[d] = 0;
        for (size_t i = 0; i < pointers_.size(); ++i)
            pointers_[i] -= (loops_.shape[d] - 1) * loops_.strides[i][d];
    }
}

}  // namespace norch
