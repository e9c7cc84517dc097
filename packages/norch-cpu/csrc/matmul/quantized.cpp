#include "matmul/quantized.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/product.h"
#include "common/scratch.h"
#include "common/staging.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/widen.h"
#if defined(__AVX512BW__)
#include <cpuid.h>
#endif

#define NORCH_DOTS plain
#include "matmul/quantized_dots.h"

namespace norch::matmul {
namespace {

constexpr int64_t MAX_ROUNDED = 16;  // vectors: more are multiplied with the weight's numbers as floats
constexpr int64_t WIDENED_BYTES = 256 << 10;  // of a weight at a time
constexpr double ROW_BYTES_PER_NS = 12;  // what one core reads of a weight that it multiplies by a vector

#if defined(__AVX512BW__)
bool has_vnni() {
    const char* given = std::getenv("NORCH_CPU_VNNI");
    if (given && !std::strcmp(given, "0")) return false;
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 11);
}
#endif

/// Rounds 32 numbers to 8 bits, the largest to 127. Returns their factor; a negative number where there is a NaN or what
/// may overflow.
float round_block(const float* x, int8_t* out) {
    float largest = 0;
    bool is_number = true;
    for (int i = 0; i < BLOCK_NUMBERS; ++i) {
        largest = std::max(largest, std::fabs(x[i]));
        is_number &= x[i] == x[i];
    }
    if (!is_number || largest > 1e30f || (largest < 1e-30f && largest > 0)) return -1;
    const float inverse = largest > 0 ? 127 / largest : 0;
    // Added to this, numbers are rounded to whole ones, which are in the low bits.
    constexpr float ROUND = 12582912;
    for (int i = 0; i < BLOCK_NUMBERS; ++i) out[i] = int8_t(bit_cast<int32_t>(x[i] * inverse + ROUND) - bit_cast<int32_t>(ROUND));
    return largest / 127;
}

/// The numbers of a block, times its scale.
template <Format F>
NORCH_INLINE void widen_block(const char* p, int64_t count, float scale, float* out) {
    const int8_t* q = reinterpret_cast<const int8_t*>(p) + numbers_at(F);
    if constexpr (F == Format::q4_0) {
        NORCH_INDEPENDENT
        for (int i = 0; i < 16; ++i) out[i] = scale * float((q[i] & 15) - 8);
        NORCH_INDEPENDENT
        for (int i = 0; i < 16; ++i) out[i + 16] = scale * float((uint8_t(q[i]) >> 4) - 8);
    } else if (count == BLOCK_NUMBERS) {
        NORCH_INDEPENDENT
        for (int i = 0; i < BLOCK_NUMBERS; ++i) out[i] = scale * float(q[i]);
    } else {
        for (int64_t i = 0; i < count; ++i) out[i] = scale * float(q[i]);
    }
}

/// S is of the input, the bias and the result.
template <class S, Format F>
class QuantizedKernel final : public Kernel {
public:
    QuantizedKernel(const Operand& out, const Operand& input, const Operand& weight, const Operand* scale,
                    const Operand* bias)
        : rows_(input.shape[0]), columns_(weight.shape[0]), features_(input.shape[1]), row_(weight.strides[0]),
          input_{input.strides[0], input.strides[1]}, has_bias_(bias) {
        if (scale) scale_ = StagedOperand::contiguous_in(*scale, DType::f32);
        if (bias) bias_ = StagedOperand::contiguous_in(*bias, out.dtype);
        blocks_ = (features_ + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS;
        const double numbers = double(columns_) * double(features_);
        is_rounded_ = rows_ <= MAX_ROUNDED;
        work = numbers * double(block_bytes(F)) / BLOCK_NUMBERS / ROW_BYTES_PER_NS * (1 + 0.3 * double(rows_ - 1));
        plan_widened(out.dtype, numbers);
    }

    void run(char* const* data, const Scalar*) const override {
        if (!rows_ || !columns_) return;
        const Seen scale(scale_, scale_at() ? data[scale_at()] : nullptr), bias(bias_, has_bias_ ? data[bias_at()] : nullptr);
        const Call call{reinterpret_cast<const S*>(data[1]), data[2], reinterpret_cast<const float*>(scale.data()),
                        reinterpret_cast<const S*>(bias.data()), reinterpret_cast<S*>(data[0])};
        if (!is_rounded_ || !rounded(call)) widened(call);
    }

private:
    struct Call {
        const S* input;
        const char* weight;
        const float* scale;
        const S* bias;
        S* out;
    };

    static constexpr int scale_at() { return F == Format::int8 ? 3 : 0; }
    static constexpr int bias_at() { return F == Format::int8 ? 4 : 3; }

    // --- Few vectors: rounded to 8 bits -----------------------------------------------------------------------------

    bool round_rows(const S* input, int8_t* numbers, float* factors, float* sums) const {
        float some[BLOCK_NUMBERS];
        for (int64_t r = 0; r < rows_; ++r)
            for (int64_t b = 0; b < blocks_; ++b, numbers += BLOCK_NUMBERS, ++factors, ++sums) {
                const S* from = input + r * input_.row + b * BLOCK_NUMBERS * input_.column;
                const int64_t count = std::min(BLOCK_NUMBERS, features_ - b * BLOCK_NUMBERS);
                for (int64_t i = 0; i < BLOCK_NUMBERS; ++i) some[i] = i < count ? load(from[i * input_.column]) : 0;
                *factors = round_block(some, numbers);
                if (*factors < 0) return false;
                int sum = 0;
                for (int i = 0; i < BLOCK_NUMBERS; ++i) sum += numbers[i];
                *sums = *factors * float(sum);
            }
        return true;
    }

    /// Returns false where the input holds NaN, or numbers too large or too small for it.
    bool rounded(const Call& call) const {
        const int64_t count = rows_ * blocks_;
        const Scratch<int8_t> numbers(count * BLOCK_NUMBERS);
        const Scratch<float> factors(2 * count);
        if (!round_rows(call.input, numbers.data(), factors.data(), factors.data() + count)) return false;
        const RoundedRows x{numbers.data(), factors.data(), factors.data() + count, rows_, blocks_};
        static const DotRows dot_rows = dot_rows_of(F);
        parallel_for(columns_, work / double(columns_), [&](int64_t first, int64_t last) {
            const int64_t width = last - first;
            const Scratch<float> sums(rows_ * width);
            dot_rows(x, {call.weight + first * row_, row_, width, features_}, sums.data(), width);
            for (int64_t r = 0; r < rows_; ++r) {
                float* row = sums.data() + r * width;
                if (call.scale)
                    for (int64_t c = 0; c < width; ++c) row[c] *= call.scale[first + c];
                if (call.bias)
                    for (int64_t c = 0; c < width; ++c) row[c] += load(call.bias[first + c]);
                narrow_row(row, width, call.out + r * columns_ + first);
            }
        }, 16);
        return true;
    }

    // --- Many vectors: some rows of the weight at a time become floats -----------------------------------------------

    void plan_widened(DType dtype, double numbers) {
        const int64_t fitting = WIDENED_BYTES / std::max<int64_t>(1, features_ * int64_t(sizeof(S)));
        part_ = std::clamp<int64_t>(fitting / 32 * 32, 32, std::max<int64_t>(32, columns_));
        product_ = product_of(dtype, std::min(part_, columns_));
        if (columns_ % part_) last_product_ = product_of(dtype, columns_ % part_);
        if (is_rounded_) return;
        const int64_t parts = (columns_ + part_ - 1) / part_;
        work = numbers * 0.2 + double(parts) * product_->work;
        note_scratch(std::min<int64_t>(parts, num_threads()) * part_ * features_ * int64_t(sizeof(S)));
    }

    KernelPtr product_of(DType dtype, int64_t columns) const {
        const Operand out{dtype, {rows_, columns}, {columns_, 1}}, input{dtype, {rows_, features_}, {input_.row, input_.column}};
        const Operand weight{dtype, {features_, columns}, {1, features_}}, bias{dtype, {columns}, {1}};
        return product_kernel(out, input, weight, has_bias_ ? &bias : nullptr);
    }

    void widen_rows(const Call& call, int64_t first, int64_t count, S* to) const {
        for (int64_t c = first; c < first + count; ++c, to += features_)
            for (int64_t b = 0; b < blocks_; ++b) {
                const char* block = call.weight + c * row_ + b * block_bytes(F);
                const int64_t here = std::min(BLOCK_NUMBERS, features_ - b * BLOCK_NUMBERS);
                const float scale = F == Format::int8 ? call.scale[c] : plain::scale_of(block);
                if constexpr (std::is_same_v<S, float>) {
                    widen_block<F>(block, here, scale, to + b * BLOCK_NUMBERS);
                } else {
                    float some[BLOCK_NUMBERS];
                    widen_block<F>(block, here, scale, some);
                    narrow_row(some, here, to + b * BLOCK_NUMBERS);
                }
            }
    }

    void widened(const Call& call) const {
        const int64_t parts = (columns_ + part_ - 1) / part_;
        parallel_for(parts, work / double(parts), [&](int64_t begin, int64_t end) {
            const Scratch<S> numbers(part_ * features_);
            for (int64_t part = begin; part < end; ++part) {
                const int64_t first = part * part_, width = std::min(part_, columns_ - first);
                widen_rows(call, first, width, numbers.data());
                const auto at = [](const S* p) { return reinterpret_cast<char*>(const_cast<S*>(p)); };
                char* const operands[] = {at(call.out + first), at(call.input), at(numbers.data()),
                                          call.bias ? at(call.bias + first) : nullptr};
                (width == part_ || !last_product_ ? product_ : last_product_)->run(operands, nullptr);
            }
        });
    }

    int64_t rows_, columns_, features_, row_, blocks_, part_;
    struct {
        int64_t row, column;
    } input_;
    bool has_bias_, is_rounded_;
    StagedOperand scale_, bias_;
    KernelPtr product_, last_product_;  // of part_ rows of the weight, and of those that remain
};

template <class S, Format F>
[[gnu::cold]] KernelPtr make(const Operand& out, const Operand& input, const Operand& weight, const Operand* scale, const Operand* bias) {
    return std::make_unique<QuantizedKernel<S, F>>(out, input, weight, scale, bias);
}

[[gnu::cold]] KernelPtr quantized_linear(const Request& request) {
    const auto& o = request.operands;
    const Operand &out = o[0], &weight = o[2];
    Operand input;
    if (out.dtype == DType::f64 || !out.is_contiguous() || !as_rows(o[1], &input)) return nullptr;
    const int64_t features = input.shape[1];
    if (weight.strides[1] != 1 && weight.shape[1] > 1) return nullptr;
    const bool is_scaled = weight.dtype == DType::i8;
    const size_t before_bias = is_scaled ? 4 : 3;
    const Operand *scale = is_scaled ? &o[3] : nullptr, *bias = o.size() > before_bias ? &o[before_bias] : nullptr;
    const Format format = is_scaled ? Format::int8
                          : weight.shape[1] == features / BLOCK_NUMBERS * block_bytes(Format::q8_0) ? Format::q8_0
                                                                                                    : Format::q4_0;
    return visit_floating(out.dtype, [&]<class S>(Tag<S>) -> KernelPtr {
        if constexpr (sizeof(S) == 8) {
            return nullptr;
        } else {
            switch (format) {
                case Format::int8: return make<S, Format::int8>(out, input, weight, scale, bias);
                case Format::q8_0: return make<S, Format::q8_0>(out, input, weight, scale, bias);
                default: return make<S, Format::q4_0>(out, input, weight, scale, bias);
            }
        }
    });
}

}  // namespace

DotRows dot_rows_of(Format format) {
#if defined(__AVX512BW__)
    if (has_vnni()) return vnni_dot_rows_of(format);
#endif
    return plain::chosen(format);
}

void add_quantized(Registry& registry) { registry["quantized_linear"] = quantized_linear; }

}  // namespace norch::matmul
