// Operands that a kernel does not take as they are: copies between any two layouts and dtypes.
#pragma once

#include "common/kernel.h"
#include "families.h"

namespace norch {

/// The operand in row-major order without gaps, in its own dtype or another.
inline Operand as_row_major(const Operand& like, DType dtype) {
    Operand out = like;
    out.dtype = dtype;
    out.strides.assign(like.shape.size(), 1);
    for (int d = like.ndim() - 2; d >= 0; --d) out.strides[d] = out.strides[d + 1] * like.shape[d + 1];
    return out;
}

/// The kernel of `copy` for two operands.
inline KernelPtr conversion(const Operand& out, const Operand& in) {
    Registry registry;
    add_copying(registry);
    Request request;
    request.op = "copy";
    request.operands = {out, in};
    return registry.at("copy")(request);
}

inline void run_conversion(const Kernel& copy, char* out, char* in) {
    char* const both[] = {out, in, nullptr};  // g++ takes `copy` for the kernel that calls this, of three operands
    const Scalar none[2] = {};
    copy.run(both, none);
}

}  // namespace norch
