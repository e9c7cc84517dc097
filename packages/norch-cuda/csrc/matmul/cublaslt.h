// Matrix products by cuBLASLt, which is loaded when the first of them is run. Its headers are not needed: what is used
// of its C interface is declared in cublaslt.cu.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/kernel.h"

namespace norch::matmul {

/// Whether products of float32 may be computed in tf32; read when a kernel is made.
extern bool allows_tf32;
/// Whether large products are timed by several algorithms, when their shape is first met, and the fastest is kept.
extern bool tries_out;
/// How products of 16-bit floats may be summed; read when a kernel is made.
struct Sums {
    bool float16 = false, bfloat16 = false;  // partial sums may be of the result's dtype
    bool float16_throughout = false;
};
extern Sums allowed_sums;

/// A row-major matrix, or its transpose: `ld` elements from one stored row to the next, `step` from one of the batch to
/// the next.
struct GemmOperand {
    bool is_transposed = false;
    int64_t ld = 1, step = 0;
    bool is_conjugate = false;  // of complex numbers, and of a transpose only
};

/// A matrix as such an operand, if its elements lie without gaps along one dim.
std::optional<GemmOperand> as_gemm_operand(int64_t rows, int64_t columns, int64_t row, int64_t column);

/// out (m, n) = a (m, k) @ b (k, n) + bias (n), then relu where asked for; `batch` times. The algorithm is chosen once
/// for each device and alignment of the operands.
class Gemm {
public:
    DType dtype;  // of complex numbers, their parts'
    bool is_complex = false;
    int64_t m, n, k, batch = 1;
    GemmOperand out, a, b;  // out is not transposed
    bool has_bias = false, has_relu = false, uses_tf32 = allows_tf32;
    Sums sums = allowed_sums;

    /// Returns false where cuBLASLt has no algorithm. Throws where there is no cuBLASLt.
    bool run(char* out, const char* a, const char* b, const char* bias = nullptr) const;

private:
    struct Descriptors;
    struct Choice;
    struct Run;
    void describe() const;
    bool sums_float16() const { return dtype == DType::f16 && sums.float16_throughout; }
    const Choice& choose(const Run& run, unsigned alignment) const;
    std::vector<Choice> candidates(int device, unsigned alignment, int count) const;
    Choice fastest(const Run& run, unsigned alignment) const;
    std::vector<int64_t> key(int device, unsigned alignment) const;
    void launch(const Run& run, const Choice& choice) const;

    // Made when first run; runs hold the GIL.
    mutable std::shared_ptr<Descriptors> descriptors_;
    mutable std::shared_ptr<std::vector<Choice>> choices_;
};

}  // namespace norch::matmul
