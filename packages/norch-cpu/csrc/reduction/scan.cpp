// cumsum, cumprod, cummax, cummin, logcumsumexp: loops over float64, float32 and int64 alone, to and from which other dtypes are
// converted block by block. float32 is added up and multiplied in float64.
#include <algorithm>

#include "common/layout.h"
#include "common/staging.h"
#include "elementwise/functions.h"
#include "reduction/elements.h"
#include "reduction/log_sums.h"
#include "reduction/reduction.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

constexpr int64_t AT_ONCE = 512;  // columns, or elements of a row that are converted

/// From one element to the next, or from one column to the next, in bytes.
struct Steps {
    int64_t out, indices, x;
};

struct Place {
    char *out, *indices;
    const char* x;
    Place moved(const Steps& steps, int64_t times) const {
        return {out + times * steps.out, indices + times * steps.indices, x + times * steps.x};
    }
};

/// Calls f with `steps`, which the compiler knows where elements of type S lie side by side.
template <class S, class F>
NORCH_INLINE void with_steps(const Steps& steps, const F& f) {
    constexpr Steps dense{sizeof(S), sizeof(int64_t), sizeof(S)};
    const bool has_no_gaps = steps.out == dense.out && steps.x == dense.x;
    if (has_no_gaps && (steps.indices == dense.indices || !steps.indices)) f(dense);
    else f(steps);
}

template <class T>
NORCH_INLINE T& at(char* p) { return *reinterpret_cast<T*>(p); }
template <class T>
NORCH_INLINE T at(const char* p) { return *reinterpret_cast<const T*>(p); }

/// Running sums or products. A scan knows what came before in one row, or in AT_ONCE columns.
template <class S, class Op>
struct RunningTotal {
    using Total = sum_t<S>;
    Total before[AT_ONCE];

    static void start(void* scan, int64_t columns) {
        std::fill_n(static_cast<RunningTotal*>(scan)->before, columns, Op::template identity<Total>);
    }

    /// The totals of short pieces come first, so that the chain of operations is an eighth as long.
    static void rows(void* scan, Place place, const Steps& along, int64_t, int64_t n, const Steps& between, int64_t count) {
        with_steps<S>(along, [&](const Steps& step) NORCH_INLINE_LAMBDA {
            for (int64_t r = 0; r < count; ++r, place = place.moved(between, 1)) {
                const char* const first = place.x;
                char* const to = place.out;
                const auto x = [=](int64_t i) NORCH_INLINE_LAMBDA { return Total(at<S>(first + i * step.x)); };
                const auto out = [=](int64_t i) NORCH_INLINE_LAMBDA -> S& { return at<S>(to + i * step.out); };
                Total total = scan ? static_cast<RunningTotal*>(scan)->before[0] : Op::template identity<Total>;
                int64_t i = 0;
                for (; i + 8 <= n; i += 8) {
                    Total piece[8];
                    piece[0] = x(i);
                    for (int k = 1; k < 8; ++k) piece[k] = Op::apply(piece[k - 1], x(i + k));
                    for (int k = 0; k < 8; ++k) out(i + k) = S(Op::apply(total, piece[k]));
                    total = Op::apply(total, piece[7]);
                }
                for (; i < n; ++i) {
                    total = Op::apply(total, x(i));
                    out(i) = S(total);
                }
                if (scan) static_cast<RunningTotal*>(scan)->before[0] = total;
            }
        });
    }

    static void columns(void* scan, Place place, const Steps& across, const Steps& along, int64_t, int64_t rows, int64_t n) {
        Total* total = static_cast<RunningTotal*>(scan)->before;
        with_steps<S>(across, [&](const Steps& step) NORCH_INLINE_LAMBDA {
            for (int64_t i = 0; i < rows; ++i, place = place.moved(along, 1)) {
                char* const out = place.out;
                const char* const x = place.x;
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < n; ++j) {
                    total[j] = Op::apply(total[j], Total(at<S>(x + j * step.x)));
                    at<S>(out + j * step.out) = S(total[j]);
                }
            }
        });
    }
};

/// The largest or smallest so far, and the index of the last that is: NaN wins.
template <class S, class Op>
struct RunningExtreme {
    S best[AT_ONCE];
    int64_t index[AT_ONCE];

