// What kernels of linear algebra, those of norch.linalg.routines, are asked for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/kernel.h"

namespace norch::linalg {

/// (*batch, rows, columns), as one batch dim.
struct Matrices {
    int64_t batch = 1, rows, columns;
    int64_t numel() const { return rows * columns; }
};
inline Matrices matrices_of(const Operand& o) {
    const size_t d = o.shape.size() - 2;
    Matrices out{1, o.shape[d], o.shape[d + 1]};
    for (size_t i = 0; i < d; ++i) out.batch *= o.shape[i];
    return out;
}

/// Whether there is something to do, in a dtype that there are kernels for, with outputs without gaps.
inline bool suits(const Request& request, size_t outputs) {
    for (size_t i = 0; i < request.operands.size(); ++i) {
        const Operand& o = request.operands[i];
        if (o.numel() == 0 || (i < outputs && !o.is_contiguous())) return false;
        if (i >= outputs && o.dtype != request.operands[0].dtype) return false;
    }
    return request.operands[0].dtype == DType::f32 || request.operands[0].dtype == DType::f64;
}

}  // namespace norch::linalg
