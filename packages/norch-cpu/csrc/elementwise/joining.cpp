// cat and stack in one pass: rows of bytes, of each part one after the other. What has no such rows is copied part by part.
#include <algorithm>
#include <cstring>

#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::elementwise {
namespace {

constexpr int64_t SHORTEST = 64;               // bytes of a row: shorter ones are copied faster as a matrix
constexpr int64_t PIECE = int64_t(128) << 10;  // bytes that are copied at a time
constexpr double BYTES_PER_NS = 12;

/// `rows` rows of `bytes` bytes of one part, `step` apart; the result's begin at byte `start`.
struct Piece {
    size_t part;
    int64_t from, step, start, rows, bytes;
};

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

[[gnu::cold]] KernelPtr join(const Request& request, int dim) {
    const Operand& out = request.operands[0];
    const int64_t size = size_of(out.dtype);
    if (!out.numel() || !out.is_contiguous()) return nullptr;
    int64_t rows = 1, start = 0;
    for (int d = 0; d < dim; ++d) rows *= out.shape[size_t(d)];
    const int64_t out_step = out.numel() / rows * size;
    std::vector<Piece> pieces;
    for (size_t i = 1; i < request.operands.size(); ++i) {
        const Operand& part = request.operands[i];
        const int64_t bytes = part.numel() / rows * size;
        if (!bytes) continue;
        const int64_t step = row_step(part, dim) * size;
        if (part.dtype != out.dtype || bytes < SHORTEST || step < 0) return nullptr;
        const int64_t at_once = std::max<int64_t>(1, PIECE / bytes), most = std::min(bytes, PIECE);
        for (int64_t row = 0; row < rows; row += at_once)
            for (int64_t at = 0; at < bytes; at += most)
                pieces.push_back({i, row * step + at, step, row * out_step + start + at, std::min(at_once, rows - row),
                                  std::min(most, bytes - at)});
        start += bytes;
    }
    const double ns = double(out.numel() * size) / BYTES_PER_NS / double(pieces.size()) + 5;
    return make_kernel(ns * double(pieces.size()), [=, pieces = std::move(pieces)](char* const* data, const Scalar*) {
        parallel_for(int64_t(pieces.size()), ns, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const Piece& p = pieces[size_t(i)];
                const char* from = data[p.part] + p.from;
                char* to = data[0] + p.start;
                for (int64_t row = 0; row < p.rows; ++row, from += p.step, to += out_step) std::memcpy(to, from, size_t(p.bytes));
            }
        });
    });
}

[[gnu::cold]] KernelPtr cat(const Request& request) {
    const int ndim = request.operands[0].ndim(), dim = int(request.attrs.integer("dim"));
    for (const Operand& o : request.operands)
        if (o.ndim() != ndim) return nullptr;  // one without elements, of one dim
    if (ndim < 3 || request.operands[0].is_contiguous()) return join(request, dim);
    Request turned = request;  // channels last: dim 1 becomes the last
    for (Operand& o : turned.operands) {
        std::rotate(o.shape.begin() + 1, o.shape.begin() + 2, o.shape.end());
        std::rotate(o.strides.begin() + 1, o.strides.begin() + 2, o.strides.end());
    }
    return join(turned, dim == 0 ? 0 : dim == 1 ? ndim - 1 : dim - 1);
}

}  // namespace

void add_joining(Registry& registry) {
    registry["cat"] = cat;
    registry["stack"] = [](const Request& request) { return join(request, int(request.attrs.integer("dim"))); };
}

}  // namespace norch::elementwise
