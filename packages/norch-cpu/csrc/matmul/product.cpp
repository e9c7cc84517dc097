#include "common/product.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "common/layout.h"
#include "common/staging.h"
#include "matmul/epilogue.h"
#include "matmul/gemm.h"
#include "matmul/integers.h"
#include "matmul/mixed.h"
#include "matmul/tiles.h"
#include "runtime/parallel.h"

namespace norch::matmul {
namespace {

/// An operand brought to the dtype that is computed in: dims that repeat themselves are copied once.
StagedOperand staged_in(const Operand& operand, DType dtype, bool is_output = false) {
    StagedOperand out;
    out.view = operand;
    if (operand.dtype == dtype) return out;
    Operand once = operand;
    for (int d = 0; d < once.ndim(); ++d)
        if (once.strides[d] == 0) once.shape[d] = std::min<int64_t>(once.shape[d], 1);
    out.stage(once, dtype, is_output);
    out.view.shape = operand.shape;
    for (int d = 0; d < once.ndim(); ++d)
        if (once.shape[d] != operand.shape[d]) out.view.strides[d] = 0;
    return out;
}

/// Products over batch dims of elements T. P is Product<T>, IntegerProduct<T>, or MixedProduct<T> with `parts`.
template <class P, class T, class... Parts>
class Batched {
public:
    Batched(const Operand& out, const Operand& a, const Operand& b, bool has_bias, Parts... parts)
        : loops_(collapse({out, a, b}, dims_but(out.ndim() - 2))), product_(plan(out, a, b, has_bias, parts...)) {
        for (int64_t n : loops_.shape) count_ *= n;
    }

    double work() const { return double(count_ * product_.pieces()) * product_.piece_ns(); }

    void run(const T* a, const T* b, T* c, const Epilogue<typename P::Number>& epilogue) const {
        if (count_ == 1) return product_.run(a, b, c, epilogue);
        if constexpr (std::is_same_v<P, Product<T>>)
            if (product_.is_small() && !epilogue.bias && !epilogue.activation) return run_small(a, b, c);
        const int64_t pieces = product_.pieces();
        parallel_for(count_ * pieces, product_.piece_ns(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin, last; i < end; i = last) {
                last = std::min(end, (i / pieces + 1) * pieces);
                const int64_t first = i % pieces;
                run_one(i / pieces, first, first + last - i, a, b, c, epilogue);
            }
        });
    }

private:
    /// The plan of one product. Batch dims along which b or a repeats itself become rows or columns where they can
    /// (not columns, of which each has its bias).
    P plan(const Operand& out, const Operand& a, const Operand& b, bool has_bias, Parts... parts) {
        const int d = out.ndim() - 2;
        int64_t m = out.shape[d], n = out.shape[d + 1], k = a.shape[d + 1];
        MatrixStrides sa{a.strides[d], a.strides[d + 1]}, sb{b.strides[d], b.strides[d + 1]};
        MatrixStrides sc{out.strides[d], out.strides[d + 1]};
        const int64_t size = sizeof(T);
        while (loops_.ndim()) {
            const int64_t count = loops_.shape.back();
            const int64_t c_step = loops_.strides[0].back() / size, a_step = loops_.strides[1].back() / size,
                          b_step = loops_.strides[2].back() / size;
            if (b_step == 0 && (m == 1 || (a_step == m * sa.row && c_step == m * sc.row))) {
                if (m == 1) sa.row = a_step, sc.row = c_step;
                m *= count;
            } else if (!has_bias && a_step == 0 && (n == 1 || (b_step == n * sb.column && c_step == n * sc.column))) {
                if (n == 1) sb.column = b_step, sc.column = c_step;
                n *= count;
            } else {
                break;
            }
            loops_.shape.pop_back();
            for (auto& s : loops_.strides) s.pop_back();
        }
        for (auto& strides : loops_.strides)
            for (auto& s : strides) s /= size;
        return P(m, n, k, sa, sb, sc, parts...);
    }

    void run_one(int64_t index, int64_t first, int64_t last, const T* a, const T* b, T* c,
                 const Epilogue<typename P::Number>& epilogue) const {
        for (int d = loops_.ndim() - 1; d >= 0; --d) {
            const int64_t i = index % loops_.shape[d];
            index /= loops_.shape[d];
            c += i * loops_.strides[0][d];
            a += i * loops_.strides[1][d];
            b += i * loops_.strides[2][d];
        }
        product_.run_pieces(first, last, a, b, c, epilogue);
    }

    /// As many products at a time as lie at even distances.
    void run_small(const T* a, const T* b, T* c) const {
        const int64_t row = loops_.shape.back();
        const auto &c_steps = loops_.strides[0], &a_steps = loops_.strides[1], &b_steps = loops_.strides[2];
        parallel_for(count_, product_.piece_ns(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin, last; i < end; i = last) {
                last = std::min(end, (i / row + 1) * row);
                int64_t index = i, at_a = 0, at_b = 0, at_c = 0;
                for (int d = loops_.ndim() - 1; d >= 0; index /= loops_.shape[d--]) {
                    const int64_t place = index % loops_.shape[d];
                    at_a += place * a_steps[d], at_b += place * b_steps[d], at_c += place * c_steps[d];
                }
                product_.run_many(last - i, a_steps.back(), b_steps.back(), c_steps.back(), a + at_a, b + at_b, c + at_c);
            }
        });
    }

