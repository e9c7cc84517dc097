// QR factors.
#include "linalg/householder.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

/// Q is null where only R is wanted.
KernelPtr qr_kernel(const Request& request, const Operand* q, const Operand& r, const Operand& a) {
    const size_t input = q ? 2 : 1;
    if (!suits(request, input)) return nullptr;
    const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back(), k = std::min(m, n);
    const int64_t columns = q ? q->shape.back() : 0, height = r.shape[r.shape.size() - 2];
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

KernelPtr qr(const Request& request) {
    return qr_kernel(request, &request.operands[0], request.operands[1], request.operands[2]);
}
KernelPtr qr_r(const Request& request) {
    return qr_kernel(request, nullptr, request.operands[0], request.operands[1]);
}

}  // namespace

void add_qr(Registry& registry) {
    registry["linalg_qr"] = qr;
    registry["linalg_qr_r"] = qr_r;
}

}  // namespace norch::linalg
