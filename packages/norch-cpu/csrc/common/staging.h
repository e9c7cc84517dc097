// Kernels that need an operand row by row without gaps, or in another dtype, copy it first where it is not.
#pragma once

#include <optional>

#include "common/operands.h"
#include "common/scratch.h"
#include "runtime/allocator.h"

namespace norch {

/// An operand as a kernel sees it: itself, or a copy.
struct StagedOperand {
    Operand view;
    KernelPtr copy;      // null where the operand itself is seen
    int64_t nbytes = 0;  // of the copy

    /// Has `given`, of which `view` shows the elements, copied without gaps in a dtype; or, of an output, copied to.
    void stage(const Operand& given, DType dtype, bool is_output = false);
    void stage(bool is_output = false) { stage(Operand(view), view.dtype, is_output); }

    /// A copy only where the operand is not as wanted already.
    static StagedOperand contiguous_in(const Operand& given, DType dtype, bool is_output = false);
};

/// Calls body(seen) with where `count` operands, of which the first `outputs` are outputs, are to be seen.
template <int N, class Body>
void with_staged(const StagedOperand (&operands)[N], int count, int outputs, char* const* data, const Body& body) {
    std::optional<Scratch<>> scratch[N];
    char* seen[N] = {};
    for (int i = 0; i < count; ++i) {
        seen[i] = data[i];
        if (!operands[i].nbytes) continue;
        scratch[i].emplace(operands[i].nbytes);
        seen[i] = scratch[i]->data();
        if (i >= outputs) run_copy(*operands[i].copy, seen[i], data[i]);
    }
    body(seen);
    for (int i = 0; i < outputs; ++i)
        if (scratch[i]) run_copy(*operands[i].copy, data[i], seen[i]);
}

/// One staged operand for the time of a launch.
class Seen {
public:
    Seen(const StagedOperand& staged, char* data) : data_(data) {
        if (!staged.nbytes) return;
        scratch_.emplace(staged.nbytes);
        data_ = scratch_->data();
        run_copy(*staged.copy, data_, data);
    }
    char* data() const { return data_; }

private:
    std::optional<Scratch<>> scratch_;
    char* data_;
};

/// A kernel for contiguous operands, and the copies of those that are not.
class Staged final : public Kernel {
public:
    static constexpr int MAX_OPERANDS = 8;

    /// wanted[i]: the dtype that `body` takes operand i in. The body alone where nothing is copied.
    static KernelPtr make(const Request& request, int outputs, const std::vector<DType>& wanted, KernelPtr body);

    void run(char* const* data, const Scalar* scalars) const override;

private:
    int count_, outputs_;
    StagedOperand operands_[MAX_OPERANDS];
    KernelPtr body_;
};

/// What a dtype is computed in: 16-bit floats in float32.
inline DType computed_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

/// Whether the operands are floating, and none holds numbers that the compute dtype of `like` does not.
inline bool fits(const Request& request, const Operand& like) {
    if (!is_floating(like.dtype) || int(request.operands.size()) > Staged::MAX_OPERANDS) return false;
    for (const Operand& o : request.operands)
        if (o.is_scalar || !is_floating(o.dtype) || size_of(o.dtype) > size_of(computed_dtype(like.dtype))) return false;
    return true;
}

/// How many elements a row of layer_norm has: those of the dims that are normalised.
inline int64_t row_size(const Request& request) {
    int64_t n = 1;
    for (int64_t size : request.attrs.integers("shape")) n *= size;
    return n;
}

}  // namespace norch
