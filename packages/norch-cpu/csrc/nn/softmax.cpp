// softmax and log_softmax along a dim, and their gradients.
#include "nn/softmax.h"

#include <algorithm>

#include "elementwise/functions.h"
#include "nn/lines.h"

namespace norch::nn {
namespace {

// Not to be inlined: where out is x, GCC 12 would make the stores conditional and not vectorise.
template <class C>
__attribute__((noinline)) void exponentials_of(C* out, const C* x, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = math::exp(x[i]);
}

template <class C>
__attribute__((noinline)) void raised_exponentials(C* out, const C* x, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = math::exp_raised(x[i]);
}
template <class C>
constexpr C lowering = C(0x1p-64);

}  // namespace

void exponentials(float* out, const float* x, int64_t n) { exponentials_of(out, x, n); }
void exponentials(double* out, const double* x, int64_t n) { exponentials_of(out, x, n); }

namespace {

/// out[r] = x[r] - max(x[r])
template <class C>
void shift_rows(const LineBlock<C>& x, C* out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r, out += n) {
        const C* row = x.data + r * x.stride;
        const C largest = max_of(row, n);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = row[i] - largest;
    }
}

/// The largest of each of some columns.
template <class C>
void max_of_columns(const LineBlock<C>& x, int64_t n, int64_t width, C* largest) {
    std::copy(x.data, x.data + width, largest);
    for (int64_t k = 1; k < n; ++k) {
        const C* row = x.data + k * x.stride;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < width; ++j) largest[j] = row[j] > largest[j] ? row[j] : largest[j];
    }
}

// The exponentials of softmax and log_softmax are 2^64 times too large: none is subnormal, which would need care.

template <class C>
struct Softmax {
    static void rows(const LineBlock<C>* x, C* out, int64_t rows, int64_t n) {
        n < SHORT ? short_rows(*x, out, rows, n) : long_rows(*x, out, rows, n);
    }

    /// All rows share one loop.
    static void short_rows(const LineBlock<C>& x, C* out, int64_t rows, int64_t n) {
        shift_rows(x, out, rows, n);
        raised_exponentials(out, out, rows * n);
        for (int64_t r = 0; r < rows; ++r, out += n) {
            const C scale = C(1) / sum_of<C>(n, [=](int64_t i) { return out[i]; });
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] *= scale;
        }
    }

    /// While a row is scaled, the next one is fetched: its largest element is found.
    static void long_rows(const LineBlock<C>& x, C* out, int64_t rows, int64_t n) {
        const C* row = x.data;
        C largest = max_of(row, n);
        for (int64_t r = 0; r < rows; ++r, out += n) {
            const C sum = sum_of<C>(n, [=](int64_t i) { return out[i] = math::exp_raised(row[i] - largest); });
            const C scale = C(1) / sum;
            if (r + 1 < rows) row += x.stride;
            largest = reduce_in_lanes<Larger, 64>(row[0], n, [=](int64_t i) {
                out[i] *= scale;
                return row[i];
            });
        }
    }

    static void columns(const LineBlock<C>* x, C* out, int64_t stride, int64_t n, int64_t width) {
        C largest[COLUMNS], sum[COLUMNS] = {};
        max_of_columns(*x, n, width, largest);
        for (int64_t k = 0; k < n; ++k) {
            const C* row = x->data + k * x->stride;
            C* to = out + k * stride;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) {
                const C e = math::exp_raised(row[j] - largest[j]);
                to[j] = e;
                sum[j] += e;
            }
        }
        for (int64_t j = 0; j < width; ++j) sum[j] = C(1) / sum[j];
        for (int64_t k = 0; k < n; ++k) {
            C* to = out + k * stride;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) to[j] *= sum[j];
        }
    }
};

