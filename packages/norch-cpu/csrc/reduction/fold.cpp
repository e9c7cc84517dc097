// The drivers of sum, prod, amax, amin, any, all. Partial results are of fixed pieces and combined in order, so that they
// do not depend on the number of threads.
#include <algorithm>

#include "reduction/fold_plan.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

constexpr int64_t CHUNK = 65536;     // elements of a piece of a long row
constexpr int64_t CACHED = 1 << 20;  // bytes that the second-level cache surely holds
constexpr int64_t MIN_OUTPUTS = 16;  // with fewer, outputs do not give every thread its share

/// A reduction whose inner loop is over reduced elements.
class RowFold final : public Kernel {
public:
    RowFold(const ReductionPlan& plan, const FoldLoops& loops, const Elements& elements, double ns)
        : plan_(plan), loops_(loops), elements_(elements), ns_(ns * double(plan.inputs)) {
        work = ns_ * double(plan.outputs) + 30 * double(plan.outputs);
        is_short_ = plan.row_count == 1 && plan.n <= max_direct(loops.lanes, loops.narrow);
        if (!plan.kept.empty()) last_ = plan.kept.back(), around_.assign(plan.kept.begin(), plan.kept.end() - 1);
        if (plan.outputs < MIN_OUTPUTS && plan.inputs >= 2 * CHUNK) {
            pieces_ = (plan.n + CHUNK - 1) / CHUNK;
            rows_per_unit_ = pieces_ > 1 ? 1 : CHUNK / plan.n;
            units_ = (plan.row_count + rows_per_unit_ - 1) / rows_per_unit_ * pieces_;
        }
    }

    void run(char* const* data, const Scalar*) const override {
        if (units_ > 1) return run_split(data);
        parallel_for(plan_.outputs, ns_ + 5, [&](int64_t begin, int64_t end) { run_outputs(data, begin, end); });
    }

private:
    void run_outputs(char* const* data, int64_t begin, int64_t end) const {
        if (is_short_) {
            for (int64_t i = begin, count; i < end; i += count) {
                const Odometer at(around_, i / last_.size);
                const int64_t first = i % last_.size;
                count = std::min(end - i, last_.size - first);
                loops_.short_rows(elements_, {data[0] + at.out + first * last_.out, data[1] + at.x + first * last_.x, last_.out,
                                              last_.x, plan_.x_stride, plan_.n, count});
            }
            return;
        }
        Odometer at(plan_.kept, begin);
        for (int64_t i = begin; i < end; ++i, at.next()) {
            double partial;  // as wide as any
            Odometer row(plan_.reduced, 0);
            loops_.rows(elements_, &partial, data[1] + at.x, row, plan_.row_count, plan_.x_stride, plan_.n);
            loops_.combine(elements_, data[0] + at.out, &partial, 1);
        }
    }

    void run_split(char* const* data) const {
        Scratch<> partials(plan_.outputs * units_ * loops_.wide);
        double ns = ns_ / double(units_);
        parallel_for(plan_.outputs * units_, ns, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                int64_t unit = i % units_, first = unit / pieces_ * rows_per_unit_, start = unit % pieces_ * CHUNK;
                const char* x = data[1] + Odometer(plan_.kept, i / units_).x + start * plan_.x_stride;
                Odometer row(plan_.reduced, first);
                loops_.rows(elements_, partials.data() + i * loops_.wide, x, row,
                            std::min(plan_.row_count - first, rows_per_unit_), plan_.x_stride,
                            std::min(CHUNK, plan_.n - start));
            }
        });
        Odometer at(plan_.kept, 0);
        for (int64_t i = 0; i < plan_.outputs; ++i, at.next())
            loops_.combine(elements_, data[0] + at.out, partials.data() + i * units_ * loops_.wide, units_);
    }

    ReductionPlan plan_;
    FoldLoops loops_;
    Elements elements_;
    double ns_;  // an output's
    bool is_short_;
    Axis last_{1, 0, 0};        // of the kept ones, and those around it
    std::vector<Axis> around_;
    // An output's elements in pieces, where outputs are few: so many rows each, or so many pieces of a row.
    int64_t units_ = 1, rows_per_unit_ = 1, pieces_ = 1;
};

