// LU factors as such, and the order of rows that their pivots stand for.
#include "common/staging.h"
#include "linalg/one_by_one.h"

namespace norch::linalg {
namespace {

[[gnu::cold]] KernelPtr lu_factor(const Request& request) {
    if (!suits(request, 3)) return nullptr;
    const Operand &out = request.operands[0], &a = request.operands[3];
    const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back();
    const int64_t row = padded(n, a.dtype);
    const Operand given = matrix_of(a), found = matrix_of(out), in_room = in_rows(given, row);
    const double ns = 50 + double(size_of(a.dtype)) / 300 * double(m * n) * double(std::min(m, n));
    return matrix_kernel(request, m * row, ns,
                         [=, copy = copy_kernel(in_room, given),
                          copy_out = copy_kernel(found, in_room)]<class T>(char* const* data, T* x) {
        run_copy(*copy, reinterpret_cast<char*>(x), data[3]);
        *reinterpret_cast<int32_t*>(data[2]) = factorise(x, row, m, n, reinterpret_cast<int32_t*>(data[1]));
        run_copy(*copy_out, data[0], reinterpret_cast<char*>(x));
    });
}

[[gnu::cold]] KernelPtr permutation(const Request& request) {
    const Operand &order = request.operands[0], &pivots = request.operands[1];
    if (order.dtype != DType::i64 || pivots.dtype != DType::i32 || order.numel() == 0 || !order.is_contiguous())
        return nullptr;
    const int64_t rows = order.shape.back(), count = pivots.shape.back(), batch = order.numel() / rows;
    KernelPtr exchange = make_kernel(double(order.numel()), [=](char* const* data, const Scalar*) {
        auto* at = reinterpret_cast<int64_t*>(data[0]);
        const auto* with = reinterpret_cast<const int32_t*>(data[1]);
        for (int64_t i = 0; i < batch; ++i, at += rows, with += count) {
            for (int64_t j = 0; j < rows; ++j) at[j] = j;
            for (int64_t j = 0; j < count; ++j) {
                if (with[j] < 1 || with[j] > rows) throw IndexOutOfBounds(with[j] - 1, rows);
                std::swap(at[j], at[with[j] - 1]);
            }
        }
    });
    return Staged::make(request, 1, {DType::i64, DType::i32}, std::move(exchange));
}

}  // namespace

void add_factors(Registry& registry) {
    registry["linalg_lu_factor"] = lu_factor;
    registry["linalg_permutation"] = permutation;
}

}  // namespace norch::linalg