    static NORCH_INLINE bool wins(S later, S earlier) {
        const bool is_extreme = std::is_same_v<Op, Largest> ? later >= earlier : later <= earlier;
        return is_extreme | (later != later);
    }

    static void start(void* scan, int64_t columns) {
        std::fill_n(static_cast<RunningExtreme*>(scan)->best, columns, Op::template identity<S>);
    }

    static void rows(void* scan, Place place, const Steps& along, int64_t first, int64_t n, const Steps& between, int64_t count) {
        auto* const before = static_cast<RunningExtreme*>(scan);
        with_steps<S>(along, [&](const Steps& step) NORCH_INLINE_LAMBDA {
            for (int64_t r = 0; r < count; ++r, place = place.moved(between, 1)) {
                S best = scan ? before->best[0] : Op::template identity<S>;
                int64_t index = scan ? before->index[0] : 0;
                for (int64_t i = 0; i < n; ++i) {
                    const S x = at<S>(place.x + i * step.x);
                    const bool is_better = wins(x, best);
                    best = is_better ? x : best;
                    index = is_better ? first + i : index;
                    at<S>(place.out + i * step.out) = best;
                    at<int64_t>(place.indices + i * step.indices) = index;
                }
                if (scan) before->best[0] = best, before->index[0] = index;
            }
        });
    }

    static void columns(void* scan, Place place, const Steps& across, const Steps& along, int64_t first, int64_t rows,
                        int64_t n) {
        S* best = static_cast<RunningExtreme*>(scan)->best;
        int64_t* index = static_cast<RunningExtreme*>(scan)->index;
        with_steps<S>(across, [&](const Steps& step) NORCH_INLINE_LAMBDA {
            for (int64_t i = first; i < first + rows; ++i, place = place.moved(along, 1)) {
                const Place here = place;
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < n; ++j) {
                    const S x = at<S>(here.x + j * step.x);
                    const bool is_better = wins(x, best[j]);
                    at<S>(here.out + j * step.out) = best[j] = is_better ? x : best[j];
                    at<int64_t>(here.indices + j * step.indices) = index[j] = is_better ? i : index[j];
                }
            }
        });
    }
};

/// The logarithm of the running sum of exponentials: of the largest so far, and of the sum of all over its exponential.
template <class S>
struct RunningLogSum {
    double most[AT_ONCE], sum[AT_ONCE];

    static void start(void* scan, int64_t columns) {
        std::fill_n(static_cast<RunningLogSum*>(scan)->most, columns, -math::infinity<double>);
        std::fill_n(static_cast<RunningLogSum*>(scan)->sum, columns, 0.0);
    }

    static void rows(void* scan, Place place, const Steps& along, int64_t, int64_t n, const Steps& between, int64_t count) {
        constexpr int64_t PIECE = 64;
        constexpr double RANGE = std::is_same_v<S, float> ? 500 : 20;  // which leaves none too small to count
        auto* const before = static_cast<RunningLogSum*>(scan);
        double x[PIECE];
        for (int64_t r = 0; r < count; ++r, place = place.moved(between, 1)) {
            double most = scan ? before->most[0] : -math::infinity<double>, sum = scan ? before->sum[0] : 0.0;
            for (int64_t i = 0; i < n; i += PIECE) {
                const int64_t size = std::min(PIECE, n - i);
                load(place.moved(along, i), along, size, x);
                log_sums_along(x, size, RANGE, most, sum);
                store(place.moved(along, i), along, size, x);
            }
            if (scan) before->most[0] = most, before->sum[0] = sum;
        }
    }

    static void columns(void* scan, Place place, const Steps& across, const Steps& along, int64_t, int64_t rows, int64_t n) {
        auto& sums = *static_cast<RunningLogSum*>(scan);
        double x[AT_ONCE];
        for (int64_t i = 0; i < rows; ++i, place = place.moved(along, 1)) {
            load(place, across, n, x);
            log_sums_across(x, n, sums.most, sums.sum);
            store(place, across, n, x);
        }
    }

private:
    static void load(const Place& place, const Steps& steps, int64_t n, double* to) {
        with_steps<S>(steps, [&](const Steps& step) NORCH_INLINE_LAMBDA {
            for (int64_t k = 0; k < n; ++k) to[k] = double(at<S>(place.x + k * step.x));
        });
    }
    static void store(const Place& place, const Steps& steps, int64_t n, const double* from) {
        with_steps<S>(steps, [&](const Steps& step) NORCH_INLINE_LAMBDA {
            for (int64_t k = 0; k < n; ++k) at<S>(place.out + k * step.out) = S(from[k]);
        });
    }
};

