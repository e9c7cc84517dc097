// variance and its gradient, of rows that lie together.
#include "nn/normalization.h"

namespace norch::reduction {
namespace {

constexpr int64_t LONG_ROW = 1 << 16;  // of few such rows the parts of the composite share the threads better

struct Rows {
    int64_t count = 0, size = 0;
};

/// Of x, whose last dims are reduced. None where they are others, or there is nothing.
Rows rows_of(const Operand& x, const std::vector<int64_t>& dims) {
    if (!x.is_contiguous() || !x.numel() || dims.empty()) return {};
    int64_t size = 1;
    for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[dims.size() - 1 - i] != x.ndim() - 1 - int64_t(i)) return {};
        size *= x.shape[size_t(x.ndim() - 1) - i];
    }
    const Rows rows{x.numel() / size, size};
    return size >= LONG_ROW && rows.count < 8 ? Rows{} : rows;
}

/// Whether an operand that is expanded to x's shape has one number for each row, one after another.
bool is_by_row(const Operand& o, size_t reduced) {
    int64_t next = 1;
    for (size_t d = o.shape.size(); d-- > 0;) {
        const bool is_reduced = d >= o.shape.size() - reduced;
        if (o.shape[d] != 1 && o.strides[d] != (is_reduced ? 0 : next)) return false;
        if (!is_reduced) next *= o.shape[d];
    }
    return true;
}

bool are_all(const Request& request, DType dtype) {
    return std::all_of(request.operands.begin(), request.operands.end(), [=](const Operand& o) { return o.dtype == dtype; });
}

template <class C>
[[gnu::cold]] KernelPtr variance(const Request& request) {
    const Rows rows = rows_of(request.operands[1], request.attrs.integers("dims"));
    if (!rows.count || !request.operands[0].is_contiguous()) return nullptr;
    const double degrees = request.attrs.number("degrees"), ns = 0.2 * double(rows.size) * sizeof(C) / 4;
    return make_kernel(ns * double(rows.count), [=](char* const* data, const Scalar*) {
        const C* x = reinterpret_cast<const C*>(data[1]);
        C* out = reinterpret_cast<C*>(data[0]);
        parallel_for(rows.count, ns, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r)
                out[r] = C(nn::statistics(x + r * rows.size, rows.size).variance * double(rows.size) / degrees);
        });
    });
}

template <class C>
[[gnu::cold]] KernelPtr variance_grad(const Request& request) {
    const Operand &out = request.operands[0], &grad = request.operands[1];
    const auto& dims = request.attrs.integers("dims");
    const Rows rows = rows_of(request.operands[2], dims);
    if (!rows.count || !out.is_contiguous() || grad.is_scalar || !is_by_row(grad, dims.size())) return nullptr;
    const double degrees = request.attrs.number("degrees"), ns = 0.3 * double(rows.size) * sizeof(C) / 4;
    return make_kernel(ns * double(rows.count), [=](char* const* data, const Scalar*) {
        const auto at = [data](int i) { return reinterpret_cast<C*>(data[i]); };
        parallel_for(rows.count, ns, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                const C* x = at(2) + r * rows.size;
                C* to = at(0) + r * rows.size;
                const nn::Mean<C> centre = nn::mean_of(x, rows.size);
                const double factor = double(at(1)[r]) * 2 / degrees;
                const C mean = centre.rounded, scale = C(factor), shift = C(centre.off * factor);
                NORCH_INDEPENDENT
                for (int64_t i = 0; i < rows.size; ++i) to[i] = (x[i] - mean) * scale - shift;
            }
        });
    });
}

}  // namespace

void add_variance(Registry& registry) {
    registry["variance"] = [](const Request& r) -> KernelPtr {
        return are_all(r, DType::f32) ? variance<float>(r) : are_all(r, DType::f64) ? variance<double>(r) : nullptr;
    };
    registry["variance_grad"] = [](const Request& r) -> KernelPtr {
        return are_all(r, DType::f32) ? variance_grad<float>(r) : are_all(r, DType::f64) ? variance_grad<double>(r) : nullptr;
    };
}

}  // namespace norch::reduction
