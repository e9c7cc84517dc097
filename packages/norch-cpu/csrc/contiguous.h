// Kernels that need an operand row by row without gaps copy it first where it is not.
#pragma once

#include <algorithm>

#include "families.h"

namespace norch {

/// The same shape and dtype, or another dtype, without gaps.
inline Operand contiguous(const Operand& operand, DType dtype) {
    Operand out = operand;
    out.dtype = dtype;
    int64_t stride = 1;
    for (int d = out.ndim() - 1; d >= 0; --d) {
        out.strides[d] = stride;
        stride *= std::max<int64_t>(out.shape[d], 1);
    }
    return out;
}
inline Operand contiguous(const Operand& operand) { return contiguous(operand, operand.dtype); }

/// The kernel of the op copy.
inline KernelPtr copy_kernel(const Operand& out, const Operand& x) {
    Registry registry;
    add_copying(registry);
    Request request;
    request.op = "copy";
    request.operands = {out, x};
    return registry.at("copy")(request);
}

}  // namespace norch