/// The loops over one type. A scan is as large as any of them; `first` counts along the dim. `rows` are whole where there is no
/// scan, each `between` further than the last.
struct ScanLoops {
    int64_t size;  // of the type
    void (*start)(void* scan, int64_t columns);
    void (*rows)(void* scan, Place place, const Steps& along, int64_t first, int64_t n, const Steps& between, int64_t count);
    void (*columns)(void* scan, Place place, const Steps& across, const Steps& along, int64_t first, int64_t rows, int64_t n);
};
using AnyScan = RunningExtreme<double, Largest>;
static_assert(sizeof(RunningLogSum<double>) <= sizeof(AnyScan));

template <class S, class Scan>
constexpr ScanLoops loops_of = {sizeof(S), Scan::start, Scan::rows, Scan::columns};

/// One result, or with indices two.
class ScanKernel final : public Kernel {
public:
    /// ns: what an element of a row takes.
    ScanKernel(const Request& request, const ScanLoops& loops, const Elements& elements, double ns = 1)
        : has_indices_(request.operands.size() == 3), loops_(loops), elements_(elements) {
        std::vector<Operand> operands = request.operands;
        if (operands[0].shape.empty())  // a 0-d operand has dim 0
            for (Operand& operand : operands) operand.shape = operand.strides = {1};
        const int64_t dim = request.attrs.integer("dim");
        if (dim < 0 || dim >= operands[0].ndim())
            throw std::invalid_argument(request.op + " along a dim that is not there");
        if (has_indices_ && operands[1].dtype != DType::i64) throw std::invalid_argument(request.op + " gives int64 indices");
        lines_ = collapse(operands, dims_but(operands[0].ndim(), dim));
        size_ = operands[0].shape[size_t(dim)];
        const auto bytes = [&](size_t i) { return operands[i].strides[size_t(dim)] * size_of(operands[i].dtype); };
        const size_t x = operands.size() - 1;
        along_ = {bytes(0), has_indices_ ? bytes(1) : 0, bytes(x)};
        outer_ = lines_.ndim();
        if (outer_) {
            last_ = lines_.shape.back();
            between_ = {lines_.strides[0].back(), has_indices_ ? lines_.strides[1].back() : 0, lines_.strides[x].back()};
        }
        if (outer_ && lines_.strides[x].back() && lines_.strides[x].back() < along_.x) {
            --outer_;
            columns_ = last_;
            across_ = between_;
        }
        tasks_ = size_ && lines_.numel ? lines_.numel / columns_ * blocks() : 0;
        ns_ = double(size_) * (columns_ > 1 ? 0.5 * ns * double(std::min(columns_, AT_ONCE)) + 5 : ns);
        work = ns_ * double(tasks_);
    }

    void run(char* const* data, const Scalar*) const override {
        parallel_for(tasks_, ns_, [&](int64_t begin, int64_t end) {
            const bool are_rows = columns_ == 1 && elements_.is_seen;
            for (int64_t i = begin, count = 1; i < end; i += count) {
                const int64_t start = i % blocks() * AT_ONCE;
                char* at[3] = {};
                std::copy_n(data, lines_.strides.size(), at);
                lines_.move(at, outer_, i / blocks());
                const Place place = {at[0], at[1], at[has_indices_ ? 2 : 1]};
                if (are_rows) {
                    count = std::min(end - i, last_ - i % last_);
                    loops_.rows(nullptr, place, along_, 0, size_, between_, count);
                } else {
                    run_task(place.moved(across_, start), std::min(AT_ONCE, columns_ - start));
                }
            }
        });
    }

private:
    int64_t blocks() const { return (columns_ + AT_ONCE - 1) / AT_ONCE; }

