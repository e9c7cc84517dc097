// Kernels that need an operand row by row without gaps, or in another dtype, copy it first where it is not.
#pragma once

#include <optional>

#include "common/operands.h"
#include "runtime/allocator.h"

namespace norch {

/// A kernel for contiguous operands, and the copies of those that are not.
class Staged final : public Kernel {
public:
    static constexpr int MOST = 8;

    /// wanted[i]: the dtype that `body` takes operand i in.
    Staged(const Request& request, int outputs, const std::vector<DType>& wanted, KernelPtr body)
        : outputs_(outputs), count_(int(request.operands.size())), body_(std::move(body)) {
        for (int i = 0; i < count_; ++i) {
            const Operand& given = request.operands[i];
            if (given.dtype == wanted[i] && given.is_contiguous()) continue;
            const Operand whole = contiguous(given, wanted[i]);
            bytes_[i] = size_t(given.numel() * size_of(wanted[i]));
            copies_[i] = i < outputs ? copy_kernel(given, whole) : copy_kernel(whole, given);
            needed_ = true;
        }
    }

    void run(char* const* data, const Scalar* scalars) const override {
        char* whole[MOST];
        std::optional<Scratch> scratch[MOST];
        for (int i = 0; i < count_; ++i) {
            whole[i] = data[i];
            if (!bytes_[i]) continue;
            scratch[i].emplace(bytes_[i]);
            whole[i] = scratch[i]->data();
            if (i >= outputs_) run_copy(*copies_[i], whole[i], data[i]);
        }
        body_->run(whole, scalars);
        for (int i = 0; i < outputs_; ++i)
            if (bytes_[i]) run_copy(*copies_[i], data[i], whole[i]);
    }

    /// The body alone where nothing is copied.
    static KernelPtr make(const Request& request, int outputs, const std::vector<DType>& wanted, KernelPtr body) {
        auto staged = std::make_unique<Staged>(request, outputs, wanted, std::move(body));
        if (!staged->needed_) return std::move(staged->body_);
        return staged;
    }

private:
    int outputs_, count_;
    KernelPtr body_;
    KernelPtr copies_[MOST];
    size_t bytes_[MOST] = {};
    bool needed_ = false;
};

}  // namespace norch
