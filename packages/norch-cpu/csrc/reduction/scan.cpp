// cumsum. Partial sums of short pieces come first, so that the chain of additions is an eighth as long; float32 is
// added up in float64.
#include <algorithm>

#include "reduction/reduction.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

constexpr int64_t COLUMNS = 512;  // columns that are added up at a time

template <class T, class Op>
struct Scan {
    using A = compute_t<T>;
    using Upcast = typename Op::template upcast<A>;

    static Upcast at(const char* x) { return Upcast(A(load(*reinterpret_cast<const T*>(x)))); }
    static void put(char* out, Upcast value) { *reinterpret_cast<T*>(out) = store<T>(A(value)); }

    static void row(char* out, const char* x, int64_t out_stride, int64_t x_stride, int64_t n) {
        constexpr int64_t size = sizeof(T);
        if (out_stride == size && x_stride == size) elements(out, x, size, size, n);
        else elements(out, x, out_stride, x_stride, n);
    }

    static NORCH_INLINE void elements(char* out, const char* x, int64_t out_stride, int64_t x_stride, int64_t n) {
        Upcast total = Op::template identity<Upcast>;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            Upcast sums[8];
            sums[0] = at(x + i * x_stride);
            for (int k = 1; k < 8; ++k) sums[k] = Op::apply(sums[k - 1], at(x + (i + k) * x_stride));
            for (int k = 0; k < 8; ++k) put(out + (i + k) * out_stride, Op::apply(total, sums[k]));
            total = Op::apply(total, sums[7]);
        }
        for (; i < n; ++i) {
            total = Op::apply(total, at(x + i * x_stride));
            put(out + i * out_stride, total);
        }
    }

    /// n columns of `rows` rows.
    static void columns(char* out, const char* x, const ReductionPlan& plan, int64_t rows, int64_t out_row,
                        int64_t x_row, int64_t n) {
        Upcast total[COLUMNS];
        for (int64_t j = 0; j < n; ++j) total[j] = Op::template identity<Upcast>;
        bool contiguous = plan.x_stride == int64_t(sizeof(T)) && plan.out_stride == int64_t(sizeof(T));
        for (int64_t i = 0; i < rows; ++i, out += out_row, x += x_row) {
            if (contiguous) {
                const T* from = reinterpret_cast<const T*>(x);
                T* to = reinterpret_cast<T*>(out);
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < n; ++j) {
                    total[j] = Op::apply(total[j], Upcast(A(load(from[j]))));
                    to[j] = store<T>(A(total[j]));
                }
            } else {
                for (int64_t j = 0; j < n; ++j) {
                    total[j] = Op::apply(total[j], at(x + j * plan.x_stride));
                    put(out + j * plan.out_stride, total[j]);
                }
            }
        }
    }
};

/// The loops of a dtype, for the driver below.
struct ScanLoops {
    void (*row)(char* out, const char* x, int64_t out_stride, int64_t x_stride, int64_t n);
    void (*columns)(char* out, const char* x, const ReductionPlan& plan, int64_t rows, int64_t out_row, int64_t x_row,
                    int64_t n);
};

KernelPtr make_scan(const ReductionPlan& plan, const ScanLoops& loops, int64_t x_row, int64_t out_row) {
    int64_t rows = plan.inputs;
    double ns = 0.5 * double(rows);
    if (!plan.columns)
        return make_kernel(2 * ns * double(plan.outputs), [=](char* const* data, const Scalar*) {
            parallel_for(plan.outputs, 2 * ns, [&](int64_t begin, int64_t end) {
                Odometer at(plan.kept, begin);
                for (int64_t i = begin; i < end; ++i, at.next())
                    loops.row(data[0] + at.out, data[1] + at.x, out_row, x_row, rows);
            });
        });
    int64_t width = std::min(COLUMNS, plan.n), blocks = (plan.n + width - 1) / width;
    return make_kernel(ns * double(plan.outputs), [=](char* const* data, const Scalar*) {
        parallel_for(plan.kept_count * blocks, ns * double(width), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                Odometer at(plan.kept, i / blocks);
                int64_t start = i % blocks * width;
                loops.columns(data[0] + at.out + start * plan.out_stride, data[1] + at.x + start * plan.x_stride, plan,
                              rows, out_row, x_row, std::min(width, plan.n - start));
            }
        });
    });
}

KernelPtr cumsum(const Request& request) {
    Operand out = request.operands[0], x = request.operands[1];
    if (x.shape.empty()) {  // a 0-d operand has dim 0
        out.shape = x.shape = {1};
        out.strides = x.strides = {1};
    }
    int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= x.ndim()) throw std::invalid_argument("cumsum along a dim that is not there");
    ReductionPlan plan = plan_reduction(out, x, {dim});
    if (plan.is_empty()) return make_kernel(0, [](char* const*, const Scalar*) {});
    int64_t size = size_of(x.dtype), x_row = x.strides[size_t(dim)] * size, out_row = out.strides[size_t(dim)] * size;
    const ScanLoops loops = visit(x.dtype, []<class T>(Tag<T>) {
        using S = std::conditional_t<std::is_same_v<T, bool>, Scan<uint8_t, Or>, Scan<T, Sum>>;
        return ScanLoops{S::row, S::columns};
    });
    return make_scan(plan, loops, x_row, out_row);
}

}  // namespace

void add_scans(Registry& registry) { registry["cumsum"] = cumsum; }

}  // namespace norch::reduction
