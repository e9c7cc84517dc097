#include "matmul/quantized.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/product.h"
#include "common/scratch.h"
#include "common/staging.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/tile.h"
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
void widen_block(Format format, const char* p, int64_t count, float scale, float* out) {
    const int8_t* q = reinterpret_cast<const int8_t*>(p) + numbers_at(format);
    if (format == Format::q4_0) {
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

/// The input, the bias and the result are of one dtype, float32 or a 16-bit float.
class QuantizedKernel final : public Kernel {
public:
    QuantizedKernel(Format format, const Operand& out, const Operand& input, const Operand& weight, const Operand* scale,
                    const Operand* bias)
        : format_(format), dtype_(out.dtype), size_(size_of(dtype_)), rows_(input.shape[0]), columns_(weight.shape[0]),
          features_(input.shape[1]), row_(weight.strides[0]), input_{input.strides[0], input.strides[1]}, has_bias_(bias),
          dot_rows_(dot_rows_of(format)) {
        if (scale) scale_ = StagedOperand::contiguous_in(*scale, DType::f32);
        if (bias) bias_ = StagedOperand::contiguous_in(*bias, dtype_);
        blocks_ = (features_ + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS;
        const double numbers = double(columns_) * double(features_);
        is_rounded_ = rows_ <= MAX_ROUNDED;
        work = numbers * double(block_bytes(format)) / BLOCK_NUMBERS / ROW_BYTES_PER_NS * (1 + 0.3 * double(rows_ - 1));
        plan_widened(numbers);
    }

    void run(char* const* data, const Scalar*) const override {
        if (!rows_ || !columns_) return;
        const Seen scale(scale_, scale_at() ? data[scale_at()] : nullptr), bias(bias_, has_bias_ ? data[bias_at()] : nullptr);
        const Call call{data[1], data[2], reinterpret_cast<const float*>(scale.data()), bias.data(), data[0]};
        if (!is_rounded_ || !rounded(call)) widened(call);
    }

private:
    struct Call {
        char* input;
        const char* weight;
        const float* scale;
        char* bias;
        char* out;
    };

    int scale_at() const { return format_ == Format::int8 ? 3 : 0; }
    int bias_at() const { return format_ == Format::int8 ? 4 : 3; }

    // --- Few vectors: rounded to 8 bits -----------------------------------------------------------------------------

    bool round_rows(char* input, int8_t* numbers, float* factors, float* sums) const {
        const Scratch<float> row(blocks_ * BLOCK_NUMBERS);
        std::fill(row.data() + features_, row.data() + blocks_ * BLOCK_NUMBERS, 0.0f);
        for (int64_t r = 0; r < rows_; ++r) {
            const Plane to{reinterpret_cast<char*>(row.data()), 0, sizeof(float)}, from{input + r * input_.row * size_, 0, input_.column * size_};
            load_tile(to, from, 1, features_, size_, conversion_of(dtype_));
            for (int64_t b = 0; b < blocks_; ++b, numbers += BLOCK_NUMBERS, ++factors, ++sums) {
                *factors = round_block(row.data() + b * BLOCK_NUMBERS, numbers);
                if (*factors < 0) return false;
                int sum = 0;
                for (int i = 0; i < BLOCK_NUMBERS; ++i) sum += numbers[i];
                *sums = *factors * float(sum);
            }
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
        const int64_t pieces = rows_ == 1 ? std::max<int64_t>(1, streamed_pieces(work)) : columns_;
        const int64_t piece = (columns_ + pieces - 1) / pieces;
        parallel_for(columns_, work / double(columns_), [&](int64_t first, int64_t last) {
            const int64_t width = last - first;
            const Scratch<float> sums((rows_ + 1) * width);
            float* const bias = sums.data() + rows_ * width;
            if (call.bias) convert_line(call.bias + first * size_, dtype_, width, reinterpret_cast<char*>(bias), DType::f32);
            dot_rows_(x, {call.weight + first * row_, row_, width, features_}, sums.data(), width);
            for (int64_t r = 0; r < rows_; ++r) {
                float* row = sums.data() + r * width;
                if (call.scale)
                    for (int64_t c = 0; c < width; ++c) row[c] *= call.scale[first + c];
                if (call.bias)
                    for (int64_t c = 0; c < width; ++c) row[c] += bias[c];
                convert_line(reinterpret_cast<const char*>(row), DType::f32, width, call.out + (r * columns_ + first) * size_, dtype_);
            }
        }, (piece + 15) / 16 * 16);
        return true;
    }

    // --- Many vectors: some rows of the weight at a time become floats -----------------------------------------------

    void plan_widened(double numbers) {
        const int64_t fitting = WIDENED_BYTES / std::max<int64_t>(1, features_ * size_);
        part_ = std::clamp<int64_t>(fitting / 32 * 32, 32, std::max<int64_t>(32, columns_));
        product_ = product_of(std::min(part_, columns_));
        if (columns_ % part_) last_product_ = product_of(columns_ % part_);
        if (is_rounded_) return;
        const int64_t parts = (columns_ + part_ - 1) / part_;
        work = numbers * 0.2 + double(parts) * product_->work;
        note_scratch(std::min<int64_t>(parts, num_threads()) * (part_ * features_ * size_ + features_ * int64_t(sizeof(float))));
    }

    KernelPtr product_of(int64_t columns) const {
        const Operand out{dtype_, {rows_, columns}, {columns_, 1}}, input{dtype_, {rows_, features_}, {input_.row, input_.column}};
        const Operand weight{dtype_, {features_, columns}, {1, features_}}, bias{dtype_, {columns}, {1}};
        return product_kernel(out, input, weight, has_bias_ ? &bias : nullptr);
    }

    void widen_rows(const Call& call, int64_t first, int64_t count, char* to) const {
        const bool is_direct = dtype_ == DType::f32;
        const Scratch<float> scratch(is_direct ? 0 : features_);
        for (int64_t c = first; c < first + count; ++c, to += features_ * size_) {
            float* const row = is_direct ? reinterpret_cast<float*>(to) : scratch.data();
            for (int64_t b = 0; b < blocks_; ++b) {
                const char* block = call.weight + c * row_ + b * block_bytes(format_);
                const int64_t here = std::min(BLOCK_NUMBERS, features_ - b * BLOCK_NUMBERS);
                const float scale = format_ == Format::int8 ? call.scale[c] : plain::scale_of(block);
                widen_block(format_, block, here, scale, row + b * BLOCK_NUMBERS);
            }
            if (!is_direct) convert_line(reinterpret_cast<const char*>(row), DType::f32, features_, to, dtype_);
        }
    }

    void widened(const Call& call) const {
        const int64_t parts = (columns_ + part_ - 1) / part_;
        parallel_for(parts, work / double(parts), [&](int64_t begin, int64_t end) {
            const Scratch<> numbers(part_ * features_ * size_);
            for (int64_t part = begin; part < end; ++part) {
                const int64_t first = part * part_, width = std::min(part_, columns_ - first);
                widen_rows(call, first, width, numbers.data());
                char* const bias = call.bias ? call.bias + first * size_ : nullptr;
                char* const operands[] = {call.out + first * size_, call.input, numbers.data(), bias};
                (width == part_ || !last_product_ ? product_ : last_product_)->run(operands, nullptr);
            }
        });
    }

    Format format_;
    DType dtype_;
    int64_t size_, rows_, columns_, features_, row_, blocks_, part_;
    struct {
        int64_t row, column;
    } input_;
    bool has_bias_, is_rounded_;
    DotRows dot_rows_;
    StagedOperand scale_, bias_;
    KernelPtr product_, last_product_;  // of part_ rows of the weight, and of those that remain
};

[[gnu::cold]] KernelPtr quantized_linear(const Request& request) {
    const auto& o = request.operands;
    const Operand &out = o[0], &weight = o[2];
    Operand input;
    if (!is_floating(out.dtype) || out.dtype == DType::f64 || !out.is_contiguous() || !as_rows(o[1], &input)) return nullptr;
    const int64_t features = input.shape[1];
    if (weight.strides[1] != 1 && weight.shape[1] > 1) return nullptr;
    const bool is_scaled = weight.dtype == DType::i8;
    const size_t before_bias = is_scaled ? 4 : 3;
    const Operand *scale = is_scaled ? &o[3] : nullptr, *bias = o.size() > before_bias ? &o[before_bias] : nullptr;
    const Format format = is_scaled ? Format::int8
                          : weight.shape[1] == features / BLOCK_NUMBERS * block_bytes(Format::q8_0) ? Format::q8_0
                                                                                                    : Format::q4_0;
    return std::make_unique<QuantizedKernel>(format, out, input, weight, scale, bias);
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
