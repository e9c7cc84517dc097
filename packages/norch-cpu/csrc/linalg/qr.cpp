// QR factors.
#include "linalg/householder.h"
#include "linalg/lanes.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

/// Column c of `x` (m, columns) less its part along the reflection's vector, column j of `v` (m, n) below its diagonal.
template <class V>
NORCH_INLINE void reflect(V* x, int64_t columns, int64_t c, const V* v, int64_t n, int64_t j, int64_t m, V tau) {
    V sum = x[j * columns + c];
    for (int64_t i = j + 1; i < m; ++i) sum += v[i * n + j] * x[i * columns + c];
    sum *= tau;
    x[j * columns + c] -= sum;
    for (int64_t i = j + 1; i < m; ++i) x[i * columns + c] -= v[i * n + j] * sum;
}

/// Operands: q, if it has columns; r (height, n); a (m, n).
[[gnu::cold]] KernelPtr qr_lanes(const Request& request, size_t input, int64_t m, int64_t n, int64_t columns, int64_t height) {
    const int64_t k = std::min(m, n);
    return lane_kernel(request, input, m * (n + columns), 50 + 3 * double(m * n * (k + columns)),
                       [=](char* const* data, int64_t batch, int64_t group, auto* x) {
        using V = std::remove_reference_t<decltype(*x)>;
        using T = lane_t<V>;
        using S = Lanes<T>;
        constexpr T LEAST = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();  // beside 1, squared
        V* const q = x + m * n;
        read_lanes(data[input], m * n, batch, group, x);
        typename S::I info;
        const V scale = scaled<T>(x, m * n, info) + (info != 0 ? V{} + std::numeric_limits<T>::quiet_NaN() : V{});
        V taus[MOST_LANE_ROWS];
        for (int64_t j = 0; j < k; ++j) {
            const V alpha = x[j * n + j];
            V squares{};
            for (int64_t i = j + 1; i < m; ++i) squares += x[i * n + j] * x[i * n + j];
            const auto turns = squares > LEAST;
            const V size = S::root(squares + alpha * alpha), beta = alpha < T(0) ? size : -size;
            const V divisor = turns ? alpha - beta : V{} + T(1);
            taus[j] = turns ? (beta - alpha) / beta : V{};
            for (int64_t i = j + 1; i < m; ++i) x[i * n + j] = turns ? x[i * n + j] / divisor : V{};
            x[j * n + j] = turns ? beta : alpha;
            for (int64_t c = j + 1; c < n; ++c) reflect(x, n, c, x, n, j, m, taus[j]);
        }
        // NaN where a number was not finite.
        for (int64_t i = 0; i < m * columns; ++i) q[i] = (scale - scale) + T(i / columns == i % columns);
        for (int64_t j = k - 1; j >= 0 && columns; --j)
            for (int64_t c = j; c < columns; ++c) reflect(q, columns, c, x, n, j, m, taus[j]);
        if (columns) write_lanes(data[0], m * columns, batch, group, q);
        for (int64_t i = 0; i < height; ++i)
            for (int64_t c = 0; c < n; ++c) x[i * n + c] = c < i ? V{} : x[i * n + c] * scale;
        write_lanes(data[input - 1], height * n, batch, group, x);
    });
}

/// Q is null where only R is wanted.
[[gnu::cold]] KernelPtr qr_kernel(const Request& request, const Operand* q, const Operand& r, const Operand& a) {
    const size_t input = q ? 2 : 1;
    if (!suits(request, input)) return nullptr;
    const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back(), k = std::min(m, n);
    const int64_t columns = q ? q->shape.back() : 0, height = r.shape[r.shape.size() - 2];
    Matrices shape = matrices_of(a);
    shape.rows = std::max(m, n);
    if (suits_lanes(a.dtype, shape)) return qr_lanes(request, input, m, n, columns, height);
    const int64_t row = padded(n, a.dtype), q_row = padded(columns, a.dtype);
    const Operand given = matrix_of(a), found = matrix_of(r), of_q = q ? matrix_of(*q) : given;
    const double ns = 200 + double(size_of(a.dtype)) / 100 * double(m * (n + columns)) * double(k);
    return matrix_kernel(request, m * (row + q_row), ns,
                         [=, copy = copy_kernel(in_rows(given, row), given),
                          copy_r = copy_kernel(found, in_rows(found, row)),
                          copy_q = copy_kernel(of_q, in_rows(of_q, q_row))]<class T>(char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[input]);
        Reflections<T> reflections(x, row, m, n, columns);
        if (columns) {
            T* const to = x + m * row;
            for (int64_t i = 0; i < columns; ++i) to[i * q_row + i] = T(1);
            reflections.apply_to(to, q_row, columns, true);
            run_copy(*copy_q, data[0], reinterpret_cast<char*>(to));
        }
        for (int64_t i = 1; i < height; ++i) std::fill(x + i * row, x + i * row + std::min(i, n), T(0));
        run_copy(*copy_r, data[input - 1], reinterpret_cast<char*>(x));
    });
}

[[gnu::cold]] KernelPtr qr(const Request& request) {
    return qr_kernel(request, &request.operands[0], request.operands[1], request.operands[2]);
}
[[gnu::cold]] KernelPtr qr_r(const Request& request) {
    return qr_kernel(request, nullptr, request.operands[0], request.operands[1]);
}

}  // namespace

void add_qr(Registry& registry) {
    registry["linalg_qr"] = qr;
    registry["linalg_qr_r"] = qr_r;
}

}  // namespace norch::linalg
