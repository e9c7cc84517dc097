// What requests for losses say, on any processor.
#pragma once

#include <algorithm>

#include "common/kernel.h"
#include "common/layout.h"

namespace norch {

enum class LossReduction { none, mean, sum };

inline LossReduction reduction_of(const Request& request) {
    const std::string& name = request.attrs.text("reduction");
    return name == "mean" ? LossReduction::mean : name == "sum" ? LossReduction::sum : LossReduction::none;
}

/// Whether operands are (classes) and (), or (n, classes) and (n), without weights.
inline bool are_plain(const Operand& scores, const Operand& target) {
    return is_floating(scores.dtype) && (scores.ndim() == 1 || scores.ndim() == 2) &&
           target.ndim() == scores.ndim() - 1 && !is_floating(target.dtype) && target.dtype != DType::boolean;
}

/// Whether a request for a loss of differences is one for its kernels: one dtype, one shape, and a reduction that core
/// knows.
inline bool is_difference_loss(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[1], &b = request.operands[2];
    if (!is_floating(out.dtype) || a.dtype != out.dtype || b.dtype != out.dtype || a.shape != b.shape) return false;
    const std::string& name = request.attrs.text("reduction");
    return name == "mean" || name == "sum" || name == "none";
}

/// Whether two operands of a dtype and shape lie without gaps in the same order.
inline bool lie_alike(const Operand& a, const Operand& b) {
    const Loops loops = collapse({a, b});
    const int64_t size = size_of(a.dtype);
    return a.numel() < 2 || (loops.ndim() == 1 && loops.strides[0][0] == size && loops.strides[1][0] == size);
}

/// What the gradient of mse_loss multiplies each difference by.
inline double mse_loss_factor(const Request& request) {
    const bool is_mean = request.attrs.text("reduction") == "mean";
    return is_mean ? 2.0 / double(std::max<int64_t>(request.operands[0].numel(), 1)) : 2.0;
}

}  // namespace norch
