// Loops in the order in which elements are counted.
#pragma once

#include "common/layout.h"

namespace norch {

/// The loops over operands of one shape in row-major order, whatever their strides; dims merged where all allow it.
inline Loops row_major_loops(const std::vector<const Operand*>& operands) {
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

}  // namespace norch
