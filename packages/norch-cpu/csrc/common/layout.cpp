#include "common/layout.h"

#include <algorithm>
#include <numeric>

namespace norch {

Loops collapse(const std::vector<Operand>& operands) {
    std::vector<int> dims(operands[0].shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    return collapse(operands, dims);
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
            if (s != t && (s || i) && (t || i)) return s > t;
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

Walker::Walker(const Loops& loops, int dims, char* const* data, int64_t start)
    : loops_(loops), dims_(dims), index_(dims), pointers_(data, data + loops.strides.size()) {
    for (int d = dims - 1; d >= 0; --d) {
        index_[d] = start % loops.shape[d];
        start /= loops.shape[d];
        for (size_t i = 0; i < pointers_.size(); ++i) pointers_[i] += index_[d] * loops.strides[i][d];
    }
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
