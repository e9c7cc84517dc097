#include "common/joining.h"

#include <algorithm>

namespace norch {
namespace {

/// The elements from one row to the next, where a row is what lies from dim `dim` on, without gaps; -1 where it is none.
int64_t row_step(const Operand& o, int dim) {
    int64_t step = 1;
    for (int d = o.ndim() - 1; d >= dim; --d) {
        if (o.shape[size_t(d)] != 1 && o.strides[size_t(d)] != step) return -1;
        step *= o.shape[size_t(d)];
    }
    int64_t found = -1, rows = 1;
    for (int d = dim - 1; d >= 0; --d) {
        if (o.shape[size_t(d)] == 1) continue;
        if (found < 0) found = o.strides[size_t(d)];
        else if (o.strides[size_t(d)] != found * rows) return -1;
        rows *= o.shape[size_t(d)];
    }
    return found < 0 ? step : found;
}

/// Rows are what lies from dim `dim` on, in the result and in the parts.
std::optional<JoinedRows> rows_from(const Request& request, int dim) {
    const Operand& out = request.operands[0];
    const int64_t size = size_of(out.dtype);
    if (!out.numel() || !out.is_contiguous()) return std::nullopt;
    JoinedRows joined;
    for (int d = 0; d < dim; ++d) joined.rows *= out.shape[size_t(d)];
    joined.out_step = out.numel() / joined.rows * size;
    int64_t start = 0;
    for (size_t i = 1; i < request.operands.size(); ++i) {
        const Operand& part = request.operands[i];
        const int64_t bytes = part.numel() / joined.rows * size, step = bytes ? row_step(part, dim) * size : 0;
        if (part.dtype != out.dtype || step < 0) return std::nullopt;
        joined.parts.push_back({step, start, bytes});
        start += bytes;
    }
    return joined;
}

}  // namespace

std::optional<JoinedRows> joined_rows(const Request& request) {
    const Operand& out = request.operands[0];
    const int ndim = out.ndim(), dim = int(request.attrs.integer("dim"));
    if (request.op == "stack") return rows_from(request, dim);
    for (const Operand& o : request.operands)
        if (o.ndim() != ndim) return std::nullopt;  // one without elements, of one dim
    if (ndim < 3 || out.is_contiguous()) return rows_from(request, dim);
    Request turned = request;  // channels last: dim 1 becomes the last
    for (Operand& o : turned.operands) {
        std::rotate(o.shape.begin() + 1, o.shape.begin() + 2, o.shape.end());
        std::rotate(o.strides.begin() + 1, o.strides.begin() + 2, o.strides.end());
    }
    return rows_from(turned, dim == 0 ? 0 : dim == 1 ? ndim - 1 : dim - 1);
}

}  // namespace norch
