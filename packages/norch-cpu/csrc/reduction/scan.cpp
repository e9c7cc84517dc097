// cumsum, cumprod, cummax, cummin: loops over float64, float32 and int64 alone, to and from which other dtypes are
// converted block by block. float32 is added up and multiplied in float64.
#include <algorithm>

#include "common/layout.h"
#include "reduction/elements.h"
#include "reduction/reduction.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

constexpr int64_t AT_ONCE = 256;  // elements of a row, or columns

/// Running sums or products. A scan knows what came before in one row, or in AT_ONCE columns.
template <class S, class Op>
struct RunningTotal {
    using Total = sum_t<S>;
    Total before[AT_ONCE];

    static void start(void* scan, int64_t columns) {
        std::fill_n(static_cast<RunningTotal*>(scan)->before, columns, Op::template identity<Total>);
    }

    /// The totals of short pieces come first, so that the chain of operations is an eighth as long.
    static void row(void* scan, void* to, int64_t*, const void* from, int64_t, int64_t n) {
        const S* x = static_cast<const S*>(from);
        S* out = static_cast<S*>(to);
        Total total = static_cast<RunningTotal*>(scan)->before[0];
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            Total piece[8];
            piece[0] = x[i];
            for (int k = 1; k < 8; ++k) piece[k] = Op::apply(piece[k - 1], Total(x[i + k]));
            for (int k = 0; k < 8; ++k) out[i + k] = S(Op::apply(total, piece[k]));
            total = Op::apply(total, piece[7]);
        }
        for (; i < n; ++i) {
            total = Op::apply(total, Total(x[i]));
            out[i] = S(total);
        }
        static_cast<RunningTotal*>(scan)->before[0] = total;
    }

    static void columns(void* scan, void* to, int64_t*, const void* from, int64_t, int64_t n) {
        const S* x = static_cast<const S*>(from);
        S* out = static_cast<S*>(to);
        Total* total = static_cast<RunningTotal*>(scan)->before;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) {
            total[j] = Op::apply(total[j], Total(x[j]));
            out[j] = S(total[j]);
        }
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

    static void row(void* scan, void* to, int64_t* indices, const void* from, int64_t first, int64_t n) {
        const S* x = static_cast<const S*>(from);
        S* out = static_cast<S*>(to);
        S best = static_cast<RunningExtreme*>(scan)->best[0];
        int64_t index = static_cast<RunningExtreme*>(scan)->index[0];
        for (int64_t i = 0; i < n; ++i) {
            const bool is_better = wins(x[i], best);
            best = is_better ? x[i] : best;
            index = is_better ? first + i : index;
            out[i] = best;
            indices[i] = index;
        }
        static_cast<RunningExtreme*>(scan)->best[0] = best;
        static_cast<RunningExtreme*>(scan)->index[0] = index;
    }

    static void columns(void* scan, void* to, int64_t* indices, const void* from, int64_t i, int64_t n) {
        const S* x = static_cast<const S*>(from);
        S* out = static_cast<S*>(to);
        S* best = static_cast<RunningExtreme*>(scan)->best;
        int64_t* index = static_cast<RunningExtreme*>(scan)->index;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) {
            const bool is_better = wins(x[j], best[j]);
            out[j] = best[j] = is_better ? x[j] : best[j];
            indices[j] = index[j] = is_better ? i : index[j];
        }
    }
};

/// The loops over one type. A scan is as large as any of them; `first` and `i` count along the dim.
struct ScanLoops {
    void (*start)(void* scan, int64_t columns);
    void (*row)(void* scan, void* out, int64_t* indices, const void* x, int64_t first, int64_t n);
    void (*columns)(void* scan, void* out, int64_t* indices, const void* x, int64_t i, int64_t n);
};
using AnyScan = RunningExtreme<double, Largest>;

template <class Scan>
constexpr ScanLoops loops_of = {Scan::start, Scan::row, Scan::columns};

