// coo_matmul: a sparse matrix, whose elements are listed with their rows and columns, times a dense one.
#include <algorithm>
#include <cstring>

#include "common/staging.h"
#include "indexing/bounds.h"
#include "indexing/row_sums.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::indexing {
namespace {

/// Rows of a result that a thread makes. Each is the sum of its elements in the order that they are listed in.
template <class T>
struct Product {
    const T *values, *dense;
    const int64_t *rows, *columns;
    int64_t count, features;
    T* out;

    /// Where the elements of a row lie side by side: each row is written once.
    void in_order(int64_t begin, int64_t end) const {
        const int64_t* const behind = rows + count;
        for (const int64_t* at = std::lower_bound(rows, behind, begin); begin < end; ++begin) {
            const int64_t* const first = at;
            while (at != behind && *at == begin) ++at;
            const int64_t k = first - rows;
            if (features == 1) {
                out[begin] = dot(k, at - rows);
                continue;
            }
            sum_rows<true>(dense, Bag<T>{columns + k, at - first, count - k, -1, values + k}, features, out + begin * features);
        }
    }
    /// Of a vector: several sums, so that none waits for the one before.
    T dot(int64_t first, int64_t last) const {
        T sums[4] = {};
        for (; first + 4 <= last; first += 4) {
            NORCH_UNROLL
            for (int64_t j = 0; j < 4; ++j) sums[j] += values[first + j] * dense[columns[first + j]];
        }
        for (; first < last; ++first) sums[0] += values[first] * dense[columns[first]];
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
    void in_any_order(int64_t begin, int64_t end) const {
        std::memset(out + begin * features, 0, size_t((end - begin) * features) * sizeof(T));
        for (int64_t k = 0; k < count; ++k) {
            if (rows[k] < begin || rows[k] >= end) continue;
            const T factor = values[k], *const from = dense + columns[k] * features;
            T* const to = out + rows[k] * features;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < features; ++j) to[j] += factor * from[j];
        }
    }
};

template <class T>
[[gnu::cold]] KernelPtr make(const Request& request) {
    const Operand &out = request.operands[0], &dense = request.operands[2];
    const int64_t size = out.shape[0], features = out.numel() / size, count = request.operands[1].numel();
    const Bounds rows(contiguous(request.operands[3]), 0, size),  // as staged
        columns(contiguous(request.operands[4]), 0, dense.shape[0]);
    const bool known = request.attrs.flag("in_order");  // then rows are only compared
    const double ns = double(size_of(out.dtype)) * double(features) * 0.02 * (1 + double(count) / double(size)) + 4;
    KernelPtr body = make_kernel(double(size) * ns + 2 * rows.work(), [=](char* const* data, const Scalar*) {
        if (!known) rows.check(data[3]);
        columns.check(data[4]);
        const Product<T> product{reinterpret_cast<const T*>(data[1]),       reinterpret_cast<const T*>(data[2]),
                                 reinterpret_cast<const int64_t*>(data[3]), reinterpret_cast<const int64_t*>(data[4]),
                                 count,                                     features,
                                 reinterpret_cast<T*>(data[0])};
        const bool in_order = known || std::is_sorted(product.rows, product.rows + count);
        parallel_for(size, ns, [&](int64_t begin, int64_t end) {
            if (in_order) product.in_order(begin, end);
            else product.in_any_order(begin, end);
        });
    });
    return Staged::make(request, 1, {out.dtype, out.dtype, out.dtype, DType::i64, DType::i64}, std::move(body));
}

[[gnu::cold]] KernelPtr coo_matmul(const Request& request) {
    const Operand &out = request.operands[0], &values = request.operands[1], &dense = request.operands[2];
    if (values.dtype != out.dtype || dense.dtype != out.dtype || !out.numel() || !dense.numel()) return nullptr;
    for (size_t i : {3, 4})
        if (request.operands[i].dtype != DType::i64) return nullptr;
    if (out.dtype == DType::f32) return make<float>(request);
    return out.dtype == DType::f64 ? make<double>(request) : nullptr;
}

}  // namespace

void add_sparse_products(Registry& registry) { registry["coo_matmul"] = coo_matmul; }

}  // namespace norch::indexing
