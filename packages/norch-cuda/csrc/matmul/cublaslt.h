// Matrix products by cuBLASLt, which is loaded when the first of them is run. Its headers are not needed: what is used
// of its C interface is declared in cublaslt.cu.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/kernel.h"

namespace norch::matmul {

/// Whether products of float32 may be computed in tf32; read when a kernel is made.
extern bool allows_tf32;
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
};

/// out (m, n) = a (m, k) @ b (k, n) + bias (n), then relu where asked for; `batch` times. The algorithm is chosen once
/// for each device and alignment of the operands.
class Gemm {
public:
    DType dtype;
    int64_t m, n, k, batch = 1;
    GemmOperand out, a, b;  // out is not transposed
    bool has_bias = false, has_relu = false, uses_tf32 = allows_tf32;
    Sums sums = allowed_sums;

    /// Returns false where cuBLASLt has no algorithm. Throws where there is no cuBLASLt.
    bool run(char* out, const char* a, const char* b, const char* bias = nullptr) const;

private:
    struct Descriptors;
    struct Choice;
    void describe() const;
    bool sums_float16() const { return dtype == DType::f16 && sums.float16_throughout; }
    const Choice& choose(int device, unsigned alignment) const;

    // Made when first run; runs hold the GIL.
    mutable std::shared_ptr<Descriptors> descriptors_;
    mutable std::shared_ptr<std::vector<Choice>> choices_;
};

}  // namespace norch::matmul
