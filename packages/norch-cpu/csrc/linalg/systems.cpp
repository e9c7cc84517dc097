// What rests on LU factors with pivots: inverses, systems of equations, determinants.
#include "elementwise/logarithm.h"
#include "linalg/lanes.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

template <class T>
constexpr double PRODUCT_NS = double(sizeof(T)) / 100;

/// with(constant) for the number of rows, if that has code of its own, else 0.
template <class With>
KernelPtr by_rows(int64_t n, const With& with) {
    switch (n) {
        case 2: return with(std::integral_constant<int, 2>());
        case 3: return with(std::integral_constant<int, 3>());
        case 4: return with(std::integral_constant<int, 4>());
        default: return with(std::integral_constant<int, 0>());
    }
}

template <class T>
double cube_ns(int64_t n) {
    return 50 + PRODUCT_NS<T> * double(n * n * n);
}

/// The determinants, or with `logs` their signs and the logarithms of their sizes.
template <class T>
KernelPtr determinants(const Request& request, bool logs) {
    const size_t input = logs ? 2 : 1;
    const Operand& a = request.operands[input];
    const Matrices shape = matrices_of(a);
    const int64_t n = shape.rows;
    if (suits_lanes<T>(shape))
        return by_rows(n, [&]<int N>(std::integral_constant<int, N>) {
            using S = Lanes<T>;
            using V = typename S::V;
            return lane_kernel<T>(request, input, n * n, cube_ns<T>(n) * 4,
                                  [=](char* const* data, int64_t batch, int64_t group, V* x) {
                const int rows = N ? N : int(n);
                read_lanes<T>(data[input], rows * rows, batch, group, x);
                V product = S::template eliminate<N, 0>(x, rows, nullptr, 0).sign, sum{};
                for (int i = 0; i < rows; ++i) {
                    const V d = x[i * rows + i];
                    if (logs) {
                        const V size = S::absolute(d);
                        V log;
                        for (int l = 0; l < S::L; ++l) log[l] = math::log(size[l]);
                        sum += log;
                        product *= d > T(0) ? V{} + T(1) : d < T(0) ? V{} - T(1) : d;  // 0 and NaN stay
                    } else {
                        product *= d;
                    }
                }
                write_lanes<T>(data[0], 1, batch, group, &product);
                if (logs) write_lanes<T>(data[1], 1, batch, group, &sum);
            });
        });
    const int64_t row = padded<T>(n);
    const Operand given = matrix_of(a);
    return matrix_kernel<T>(request, n * row, cube_ns<T>(n) / 3,
                            [=, copy = copy_kernel(in_rows(given, row), given)](char* const* data, T* x) {
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

/// X with a @ X = b, or with an identity for b where `request` has none.
template <class T>
KernelPtr solutions(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[2];
    const bool inverts = request.operands.size() == 3;
    const Matrices shape = matrices_of(a);
    const int64_t n = shape.rows, k = matrices_of(out).columns;
    const double ns = 50 + PRODUCT_NS<T> * double(n * n) * double(n + 3 * k);
    if (suits_lanes<T>(shape) && n * (n + k) * int64_t(VECTOR_BYTES) <= MOST_LANE_BYTES)
        return by_rows(n, [&]<int N>(std::integral_constant<int, N>) {
            using S = Lanes<T>;
            using V = typename S::V;
            return lane_kernel<T>(request, 2, n * (n + k), ns * 4,
                                  [=](char* const* data, int64_t batch, int64_t group, V* x) {
                const int rows = N ? N : int(n), columns = int(k);
                V* const right = x + rows * rows;
                read_lanes<T>(data[2], rows * rows, batch, group, x);
                if (inverts)
                    for (int i = 0; i < rows * rows; ++i) right[i] = V{} + T(i % (rows + 1) == 0);
                else read_lanes<T>(data[3], rows * columns, batch, group, right);
                const auto info = S::template eliminate<N, -1>(x, rows, right, columns).info;
                S::template substitute<N, -1, true>(x, rows, right, columns, false);
                write_lanes<T>(data[0], rows * columns, batch, group, right);
                write_info(data[1], batch, group, info);
            });
        });
    const int64_t row = padded<T>(n), right_row = padded<T>(k);
    const Operand given = matrix_of(a), found = matrix_of(out), in_room = in_rows(found, right_row);
    const Operand right = inverts ? found : matrix_of(request.operands[3]);
    return matrix_kernel<T>(request, n * (row + right_row), ns,
                            [=, copy = copy_kernel(in_rows(given, row), given), copy_b = copy_kernel(in_room, right),
                             copy_out = copy_kernel(found, in_room)](char* const* data, T* x) {
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

KernelPtr det(const Request& request) {
    if (!suits(request, 1)) return nullptr;
    return by_dtype(request.operands[0].dtype, [&]<class T>(T) { return determinants<T>(request, false); });
}

KernelPtr slogdet(const Request& request) {
    if (!suits(request, 2)) return nullptr;
    return by_dtype(request.operands[0].dtype, [&]<class T>(T) { return determinants<T>(request, true); });
}

KernelPtr solve(const Request& request) {
    if (!suits(request, 2)) return nullptr;
    return by_dtype(request.operands[0].dtype, [&]<class T>(T) { return solutions<T>(request); });
}

}  // namespace

void add_systems(Registry& registry) {
    registry["linalg_inv"] = solve;
    registry["linalg_solve"] = solve;
    registry["linalg_det"] = det;
    registry["linalg_slogdet"] = slogdet;
}

}  // namespace norch::linalg