    void run_task(const Place& place, int64_t columns) const {
        AnyScan scan;
        loops_.start(&scan, columns);
        if (!elements_.is_seen) convert(scan, place, columns);
        else loops_.columns(&scan, place, across_, along_, 0, size_, columns);
    }

    /// The loops run on copies in their own type, of a part of a row or of a row of columns.
    void convert(AnyScan& scan, const Place& place, int64_t columns) const {
        alignas(64) char x[AT_ONCE * sizeof(double)], out[AT_ONCE * sizeof(double)];
        const bool by_rows = columns_ == 1;
        const Steps &from = by_rows ? along_ : across_, dense{loops_.size, from.indices, loops_.size};
        for (int64_t i = 0; i < size_; i += by_rows ? AT_ONCE : 1) {
            const Place here = place.moved(along_, i), copy{out, here.indices, x};
            const int64_t n = by_rows ? std::min(AT_ONCE, size_ - i) : columns;
            elements_.load(x, here.x, from.x, n);
            if (by_rows) loops_.rows(&scan, copy, dense, i, n, {}, 1);
            else loops_.columns(&scan, copy, dense, along_, i, 1, n);
            elements_.store(here.out, from.out, out, n);
        }
    }

    bool has_indices_;
    ScanLoops loops_;
    Elements elements_;
    Loops lines_;
    Steps along_{}, across_{}, between_{};  // the dim; from one column to the next; from one line to the next
    int outer_;                 // dims of `lines_` around the columns
    int64_t size_, columns_ = 1, last_ = 1, tasks_;  // last_: lines of the last of their dims
    double ns_;  // a task's
};

/// A scan of what is converted or moved first where that takes less than to do so line by line: of short lines of 16-bit
/// floats, and of an input whose rows are columns in memory.
[[gnu::cold]] KernelPtr staged(const Request& given, KernelPtr (*make)(const Request&)) {
    constexpr int64_t SHORT = 32;
    const Operand &out = given.operands[0], &x = given.operands.back();
    const size_t dim = size_t(given.attrs.integer("dim")), count = given.operands.size();
    if (dim >= out.shape.size() || !out.is_contiguous() || x.dtype != out.dtype) return make(given);
    const int64_t n = out.shape[dim], inner = out.strides[dim];
    const bool is_converted = is_half(x.dtype) && std::min(n, inner > 1 ? inner : n) < SHORT;
    const bool is_moved = inner == 1 && x.strides[dim] != 1 && n >= SHORT;
    if (!is_converted && !is_moved) return make(given);
    Request seen = given;
    const DType dtype = computed_dtype(x.dtype);
    for (const size_t i : {size_t(0), count - 1}) seen.operands[i] = contiguous(given.operands[i], dtype);
    std::vector<DType> wanted;
    for (const Operand& o : seen.operands) wanted.push_back(o.dtype);
    return Staged::make(given, int(count) - 1, wanted, make(seen));
}

template <template <class, class> class Scan, class Op>
[[gnu::cold]] KernelPtr scan(const Request& request) {
    return staged(request, [](const Request& seen) -> KernelPtr {
        return visit(seen.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
            using A = compute_t<T>;
            using S = std::conditional_t<std::is_integral_v<A>, int64_t, A>;
            return std::make_unique<ScanKernel>(seen, loops_of<S, Scan<S, Op>>, ElementsOf<T, S>::all);
        });
    });
}

[[gnu::cold]] KernelPtr logcumsumexp(const Request& request) {
    if (!is_floating(request.operands[0].dtype)) return nullptr;
    return visit_floating(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        using S = compute_t<T>;
        return std::make_unique<ScanKernel>(request, loops_of<S, RunningLogSum<S>>, ElementsOf<T, S>::all, 8);
    });
}

}  // namespace

void add_scans(Registry& registry) {
    registry["cumsum"] = scan<RunningTotal, Sum>;
    registry["cumprod"] = scan<RunningTotal, Prod>;
    registry["cummax"] = scan<RunningExtreme, Largest>;
    registry["cummin"] = scan<RunningExtreme, Smallest>;
    registry["logcumsumexp"] = logcumsumexp;
}

}  // namespace norch::reduction