template <class C>
struct LogSoftmax {
    static void rows(const LineBlock<C>* x, C* out, int64_t rows, int64_t n) {
        if (n < SHORT) return short_rows(*x, out, rows, n);
        for (int64_t r = 0; r < rows; ++r, out += n) {
            const C* row = x->data + r * x->stride;
            const C largest = max_of(row, n);
            const C sum = sum_of<C>(n, [=](int64_t i) { return math::exp_raised(row[i] - largest); });
            const C log_sum = math::log(sum * lowering<C>);
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] = (row[i] - largest) - log_sum;
        }
    }

    /// At most SHORT_BLOCK elements.
    static void short_rows(const LineBlock<C>& x, C* out, int64_t rows, int64_t n) {
        C chances[SHORT_BLOCK], sums[SHORT_BLOCK];
        shift_rows(x, out, rows, n);
        raised_exponentials(chances, out, rows * n);
        for (int64_t r = 0; r < rows; ++r) sums[r] = sum_of<C>(n, [&](int64_t i) { return chances[r * n + i]; });
        NORCH_INDEPENDENT
        for (int64_t r = 0; r < rows; ++r) sums[r] = math::log(sums[r] * lowering<C>);
        for (int64_t r = 0; r < rows; ++r, out += n) {
            const C log_sum = sums[r];
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] -= log_sum;
        }
    }

    static void columns(const LineBlock<C>* x, C* out, int64_t stride, int64_t n, int64_t width) {
        C largest[COLUMNS], sum[COLUMNS] = {};
        max_of_columns(*x, n, width, largest);
        for (int64_t k = 0; k < n; ++k) {
            const C* row = x->data + k * x->stride;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) sum[j] += math::exp_raised(row[j] - largest[j]);
        }
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < width; ++j) sum[j] = math::log(sum[j] * lowering<C>);
        for (int64_t k = 0; k < n; ++k) {
            const C* row = x->data + k * x->stride;
            C* to = out + k * stride;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) to[j] = (row[j] - largest[j]) - sum[j];
        }
    }
};

// What an element adds to the sum of its line, and the gradient, of the gradient g of the result and the result y.
struct OfSoftmax {
    template <class C>
    static NORCH_INLINE C share(C g, C y) {
        return g * y;
    }
    template <class C>
    static NORCH_INLINE C gradient(C g, C y, C sum) {
        return (g - sum) * y;
    }
};
struct OfLogSoftmax {
    template <class C>
    static NORCH_INLINE C share(C g, C) {
        return g;
    }
    template <class C>
    static NORCH_INLINE C gradient(C g, C y, C sum) {
        return g - math::exp(y) * sum;
    }
};

template <class C, class F>
struct Gradient {
    static void rows(const LineBlock<C>* x, C* out, int64_t rows, int64_t n) {
        for (int64_t r = 0; r < rows; ++r, out += n) {
            const C *g = x[0].data + r * x[0].stride, *y = x[1].data + r * x[1].stride;
            const C sum = sum_of<C>(n, [=](int64_t i) { return F::share(g[i], y[i]); });
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] = F::gradient(g[i], y[i], sum);
        }
    }

    static void columns(const LineBlock<C>* x, C* out, int64_t stride, int64_t n, int64_t width) {
        C sum[COLUMNS] = {};
        for (int64_t k = 0; k < n; ++k) {
            const C *g = x[0].data + k * x[0].stride, *y = x[1].data + k * x[1].stride;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) sum[j] += F::share(g[j], y[j]);
        }
        for (int64_t k = 0; k < n; ++k, out += stride) {
            const C *g = x[0].data + k * x[0].stride, *y = x[1].data + k * x[1].stride;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < width; ++j) out[j] = F::gradient(g[j], y[j], sum[j]);
        }
    }
};
template <class C>
using SoftmaxGrad = Gradient<C, OfSoftmax>;
template <class C>
using LogSoftmaxGrad = Gradient<C, OfLogSoftmax>;

}  // namespace

[[gnu::cold]] KernelPtr log_softmax(const Request& request, int64_t dim) { return along_dim<LogSoftmax, 1>(request, dim, 0.7); }

void add_softmax(Registry& registry) {
    registry["softmax"] = [](const Request& r) { return along_dim<Softmax, 1>(r, r.attrs.integer("dim"), 0.7); };
    registry["log_softmax"] = [](const Request& r) { return log_softmax(r, r.attrs.integer("dim")); };
    registry["softmax_grad"] = [](const Request& r) { return along_dim<SoftmaxGrad, 2>(r, r.attrs.integer("dim"), 0.5); };
    registry["log_softmax_grad"] = [](const Request& r) {
        return along_dim<LogSoftmaxGrad, 2>(r, r.attrs.integer("dim"), 0.7);
    };
}

}  // namespace norch::nn