/// One result, or with indices two.
class ScanKernel final : public Kernel {
public:
    ScanKernel(const Request& request, const ScanLoops& loops, const Elements& elements)
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
        if (outer_ && lines_.strides[0].back() < along_.out) {
            --outer_;
            columns_ = lines_.shape.back();
            across_ = {lines_.strides[0].back(), has_indices_ ? lines_.strides[1].back() : 0, lines_.strides[x].back()};
        }
        tasks_ = size_ && lines_.numel ? lines_.numel / columns_ * blocks() : 0;
        ns_ = double(size_) * (columns_ > 1 ? 0.5 * double(std::min(columns_, AT_ONCE)) + 5 : 1);
        work = ns_ * double(tasks_);
    }

    void run(char* const* data, const Scalar*) const override {
        parallel_for(tasks_, ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t start = i % blocks() * AT_ONCE;
                char* at[3];
                std::copy_n(data, lines_.strides.size(), at);
                lines_.move(at, outer_, i / blocks());
                run_task({at[0], at[1], at[has_indices_ ? 2 : 1]}, start);
            }
        });
    }

private:
    struct Steps {
        int64_t out, indices, x;  // bytes
    };
    struct Place {
        char *out, *indices;
        const char* x;
        Place moved(const Steps& steps, int64_t times) const {
            return {out + times * steps.out, indices + times * steps.indices, x + times * steps.x};
        }
    };

    int64_t blocks() const { return (columns_ + AT_ONCE - 1) / AT_ONCE; }

    void run_task(Place at, int64_t start) const {
        AnyScan scan;
        if (columns_ == 1) {
            loops_.start(&scan, 1);
            for (int64_t i = 0; i < size_; i += AT_ONCE)
                apply(loops_.row, &scan, at.moved(along_, i), along_, i, std::min(AT_ONCE, size_ - i));
        } else {
            const int64_t n = std::min(AT_ONCE, columns_ - start);
            at = at.moved(across_, start);
            loops_.start(&scan, n);
            for (int64_t i = 0; i < size_; ++i, at = at.moved(along_, 1)) apply(loops_.columns, &scan, at, across_, i, n);
        }
    }

    /// Calls a loop on n elements where they lie, or on copies as it sees them.
    template <class Loop>
    void apply(Loop loop, void* scan, const Place& at, const Steps& steps, int64_t i, int64_t n) const {
        alignas(64) double x[AT_ONCE], out[AT_ONCE];  // as large as any
        int64_t indices[AT_ONCE];
        const bool is_seen = elements_.is_seen && steps.x == elements_.size;
        const bool is_direct = elements_.is_seen && steps.out == elements_.size;
        const bool in_place = steps.indices == sizeof(int64_t);
        if (!is_seen) elements_.load(x, at.x, steps.x, n);
        loop(scan, is_direct ? static_cast<void*>(at.out) : out, in_place ? reinterpret_cast<int64_t*>(at.indices) : indices,
             is_seen ? static_cast<const void*>(at.x) : x, i, n);
        if (!is_direct) elements_.store(at.out, steps.out, out, n);
        if (has_indices_ && !in_place)
            for (int64_t j = 0; j < n; ++j) *reinterpret_cast<int64_t*>(at.indices + j * steps.indices) = indices[j];
    }

    bool has_indices_;
    ScanLoops loops_;
    Elements elements_;
    Loops lines_;
    Steps along_{}, across_{};  // from one element to the next, and from one column to the next
    int outer_;                 // dims of `lines_` around the columns
    int64_t size_, columns_ = 1, tasks_;
    double ns_;  // a task's
};

template <template <class, class> class Scan, class Op>
KernelPtr scan(const Request& request) {
    return visit(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        using A = compute_t<T>;
        using S = std::conditional_t<std::is_integral_v<A>, int64_t, A>;
        return std::make_unique<ScanKernel>(request, loops_of<Scan<S, Op>>, ElementsOf<T, S>::all);
    });
}

}  // namespace

void add_scans(Registry& registry) {
    registry["cumsum"] = scan<RunningTotal, Sum>;
    registry["cumprod"] = scan<RunningTotal, Prod>;
    registry["cummax"] = scan<RunningExtreme, Largest>;
    registry["cummin"] = scan<RunningExtreme, Smallest>;
}

}  // namespace norch::reduction
