// Matrices of a batch one by one, each copied to rows that are vectors.
#pragma once

#include <cstring>
#include <stdexcept>

#include "common/layout.h"
#include "common/operands.h"
#include "linalg/blocks.h"
#include "linalg/linalg.h"
#include "runtime/families.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::linalg {

/// The last two dims alone, as they lie, and in rows that are `row` elements apart.
inline Operand matrix_of(const Operand& o) {
    const size_t d = o.shape.size() - 2;
    return {o.dtype, {o.shape[d], o.shape[d + 1]}, {o.strides[d], o.strides[d + 1]}};
}
inline Operand in_rows(Operand matrix, int64_t row) {
    matrix.strides = {row, 1};
    return matrix;
}

constexpr size_t MAX_MATRICES = 5;  // singular vectors and values, their state, and the matrix

/// body(data, room) for each matrix: where those of the operands begin, and `elements` zeros of the outputs' dtype.
template <class Body>
[[gnu::cold]] KernelPtr matrix_kernel(const Request& request, int64_t elements, double ns_per_matrix, Body body) {
    Loops batch = collapse(request.operands, dims_but(request.operands.back().ndim() - 2));
    if (batch.strides.size() > MAX_MATRICES) throw std::logic_error("too many operands for a kernel of matrices");
    const double work = double(batch.numel) * ns_per_matrix;
    const bool is_double = request.operands[0].dtype == DType::f64;
    return make_kernel(work, [=, batch = std::move(batch), body = std::move(body)](char* const* data, const Scalar*) {
        const auto range = [&](int64_t begin, int64_t end) {
            const int64_t bytes = elements * (is_double ? 8 : 4);
            const Scratch<> room(bytes);
            for (int64_t i = begin; i < end; ++i) {
                char* at[MAX_MATRICES] = {};
                std::copy(data, data + batch.strides.size(), at);
                batch.move(at, batch.ndim(), i);
                std::memset(room.data(), 0, size_t(bytes));
                if (is_double) body(at, reinterpret_cast<double*>(room.data()));
                else body(at, reinterpret_cast<float*>(room.data()));
            }
        };
        if (batch.numel == 1) range(0, 1);  // threads may share it
        else parallel_for(batch.numel, ns_per_matrix, range);
    });
}

}  // namespace norch::linalg
