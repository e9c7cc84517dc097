// What rests on LU factors with pivots: inverses, systems of equations, determinants.
#include "linalg/lanes.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

double cube_ns(DType dtype, int64_t n, int64_t columns) {
    return 50 + double(size_of(dtype)) / 300 * double(n * n) * double(n + 3 * columns);
}

/// The determinants, or with `logs` their signs and the logarithms of their sizes.
[[gnu::cold]] KernelPtr determinants(const Request& request, bool logs) {
    const size_t input = logs ? 2 : 1;
    if (!suits(request, input)) return nullptr;
    const Operand& a = request.operands[input];
    const int64_t n = a.shape.back();
    const double ns = cube_ns(a.dtype, n, 0);
    if (suits_lanes(a.dtype, matrices_of(a)))
        return lane_kernel(request, input, n * n, ns, [=](char* const* data, int64_t batch, int64_t group, auto* x) {
            using V = std::remove_reference_t<decltype(*x)>;
            using T = lane_t<V>;
            using S = Lanes<T>;
            read_lanes(data[input], n * n, batch, group, x);
            V product = S::eliminate(x, int(n), nullptr, 0).sign, sum{};
            for (int64_t i = 0; i < n; ++i) {
                const V d = x[i * n + i];
                if (logs) sum += S::logarithm(S::absolute(d));
                const V sign = d > T(0) ? V{} + T(1) : d < T(0) ? V{} - T(1) : d;  // 0 and NaN stay
                product *= logs ? sign : d;
            }
            write_lanes(data[0], 1, batch, group, &product);
            if (logs) write_lanes(data[1], 1, batch, group, &sum);
        });
    const int64_t row = padded(n, a.dtype);
    const Operand given = matrix_of(a);
    return matrix_kernel(request, n * row, ns,
                         [=, copy = copy_kernel(in_rows(given, row), given)]<class T>(char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[input]);
        const Scratch<int32_t> pivots(n);
        factorise(x, row, n, n, pivots.data());
        double product = 1, sum = 0;
        for (int64_t i = 0; i < n; ++i) {
            const double d = x[i * row + i];
            if (pivots[i] != i + 1) product = -product;
            if (logs) sum += std::log(std::abs(d));
            product *= !logs ? d : d > 0 ? 1 : d < 0 ? -1 : d;
        }
        *reinterpret_cast<T*>(data[0]) = T(product);
        if (logs) *reinterpret_cast<T*>(data[1]) = T(sum);
    });
}

[[gnu::cold]] KernelPtr det(const Request& request) { return determinants(request, false); }
[[gnu::cold]] KernelPtr slogdet(const Request& request) { return determinants(request, true); }

/// X with a @ X = b, or with an identity for b where `request` has none.
[[gnu::cold]] KernelPtr solve(const Request& request) {
    if (!suits(request, 2)) return nullptr;
    const Operand &out = request.operands[0], &a = request.operands[2];
    const bool inverts = request.operands.size() == 3;
    const int64_t n = a.shape.back(), k = out.shape.back();
    const double ns = cube_ns(a.dtype, n, k);
    if (suits_lanes(a.dtype, matrices_of(a), k))
        return lane_kernel(request, 2, n * (n + k), ns, [=](char* const* data, int64_t batch, int64_t group, auto* x) {
            using V = std::remove_reference_t<decltype(*x)>;
            using S = Lanes<lane_t<V>>;
            V* const right = x + n * n;
            read_lanes(data[2], n * n, batch, group, x);
            if (inverts)
                for (int64_t i = 0; i < n * n; ++i) right[i] = V{} + lane_t<V>(i % (n + 1) == 0);
            else read_lanes(data[3], n * k, batch, group, right);
            write_info(data[1], batch, group, S::eliminate(x, int(n), right, int(k)).info);
            S::substitute(true, false, x, int(n), right, int(k));
            write_lanes(data[0], n * k, batch, group, right);
        });
    const int64_t row = padded(n, a.dtype), right_row = padded(k, a.dtype);
    const Operand given = matrix_of(a), found = matrix_of(out), in_room = in_rows(found, right_row);
    const Operand right = inverts ? found : matrix_of(request.operands[3]);
    return matrix_kernel(request, n * (row + right_row), ns,
                         [=, copy = copy_kernel(in_rows(given, row), given), copy_b = copy_kernel(in_room, right),
                          copy_out = copy_kernel(found, in_room)]<class T>(char* const* data, T* x) {
        T* const b = x + n * row;
        run_copy(*copy, reinterpret_cast<char*>(x), data[2]);
        if (inverts)
            for (int64_t i = 0; i < n; ++i) b[i * right_row + i] = T(1);
        else run_copy(*copy_b, reinterpret_cast<char*>(b), data[3]);
        const Scratch<int32_t> pivots(n);
        *reinterpret_cast<int32_t*>(data[1]) = factorise(x, row, n, n, pivots.data());
        exchange_rows(b, right_row, k, pivots.data(), n);
        solve_triangle(false, true, Strided<T>{x, row, 1}, n, b, right_row, k);
        solve_triangle(true, false, Strided<T>{x, row, 1}, n, b, right_row, k);
        run_copy(*copy_out, data[0], reinterpret_cast<char*>(b));
    });
}

}  // namespace

void add_systems(Registry& registry) {
    registry["linalg_inv"] = solve;
    registry["linalg_solve"] = solve;
    registry["linalg_det"] = det;
    registry["linalg_slogdet"] = slogdet;
}

}  // namespace norch::linalg
