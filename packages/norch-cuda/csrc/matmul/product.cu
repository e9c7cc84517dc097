// Matrix products of any layout: what cuBLASLt can be given as it is, what has to be copied, and what is to follow.
#include "matmul/own_product.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "matmul/epilogue.cuh"
#include "elementwise/elementwise.cuh"
#include "matmul/cublaslt.h"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::matmul {
namespace {

constexpr int64_t MAX_LAUNCHES = 8;  // of one product whose batch has no common stride

std::optional<GemmOperand> seen_operand(const Operand& o) {
    const size_t d = size_t(o.ndim() - 2);
    return as_gemm_operand(o.shape[d], o.shape[d + 1], o.strides[d], o.strides[d + 1]);
}

/// `Gemm`s over batch dims: one, or one for each index of the outer dims.
struct Batches {
    Gemm gemm;
    Loops loops;        // the dims that are left
    int64_t count = 1;  // launches
};

/// The batches of a product whose operands as_gemm_operand takes. Where b is one matrix, a's batch becomes rows.
Batches batches_of(const Operand& out, const Operand& a, const Operand& b) {
    Batches all;
    Gemm& g = all.gemm;
    const size_t d = size_t(out.ndim() - 2);
    g.dtype = out.dtype;
    g.m = out.shape[d], g.n = out.shape[d + 1], g.k = a.shape[d + 1];
    Loops loops = collapse({out, a, b}, dims_but(out.ndim() - 2));
    int64_t a_row = a.strides[d], out_row = out.strides[d];
    const int64_t size = size_of(out.dtype);
    auto drop = [&] {
        loops.shape.pop_back();
        for (auto& s : loops.strides) s.pop_back();
    };
    while (loops.ndim()) {
        const int64_t out_step = loops.strides[0].back() / size, a_step = loops.strides[1].back() / size;
        const bool joins = g.m == 1 || (a_step == g.m * a_row && out_step == g.m * out_row);
        if (loops.strides[2].back() != 0 || !joins) break;
        const int64_t rows = g.m * loops.shape.back();
        const int64_t new_a = g.m == 1 ? a_step : a_row, new_out = g.m == 1 ? out_step : out_row;
        if (!as_gemm_operand(rows, g.k, new_a, a.strides[d + 1]) ||
            !as_gemm_operand(rows, g.n, new_out, out.strides[d + 1]) || new_out < g.n)
            break;
        a_row = new_a, out_row = new_out, g.m = rows;
        drop();
    }
    g.a = *as_gemm_operand(g.m, g.k, a_row, a.strides[d + 1]);
    g.b = *seen_operand(b);
    g.out = {false, g.m == 1 ? g.n : out_row, 0};
    if (loops.ndim()) {
        // The longest dim is the batch of each launch.
        const int at = int(std::max_element(loops.shape.begin(), loops.shape.end()) - loops.shape.begin());
        for (auto& s : loops.strides) std::swap(s[size_t(at)], s.back());
        std::swap(loops.shape[size_t(at)], loops.shape.back());
        g.batch = loops.shape.back();
        g.out.step = loops.strides[0].back() / size;
        g.a.step = loops.strides[1].back() / size;
        g.b.step = loops.strides[2].back() / size;
        drop();
    }
    for (int64_t n : loops.shape) all.count *= n;
    all.loops = std::move(loops);
    return all;
}

/// What follows a product: y = activation(x + bias), in place.
template <class C>
struct AddAndActivate {
    bool has_bias;
    Activation activation;

