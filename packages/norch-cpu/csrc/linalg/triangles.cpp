// Cholesky factors, and systems of equations with triangular matrices.
#include "linalg/lanes.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

double square_ns(DType dtype, int64_t n, int64_t columns) {
    return 50 + double(size_of(dtype)) / 300 * double(n * n * columns);
}

[[gnu::cold]] KernelPtr cholesky(const Request& request) {
    if (!suits(request, 2)) return nullptr;
    const Operand &out = request.operands[0], &a = request.operands[2];
    const int64_t n = a.shape.back();
    const double ns = square_ns(a.dtype, n, n);
    if (suits_lanes(a.dtype, matrices_of(a)))
        return lane_kernel(request, 2, n * n, ns, [=](char* const* data, int64_t batch, int64_t group, auto* x) {
            using S = Lanes<lane_t<std::remove_reference_t<decltype(*x)>>>;
            read_lanes(data[2], n * n, batch, group, x);
            write_info(data[1], batch, group, S::factorise_positive(x, int(n)));
            write_lanes(data[0], n * n, batch, group, x);
        });
    const int64_t row = padded(n, a.dtype);
    const Operand given = transposed(matrix_of(a)), found = transposed(matrix_of(out)), in_room = in_rows(given, row);
    return matrix_kernel(request, n * row, ns,
                         [=, copy = copy_kernel(in_room, given),
                          copy_out = copy_kernel(found, in_room)]<class T>(char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[2]);
        *reinterpret_cast<int32_t*>(data[1]) = factorise_positive(x, row, n);
        for (int64_t i = 1; i < n; ++i) std::fill(x + i * row, x + i * row + i, T(0));
        run_copy(*copy_out, data[0], reinterpret_cast<char*>(x));
    });
}

[[gnu::cold]] KernelPtr solve_triangular(const Request& request) {
    if (!suits(request, 1)) return nullptr;
    const Operand &out = request.operands[0], &a = request.operands[1], &b = request.operands[2];
    const bool upper = request.attrs.flag("upper"), unitriangular = request.attrs.flag("unitriangular");
    const int64_t n = a.shape.back(), k = out.shape.back();
    const double ns = square_ns(a.dtype, n, k);
    if (suits_lanes(a.dtype, matrices_of(a), k))
        return lane_kernel(request, 1, n * (n + k), ns, [=](char* const* data, int64_t batch, int64_t group, auto* x) {
            using S = Lanes<lane_t<std::remove_reference_t<decltype(*x)>>>;
            auto* const right = x + n * n;
            read_lanes(data[1], n * n, batch, group, x);
            read_lanes(data[2], n * k, batch, group, right);
            S::substitute(upper, unitriangular, x, int(n), right, int(k));
            write_lanes(data[0], n * k, batch, group, right);
        });
    const int64_t row = padded(k, a.dtype);
    const Operand given = matrix_of(b), found = matrix_of(out), in_room = in_rows(found, row);
    return matrix_kernel(request, n * row, ns,
                         [=, strides = matrix_of(a).strides, copy = copy_kernel(in_room, given),
                          copy_out = copy_kernel(found, in_room)]<class T>(char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[2]);
        const Strided<T> triangle{reinterpret_cast<const T*>(data[1]), strides[0], strides[1]};
        solve_triangle(upper, unitriangular, triangle, n, x, row, k);
        run_copy(*copy_out, data[0], reinterpret_cast<char*>(x));
    });
}

}  // namespace

void add_triangles(Registry& registry) {
    registry["linalg_cholesky"] = cholesky;
    registry["linalg_solve_triangular"] = solve_triangular;
}

}  // namespace norch::linalg