    Loops loops_;  // strides in elements
    int64_t count_ = 1;
    P product_;
};

/// T is what is computed in; an unsigned type for integers, whose overflow is defined.
template <class T>
class ProductKernel final : public Kernel {
public:
    ProductKernel(DType dtype, const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                  const std::string& activation)
        : operands_{staged_in(out, dtype, true), staged_in(a, dtype), staged_in(b, dtype)},
          count_(bias ? 4 : 3),
          product_(operands_[0].view, operands_[1].view, operands_[2].view, bias != nullptr) {
        if (bias) operands_[3] = StagedOperand::contiguous_in(*bias, dtype);
        if constexpr (std::is_floating_point_v<T>) activation_ = activation_named<T>(activation);
        work = product_.work();
        for (const StagedOperand& operand : operands_)
            if (operand.copy) work += operand.copy->work;
        is_staged_ = work != product_.work();
    }

    void run(char* const* data, const Scalar*) const override {
        auto multiply = [&](char* const* seen) {
            auto at = [seen](int i) { return reinterpret_cast<T*>(seen[i]); };
            product_.run(at(1), at(2), at(0), {count_ == 4 ? at(3) : nullptr, activation_});
        };
        is_staged_ ? with_staged(operands_, count_, 1, data, multiply) : multiply(data);
    }

private:
    StagedOperand operands_[4];
    int count_;
    bool is_staged_;
    void (*activation_)(T*, int64_t) = nullptr;
    Batched<std::conditional_t<std::is_integral_v<T>, IntegerProduct<T>, Product<T>>, T> product_;
};

/// Factors and result are S: nothing is staged.
template <class S>
class MixedKernel final : public Kernel {
public:
    MixedKernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias, const std::string& activation,
                int parts)
        : has_bias_(bias), activation_(activation_named<float>(activation)), product_(out, a, b, bias != nullptr, parts) {
        if (bias) bias_ = StagedOperand::contiguous_in(*bias, DType::f32);
        work = product_.work();
    }

    void run(char* const* data, const Scalar*) const override {
        auto at = [data](int i) { return reinterpret_cast<S*>(data[i]); };
        if (!has_bias_) return product_.run(at(1), at(2), at(0), {nullptr, activation_});
        const Seen bias(bias_, data[3]);
        product_.run(at(1), at(2), at(0), {reinterpret_cast<const float*>(bias.data()), activation_});
    }

private:
    StagedOperand bias_;
    bool has_bias_;
    void (*activation_)(float*, int64_t);
    Batched<MixedProduct<S>, S, int> product_;
};

int parts_of_float32 = 0;  // see set_float32_parts

/// The kernel of a product whose factors are taken as they lie, or null where that is not possible or does not pay.
[[gnu::cold]] KernelPtr mixed_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                       const std::string& activation) {
    if (a.dtype != out.dtype || b.dtype != out.dtype) return nullptr;
    if (out.dtype == DType::f16) return std::make_unique<MixedKernel<half>>(out, a, b, bias, activation, 2);
    if (out.dtype == DType::bf16) return std::make_unique<MixedKernel<bfloat16>>(out, a, b, bias, activation, 1);
    if (out.dtype != DType::f32 || !parts_of_float32) return nullptr;
    const int d = out.ndim() - 2;
    int64_t rows = out.shape[d];
    for (int i = 0; i < d && b.strides[i] == 0; ++i) rows *= out.shape[i];
    if (!MixedProduct<float>::pays(rows, out.shape[d + 1], a.shape[d + 1], parts_of_float32)) return nullptr;
    return std::make_unique<MixedKernel<float>>(out, a, b, bias, activation, parts_of_float32);
}

}  // namespace

void set_float32_parts(int parts) { parts_of_float32 = parts; }
int float32_parts() { return parts_of_float32; }

[[gnu::cold]] KernelPtr product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                         const std::string& activation) {
    if (KernelPtr mixed = mixed_kernel(out, a, b, bias, activation)) return mixed;
    switch (out.dtype) {
        case DType::f64: return std::make_unique<ProductKernel<double>>(DType::f64, out, a, b, bias, activation);
        case DType::f32:
        case DType::f16:
        case DType::bf16: return std::make_unique<ProductKernel<float>>(DType::f32, out, a, b, bias, activation);
        case DType::i64: return std::make_unique<ProductKernel<uint64_t>>(DType::i64, out, a, b, bias, activation);
        case DType::boolean: return nullptr;
        // The low bits of a product are those of its factors' low bits.
        default: return std::make_unique<ProductKernel<uint32_t>>(DType::i32, out, a, b, bias, activation);
    }
}

}  // namespace norch::matmul
