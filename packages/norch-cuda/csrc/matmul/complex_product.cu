// complex_matmul: products of matrices of complex numbers, which lie as pairs of elements along the last dim.
#include <optional>

#include "common/staging.h"
#include "matmul/cublaslt.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::matmul {
namespace {
namespace pairs {

/// A batch of matrices of pairs as cuBLASLt may be given it; strides count pairs.
std::optional<GemmOperand> as_batch(const Operand& o, bool is_adjoint) {
    const size_t d = o.shape.size() - 3;
    if (o.strides[d + 2] != 1) return {};
    for (size_t i = 0; i < d + 2; ++i)
        if (o.shape[i] > 1 && o.strides[i] % 2) return {};
    const int64_t rows = o.shape[d], columns = o.shape[d + 1], row = o.strides[d] / 2, column = o.strides[d + 1] / 2;
    std::optional<GemmOperand> out;
    if (!is_adjoint) out = as_gemm_operand(rows, columns, row, column);
    else if ((columns == 1 || column == 1) && (rows == 1 || row >= columns))
        out = GemmOperand{true, rows == 1 ? columns : row, 0, true};
    int64_t expected = -1;  // of the next dim outwards
    for (size_t i = d; out && i-- > 0;) {
        if (o.shape[i] == 1) continue;
        if (expected < 0) out->step = o.strides[i] / 2;
        else if (o.strides[i] / 2 != expected) return {};
        expected = o.shape[i] * (o.strides[i] / 2);
    }
    return out;
}

/// An operand, copied where it does not lie as it must.
struct Given {
    StagedOperand staged;
    GemmOperand seen;

    Given(const Operand& o, bool is_adjoint, bool is_copied) {
        staged.view = o;
        if (is_copied || !as_batch(o, is_adjoint)) staged.stage();
        seen = *as_batch(staged.view, is_adjoint);
    }
};

class ComplexProduct final : public Kernel {
public:
    explicit ComplexProduct(const Request& r, bool is_copied = false)
        : request_(r),
          left_(r.operands[1], r.attrs.flag("adjoint_a"), is_copied),
          right_(r.operands[2], r.attrs.flag("adjoint_b"), is_copied) {
        const Operand &out = r.operands[0], &a = r.operands[1];
        const size_t d = out.shape.size() - 3;
        gemm_.dtype = out.dtype, gemm_.is_complex = true;
        gemm_.m = out.shape[d], gemm_.n = out.shape[d + 1], gemm_.k = a.shape[r.attrs.flag("adjoint_a") ? d : d + 1];
        gemm_.batch = out.numel() / (2 * gemm_.m * gemm_.n);
        gemm_.out = {false, gemm_.n, gemm_.m * gemm_.n};
        gemm_.a = left_.seen, gemm_.b = right_.seen;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        const size_t bytes = 2 * size_t(size_of(gemm_.dtype));
        const bool fits_left = left_.staged.nbytes || is_aligned(data[1], bytes);
        if (!fits_left || !(right_.staged.nbytes || is_aligned(data[2], bytes))) {  // pairs from an odd element on
            if (!copied_) copied_ = std::make_unique<ComplexProduct>(request_, true);
            return copied_->run(data, scalars);
        }
        const Seen left(left_.staged, data[1]), right(right_.staged, data[2]);
        if (!gemm_.run(data[0], left.data(), right.data()))
            throw std::runtime_error("cuBLASLt has no algorithm for this product of complex matrices");
    }

private:
    Request request_;
    Given left_, right_;
    Gemm gemm_;
    mutable KernelPtr copied_;  // runs hold the GIL
};

}  // namespace pairs

KernelPtr complex_matmul(const Request& r) {
    const Operand &out = r.operands[0], &a = r.operands[1];
    if ((out.dtype != DType::f32 && out.dtype != DType::f64) || !out.is_contiguous()) return nullptr;
    if (!out.numel() || !a.numel()) return nullptr;
    return std::make_unique<pairs::ComplexProduct>(r);
}

}  // namespace

void add_complex_products(Registry& registry) { registry["complex_matmul"] = complex_matmul; }

}  // namespace norch::matmul
