// What the losses share: targets by class index, and the sum over all blocks of a launch.
#pragma once

#include "common/losses.h"
#include "nn/rows.cuh"
#include "runtime/allocator.h"
#include "runtime/semaphores.h"

namespace norch::nn {

inline bool are_tensors(const Request& request, size_t count) {
    if (request.operands.size() != count) return false;
    return std::none_of(request.operands.begin(), request.operands.end(), [](const Operand& o) { return o.is_scalar; });
}

// --- Targets --------------------------------------------------------------------------------------------------------

/// One class index, of any integer dtype, for each row.
struct Targets {
    const char* data;
    DType dtype;
    int64_t classes, ignored;
    ErrorSink sink;
    int32_t op;

    __device__ int64_t read(int64_t row) const {
        switch (dtype) {
            case DType::i64: return reinterpret_cast<const int64_t*>(data)[row];
            case DType::i32: return reinterpret_cast<const int32_t*>(data)[row];
            case DType::i16: return reinterpret_cast<const int16_t*>(data)[row];
            case DType::i8: return reinterpret_cast<const int8_t*>(data)[row];
            default: return reinterpret_cast<const uint8_t*>(data)[row];
        }
    }
    /// The class of a row, or -1 where it is ignored or, which is reported, there is no such class.
    __device__ int64_t operator()(int64_t row) const {
        const int64_t index = read(row);
        if (index == ignored) return -1;
        if (index >= 0 && index < classes) return index;
        report_index(sink, op, index, classes);
        return -1;
    }
    __device__ bool counts(int64_t row) const { return read(row) != ignored; }
};

/// All but where they lie and where errors go.
inline Targets targets_of(const Operand& target, int64_t classes, const Request& request, const char* op) {
    Targets out = {};
    out.dtype = target.dtype;
    out.classes = classes;
    out.ignored = request.attrs.integer("ignore_index");
    out.op = op_number(op);
    return out;
}

// --- Sums over a launch ---------------------------------------------------------------------------------------------

/// Where the sum of the losses goes. Each block writes what it has; the last to finish adds all of that up, in order.
struct LossSum {
    char* out;
    double* parts;     // two for each block
    unsigned* semaphore;
    double divisor;    // 0: the number of rows that count
};

/// For all threads of all blocks, each with what it has found.
template <class T>
__device__ inline void finish_loss(const LossSum& s, double sum, double counted) {
    double v[2] = {sum, counted};
    reduce_block<Sum>(v);
    if (gridDim.x > 1) {
        __shared__ bool is_last;
        if (threadIdx.x == 0) {
            s.parts[2 * blockIdx.x] = v[0];
            s.parts[2 * blockIdx.x + 1] = v[1];
            __threadfence();
            is_last = atomicInc(s.semaphore, gridDim.x - 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        v[0] = v[1] = 0;
        for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
            v[0] += __ldcg(s.parts + 2 * i);
            v[1] += __ldcg(s.parts + 2 * i + 1);
        }
        reduce_block<Sum>(v);
    }
    if (threadIdx.x == 0)
        *reinterpret_cast<T*>(s.out) = downcast<T>(computed<T>(v[0] / (s.divisor == 0 ? v[1] : s.divisor)));
}

/// The memory that a launch of some blocks needs for its sum.
class LossScratch {
public:
    LossScratch(unsigned blocks, char* out, double divisor)
        : parts_(blocks > 1 ? blocks * 2 : 1),
          sum{out, parts_.data(), blocks > 1 ? take_semaphore() : nullptr, divisor} {}

private:
    Scratch<double> parts_;

public:
    LossSum sum;
};

void add_cross_entropy_rows(Registry&);  // cross_entropy_rows.cu
void add_margins(Registry&);             // margins.cu

}  // namespace norch::nn
