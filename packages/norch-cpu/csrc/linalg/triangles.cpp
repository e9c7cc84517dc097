// Cholesky factors, and systems of equations with triangular matrices.
#include "linalg/lanes.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

template <class T>
KernelPtr cholesky_kernel(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[2];
    const Matrices shape = matrices_of(a);
    const int64_t n = shape.rows;
    const double ns = 50 + double(sizeof(T)) / 300 * double(n * n * n);
    if (suits_lanes<T>(shape))
        return lane_kernel<T>(request, 2, n * n, ns * 4, [=](char* const* data, int64_t batch, int64_t group, auto* x) {
            read_lanes<T>(data[2], n * n, batch, group, x);
            const auto run = [&]<int N>(std::integral_constant<int, N>) NORCH_INLINE_LAMBDA {
                write_info(data[1], batch, group, Lanes<T>::template factorise_positive<N>(x, int(n)));
            };
            if (n == 3) run(std::integral_constant<int, 3>());
            else run(std::integral_constant<int, 0>());
            write_lanes<T>(data[0], n * n, batch, group, x);
        });
    const int64_t row = padded<T>(n);
    const Operand given = transposed(matrix_of(a)), found = transposed(matrix_of(out)), in_room = in_rows(given, row);
    return matrix_kernel<T>(request, n * row, ns, [=, copy = copy_kernel(in_room, given),
                                                   copy_out = copy_kernel(found, in_room)](char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[2]);
        *reinterpret_cast<int32_t*>(data[1]) = factorise_positive(x, row, n);
        for (int64_t i = 1; i < n; ++i) std::fill(x + i * row, x + i * row + i, T(0));
        run_copy(*copy_out, data[0], reinterpret_cast<char*>(x));
    });
}

template <class T>
KernelPtr triangular_kernel(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[1], &b = request.operands[2];
    const bool upper = request.attrs.flag("upper"), unitriangular = request.attrs.flag("unitriangular");
    const Matrices shape = matrices_of(a);
    const int64_t n = shape.rows, k = matrices_of(out).columns;
    const double ns = 50 + double(sizeof(T)) / 300 * double(n * n * k);
    if (suits_lanes<T>(shape) && (n + k) * n * int64_t(VECTOR_BYTES) <= MOST_LANE_BYTES)
        return lane_kernel<T>(request, 1, n * (n + k), ns * 4,
                              [=](char* const* data, int64_t batch, int64_t group, auto* x) {
            auto* const right = x + n * n;
            read_lanes<T>(data[1], n * n, batch, group, x);
            read_lanes<T>(data[2], n * k, batch, group, right);
            if (upper) Lanes<T>::template substitute<0, -1, true>(x, int(n), right, int(k), unitriangular);
            else Lanes<T>::template substitute<0, -1, false>(x, int(n), right, int(k), unitriangular);
            write_lanes<T>(data[0], n * k, batch, group, right);
        });
    const int64_t row = padded<T>(k);
    const Operand given = matrix_of(b), found = matrix_of(out), in_room = in_rows(found, row), triangle = matrix_of(a);
    return matrix_kernel<T>(request, n * row, ns, [=, copy = copy_kernel(in_room, given),
                                                   copy_out = copy_kernel(found, in_room)](char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[2]);
        const Strided<T> at{reinterpret_cast<const T*>(data[1]), triangle.strides[0], triangle.strides[1]};
        solve_triangle(upper, unitriangular, at, n, x, row, k);
        run_copy(*copy_out, data[0], reinterpret_cast<char*>(x));
    });
}

KernelPtr cholesky(const Request& request) {
    if (!suits(request, 2)) return nullptr;
    return by_dtype(request.operands[0].dtype, [&]<class T>(T) { return cholesky_kernel<T>(request); });
}

KernelPtr solve_triangular(const Request& request) {
    if (!suits(request, 1)) return nullptr;
    return by_dtype(request.operands[0].dtype, [&]<class T>(T) { return triangular_kernel<T>(request); });
}

}  // namespace

void add_triangles(Registry& registry) {
    registry["linalg_cholesky"] = cholesky;
    registry["linalg_solve_triangular"] = solve_triangular;
}

}  // namespace norch::linalg
