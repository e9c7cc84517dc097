// The gradients of cumprod and prod: products of what lies before and behind each element, without a division, in float64.
#include "common/layout.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

/// later[i] = g[i] + x[i + 1] later[i + 1], times the product of those before.
template <class T>
void cumprod_grad_row(T* out, const T* g, int64_t g_step, const T* x, double* later, int64_t n) {
    later[n - 1] = double(g[(n - 1) * g_step]);
    for (int64_t i = n - 1; i-- > 0;) later[i] = double(g[i * g_step]) + double(x[i + 1]) * later[i + 1];
    double before = 1;
    for (int64_t i = 0; i < n; ++i) {
        out[i] = T(before * later[i]);
        before *= double(x[i]);
    }
}

template <class T>
void others_row(T* out, const T* x, double* later, int64_t n) {
    later[n - 1] = 1;
    for (int64_t i = n - 1; i-- > 0;) later[i] = double(x[i + 1]) * later[i + 1];
    double before = 1;
    for (int64_t i = 0; i < n; ++i) {
        out[i] = T(before * later[i]);
        before *= double(x[i]);
    }
}

/// Rows of n elements that lie side by side, those of `spaced` operands excepted; null for others, which norch's formula
/// serves.
template <class Row>
[[gnu::cold]] KernelPtr by_rows(const Request& request, int64_t dim, const Row& row, size_t spaced = 0) {
    const DType dtype = request.operands[0].dtype;
    if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
    const int64_t n = request.operands[0].shape[size_t(dim)];
    for (size_t i = 0; i < request.operands.size(); ++i) {
        const Operand& o = request.operands[i];
        if (o.dtype != dtype || (n > 1 && o.strides[size_t(dim)] != 1 && (!i || i != spaced))) return nullptr;
    }
    const Loops lines = collapse(request.operands, dims_but(request.operands[0].ndim(), dim));
    if (!n || !lines.numel) return make_kernel(0, [](char* const*, const Scalar*) {});
    const auto make = [&]<class T>(Tag<T>) {
        return parallel_kernel(lines.numel, 3 * double(n), [=](char* const* data, int64_t begin, int64_t end) {
            Scratch<double> later(n);
            Walker at(lines, lines.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, at.next()) row(Tag<T>{}, at, later.data(), n);
        });
    };
    return dtype == DType::f32 ? make(Tag<float>{}) : make(Tag<double>{});
}

[[gnu::cold]] KernelPtr cumprod_grad(const Request& request) {
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= request.operands[0].ndim()) return nullptr;
    const int64_t g_step = request.operands[1].strides[size_t(dim)];  // 0 for the gradient of a sum
    const auto row = [g_step]<class T>(Tag<T>, const Walker& at, double* later, int64_t n) {
        cumprod_grad_row(reinterpret_cast<T*>(at[0]), reinterpret_cast<const T*>(at[1]), g_step,
                         reinterpret_cast<const T*>(at[2]), later, n);
    };
    return by_rows(request, dim, row, 1);
}

[[gnu::cold]] KernelPtr prod_of_others(const Request& request) {
    if (request.operands[0].ndim() == 0) return nullptr;
    return by_rows(request, request.operands[0].ndim() - 1, []<class T>(Tag<T>, const Walker& at, double* later, int64_t n) {
        others_row(reinterpret_cast<T*>(at[0]), reinterpret_cast<const T*>(at[1]), later, n);
    });
}

}  // namespace

void add_products(Registry& registry) {
    registry["cumprod_grad"] = cumprod_grad;
    registry["prod_of_others"] = prod_of_others;
}

}  // namespace norch::reduction