/// A reduction whose inner loop is over kept elements.
class ColumnFold final : public Kernel {
public:
    ColumnFold(const ReductionPlan& plan, const FoldLoops& loops, const Elements& elements, double ns) : loops_(loops) {
        c_.plan = plan;
        c_.elements = elements;
        c_.columns = plan.n;
        c_.rows = plan.row_count;
        work = ns * double(plan.inputs) * double(plan.outputs);
        const bool is_contiguous = plan.x_stride == elements.size;
        if (is_contiguous) merge_rows();
        // One tile after the other reads the rows in bits: only what lies in the cache or is one tile wide bears that.
        c_.in_registers = loops.has_tile && elements.is_seen && is_contiguous &&
                          c_.plan.reduced.size() == 1 && c_.rows >= 16 &&
                          (width() == loops.lanes ||
                           double(plan.inputs) * double(plan.n) * double(elements.size) <= double(CACHED));
        c_.chunks = (c_.rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
        c_.blocks = (width() + BLOCK - 1) / BLOCK;
        if (c_.merged == 1) {  // some for each thread, where that is work enough
            const int64_t wanted = std::min<int64_t>(num_threads(), int64_t(2 * work / PARALLEL_NS)) / plan.kept_count / c_.chunks;
            c_.blocks = std::max(c_.blocks, std::min(wanted, width() / 64));
        }
        c_.block = (width() + c_.blocks - 1) / c_.blocks;
        if (c_.blocks > 1) c_.block = (c_.block + 63) / 64 * 64;
        c_.blocks = (width() + c_.block - 1) / c_.block;
        c_.in_place = elements.is_seen && loops.narrow == elements.size && plan.out_stride == elements.size && c_.merged == 1;
        tasks_ = plan.kept_count * c_.blocks;
        ns_ = work / double(tasks_);
    }

    void run(char* const* data, const Scalar*) const override {
        if (tasks_ < MIN_OUTPUTS && c_.chunks > 1) return run_split(data);
        parallel_for(tasks_, ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const Task t = task(data, i);
                loops_.columns(c_, t.out, t.x, t.n);
            }
        });
    }

private:
    /// Several short rows that lie one after the other become one.
    void merge_rows() {
        auto& reduced = c_.plan.reduced;
        if (reduced.empty() || reduced.back().x != c_.columns * c_.elements.size) return;
        Axis& axis = reduced.back();
        bool alone = reduced.size() == 1;
        int64_t times = 1;
        int64_t most = loops_.lanes % c_.columns == 0 ? loops_.lanes : BLOCK / 2;
        while (2 * times * c_.columns <= most && 16 * times <= axis.size && (alone || axis.size % (2 * times) == 0))
            times *= 2;
        if (times == 1) return;
        c_.merged = times;
        c_.left_over = alone ? axis.size % times : 0;
        axis.size /= times;
        axis.x *= times;
        c_.rows = count_of(reduced);
    }

    int64_t width() const { return c_.columns * c_.merged; }

    /// A block of columns, of one of the kept elements around them.
    struct Task {
        char* out;
        const char* x;
        int64_t n;
    };
    Task task(char* const* data, int64_t i) const {
        Odometer at(c_.plan.kept, i / c_.blocks);
        int64_t start = i % c_.blocks * c_.block;
        return {data[0] + at.out + start * c_.plan.out_stride, data[1] + at.x + start * c_.plan.x_stride,
                std::min(c_.block, width() - start)};
    }

    void run_split(char* const* data) const {
        const int64_t stride = c_.block * loops_.narrow;
        Scratch<> partials(tasks_ * c_.chunks * stride);
        parallel_for(tasks_ * c_.chunks, ns_ / double(c_.chunks), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const Task t = task(data, i / c_.chunks);
                const int64_t first = i % c_.chunks * CHUNK_ROWS, last = std::min(c_.rows, first + CHUNK_ROWS);
                loops_.accumulate(c_, partials.data() + i * stride, t.x, first, last, t.n);
            }
        });
        for (int64_t i = 0; i < tasks_; ++i) {
            const Task t = task(data, i);
            loops_.combine_columns(c_, t.out, t.x, partials.data() + i * c_.chunks * stride, t.n);
        }
    }

    FoldLoops loops_;
    ColumnPlan c_;
    int64_t tasks_;
    double ns_;  // a task's
};

/// What no elements give.
[[gnu::cold]] KernelPtr fill_empty(const ReductionPlan& plan, const FoldLoops& loops, const Elements& elements) {
    std::vector<Axis> axes = plan.kept;
    axes.push_back({plan.columns ? plan.n : 1, 0, plan.out_stride});
    return make_kernel(double(plan.outputs), [=, count = plan.outputs](char* const* data, const Scalar*) {
        Odometer at(axes, 0);
        for (int64_t i = 0; i < count; ++i, at.next()) loops.combine(elements, data[0] + at.out, nullptr, 0);
    });
}

}  // namespace

[[gnu::cold]] KernelPtr fold_kernel(const Request& request, const FoldLoops& loops, const Elements& elements) {
    const Operand& x = request.operands[1];
    const ReductionPlan plan = plan_reduction(request.operands[0], x, request.attrs.integers("dims"));
    if (plan.outputs == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (plan.inputs == 0) return fill_empty(plan, loops, elements);
    double ns = is_half(x.dtype) ? 0.08 : 0.02 * double(elements.size);
    if (plan.columns) return std::make_unique<ColumnFold>(plan, loops, elements, ns);
    return std::make_unique<RowFold>(plan, loops, elements, plan.x_stride == elements.size ? ns : ns + 0.3);
}

}  // namespace norch::reduction
