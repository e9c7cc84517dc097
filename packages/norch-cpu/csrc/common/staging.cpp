#include "common/staging.h"

namespace norch {

void StagedOperand::stage(const Operand& given, DType dtype, bool is_output) {
    view = contiguous(given, dtype);
    copy = is_output ? copy_kernel(given, view) : copy_kernel(view, given);
    nbytes = view.numel() * size_of(dtype);
    note_scratch(nbytes);
}

StagedOperand StagedOperand::contiguous_in(const Operand& given, DType dtype, bool is_output) {
    StagedOperand out;
    out.view = given;
    if (!given.is_scalar && (given.dtype != dtype || !given.is_contiguous())) out.stage(given, dtype, is_output);
    return out;
}

KernelPtr Staged::make(const Request& request, int outputs, const std::vector<DType>& wanted, KernelPtr body) {
    auto staged = std::make_unique<Staged>();
    staged->count_ = int(request.operands.size());
    staged->outputs_ = outputs;
    staged->work = body->work;
    bool is_needed = false;
    for (int i = 0; i < staged->count_; ++i) {
        StagedOperand& operand = staged->operands_[i];
        operand = StagedOperand::contiguous_in(request.operands[i], wanted[i], i < outputs);
        if (!operand.copy) continue;
        staged->work += operand.copy->work;
        is_needed = true;
    }
    if (!is_needed) return body;
    staged->body_ = std::move(body);
    return staged;
}

void Staged::run(char* const* data, const Scalar* scalars) const {
    with_staged(operands_, count_, outputs_, data, [&](char* const* seen) { body_->run(seen, scalars); });
}

}  // namespace norch