    template <class>
    __device__ C call(C x, C bias) const {
        return activate(has_bias ? x + bias : x, activation);
    }
};

class ProductKernel final : public Kernel {
public:
    ProductKernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                  const std::string& activation, bool is_fused = true) {
        operands_[0].view = out, operands_[1].view = a, operands_[2].view = b;
        has_bias_ = bias != nullptr;
        if (bias) operands_[3].view = *bias;
        if (bias && bias->numel() > 1 && bias->strides[0] != 1) operands_[3].stage();
        plan();
        const Activation chosen = activation_named(activation);
        // cuBLASLt adds a bias of all but float64. Its gelu is the approximate one, and its relu of 16-bit floats makes 0
        // of NaN in some algorithms.
        Gemm& gemm = batches_->gemm;
        is_fused &= out.dtype != DType::f64;
        gemm.has_bias = has_bias_ && is_fused;
        gemm.has_relu = chosen == Activation::relu && is_fused && out.dtype == DType::f32 && !allows_tf32;
        if ((has_bias_ && !gemm.has_bias) || (chosen != Activation::none && !gemm.has_relu))
            epilogue_ = epilogue(has_bias_ && !gemm.has_bias, gemm.has_relu ? Activation::none : chosen);
        activation_ = activation;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        char* given[] = {data[0], data[1], data[2], has_bias_ ? data[3] : nullptr};
        if (is_swapped_) std::swap(given[1], given[2]);
        with_staged(operands_, has_bias_ ? 4 : 3, 1, given, [&](char* const* seen) { multiply(seen, scalars); });
    }

private:
    /// Stages what cuBLASLt cannot be given.
    void plan() {
        StagedOperand &out = operands_[0], &a = operands_[1], &b = operands_[2];
        const size_t d = size_t(out.view.ndim() - 2);
        const bool is_tall = out.view.shape[d + 1] != 1 && out.view.strides[d + 1] != 1 && out.view.strides[d] == 1;
        if (is_tall && !has_bias_) {  // the transpose of the product
            out.view = transposed(out.view);
            std::swap(a, b);
            a.view = transposed(a.view), b.view = transposed(b.view);
            is_swapped_ = true;
        }
        const auto as_out = seen_operand(out.view);
        if (!as_out || (as_out->is_transposed && out.view.shape[d + 1] != 1)) out.stage(true);
        if (!seen_operand(a.view)) a.stage();
        if (!seen_operand(b.view)) b.stage();
        batches_.emplace(batches_of(out.view, a.view, b.view));
        if (batches_->count <= MAX_LAUNCHES) return;
        if (!out.copy && !out.view.is_contiguous()) out.stage(true);
        if (!a.copy && !a.view.is_contiguous()) a.stage();
        if (!b.copy && !b.view.is_contiguous()) b.stage();
        batches_.emplace(batches_of(out.view, a.view, b.view));
    }

    KernelPtr epilogue(bool has_bias, Activation activation) const {
        const Operand& out = operands_[0].view;
        Operand bias = out;
        if (has_bias) {
            bias.strides.assign(bias.shape.size(), 0);
            bias.strides.back() = 1;
        } else {
            bias.is_scalar = true;
        }
        return visit_floating_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
            return elementwise::map_op<T, void, 2>(Request{"", {out, out, bias}, {}},
                                                   AddAndActivate<computed<T>>{has_bias, activation});
        });
    }

    void multiply(char* const* seen, const Scalar* scalars) const {
        if (!own_ && !launch(seen)) own_ = make_own();
        if (own_) {
            own_->run(seen, scalars);
        } else if (epilogue_) {
            char* const all[] = {seen[0], seen[0], seen[3]};
            epilogue_->run(all, scalars);
        }
    }

    /// Returns false where cuBLASLt has no algorithm.
    bool launch(char* const* seen) const {
        const Gemm& gemm = batches_->gemm;
        if (batches_->count == 1) return gemm.run(seen[0], seen[1], seen[2], seen[3]);
        Walker walker(batches_->loops, batches_->loops.ndim(), seen);
        for (int64_t i = 0; i < batches_->count; ++i, walker.next())
            if (!gemm.run(walker[0], walker[1], walker[2], seen[3])) return false;
        return true;
    }

    /// What is done instead: without the bias and activation in cuBLASLt, else without cuBLASLt.
    KernelPtr make_own() const {
        const Operand *bias = has_bias_ ? &operands_[3].view : nullptr, &out = operands_[0].view;
        const Operand &a = operands_[1].view, &b = operands_[2].view;
        if (batches_->gemm.has_bias || batches_->gemm.has_relu)
            return std::make_unique<ProductKernel>(out, a, b, bias, activation_, false);
        return own_product_kernel(out, a, b, bias, activation_);
    }

    StagedOperand operands_[4];  // as the product sees them: a and b exchanged if is_swapped_
    bool has_bias_, is_swapped_ = false;
    std::optional<Batches> batches_;
    KernelPtr epilogue_;
    std::string activation_;
    mutable KernelPtr own_;
};

}  // namespace

std::optional<GemmOperand> as_gemm_operand(int64_t rows, int64_t columns, int64_t row, int64_t column) {
    if (columns == 1 && row == 1) return GemmOperand{true, std::max<int64_t>(rows, 1), 0};
    if ((columns == 1 || column == 1) && (rows == 1 || row >= columns))
        return GemmOperand{false, rows == 1 ? std::max<int64_t>(columns, 1) : row, 0};
    if ((rows == 1 || row == 1) && (columns == 1 || column >= rows))
        return GemmOperand{true, columns == 1 ? std::max<int64_t>(rows, 1) : column, 0};
    return std::nullopt;
}

KernelPtr product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                         const std::string& activation) {
    if (out.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (!is_floating(out.dtype) || is_small_product(out, a, b)) return own_product_kernel(out, a, b, bias, activation);
    return std::make_unique<ProductKernel>(out, a, b, bias, activation);
}

}  // namespace norch::matmul
