// The kernels of sum, prod, amax, amin, any, all. Where the inner dim is reduced, each row is folded in vectors; where
// it is kept, rows are added up in a block of columns that stays in the cache. Partial results are of fixed pieces and
// combined in order, so that they do not depend on the number of threads.
#pragma once

#include <algorithm>

#include "reduction/reduction.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

constexpr int64_t CHUNK = 65536;     // elements of a piece of a long row
constexpr int64_t CHUNK_ROWS = 256;  // rows that are added up before their sum goes to a wider type
constexpr int64_t BLOCK = 1024;      // columns that are added up at a time
constexpr int64_t CACHED = 1 << 20;  // bytes that the second-level cache surely holds
constexpr int64_t MIN_OUTPUTS = 16;          // with fewer, outputs do not give every thread its share

/// Element j of R rows, added up in a tree.
template <class T, class Op, int R>
NORCH_INLINE compute_t<T> fold_column(const T* const* r, int64_t j) {
    using A = compute_t<T>;
    if constexpr (R == 1) return load(r[0][j]);
    else return Op::apply(A(fold_column<T, Op, R / 2>(r, j)), A(fold_column<T, Op, R / 2>(r + R / 2, j)));
}

/// acc[j] gets R rows' elements j, the rows being added up first.
template <class T, class Op, int R, bool FIRST>
void add_rows(compute_t<T>* acc, const char* const* p, int64_t n) {
    using A = compute_t<T>;
    const T* r[R];
    for (int i = 0; i < R; ++i) r[i] = reinterpret_cast<const T*>(p[i]);
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) {
        A x = fold_column<T, Op, R>(r, j);
        acc[j] = FIRST ? x : Op::apply(acc[j], x);
    }
}

template <class T, class Op, bool FIRST>
void add_strided_row(compute_t<T>* acc, const char* p, int64_t stride, int64_t n) {
    using A = compute_t<T>;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) {
        A x = load(*reinterpret_cast<const T*>(p + j * stride));
        acc[j] = FIRST ? x : Op::apply(acc[j], x);
    }
}

/// acc[j] becomes the fold of `rows` rows' elements j, from where the odometer is.
template <class T, class Op>
void accumulate_rows(compute_t<T>* acc, const char* x, Odometer& at, int64_t rows, int64_t n) {
    const char* p[8];
    auto take = [&](int count) {
        for (int k = 0; k < count; ++k, at.next()) p[k] = x + at.x;
        rows -= count;
    };
    bool first = true;
    while (rows > 0) {
        if (rows >= 8) {
            take(8);
            first ? add_rows<T, Op, 8, true>(acc, p, n) : add_rows<T, Op, 8, false>(acc, p, n);
        } else if (rows >= 4) {
            take(4);
            first ? add_rows<T, Op, 4, true>(acc, p, n) : add_rows<T, Op, 4, false>(acc, p, n);
        } else {
            take(1);
            first ? add_rows<T, Op, 1, true>(acc, p, n) : add_rows<T, Op, 1, false>(acc, p, n);
        }
        first = false;
    }
}

/// The same for rows at regular distances of as many columns as eight vectors have: these stay in registers.
template <class T, class Op>
void accumulate_tile(compute_t<T>* acc, const char* x, int64_t stride, int64_t rows) {
    using A = compute_t<T>;
    constexpr int LANES = 8 * SIMD_WIDTH<A>;
    constexpr int64_t DEPTH = 32;  // rows in one chain of additions
    for (int64_t start = 0; start < rows; start += DEPTH) {
        A lanes[LANES];
        const T* p = reinterpret_cast<const T*>(x + start * stride);
        for (int j = 0; j < LANES; ++j) lanes[j] = load(p[j]);
        for (int64_t i = start + 1, end = std::min(rows, start + DEPTH); i < end; ++i) {
            p = reinterpret_cast<const T*>(x + i * stride);
            for (int j = 0; j < LANES; ++j) lanes[j] = Op::apply(lanes[j], A(load(p[j])));
        }
        if (start == 0)
            for (int j = 0; j < LANES; ++j) acc[j] = lanes[j];
        else
            for (int j = 0; j < LANES; ++j) acc[j] = Op::apply(acc[j], lanes[j]);
    }
}

/// A reduction whose inner loop is over reduced elements.
template <class T, class Op, bool CONTIGUOUS>
class RowFold final : public Kernel {
public:
    using A = compute_t<T>;
    using Upcast = typename Op::template upcast<A>;

    RowFold(const ReductionPlan& plan, double ns) : plan_(plan), ns_(ns * double(plan.inputs)) {
        work = ns_ * double(plan.outputs) + 30 * double(plan.outputs);
        if (plan.outputs < MIN_OUTPUTS && plan.inputs >= 2 * CHUNK) {
            pieces_ = (plan.n + CHUNK - 1) / CHUNK;
            rows_per_unit_ = pieces_ > 1 ? 1 : CHUNK / plan.n;
            units_ = (plan.row_count + rows_per_unit_ - 1) / rows_per_unit_ * pieces_;
        }
    }

    void run(char* const* data, const Scalar*) const override {
        if (units_ > 1) return run_split(data);
        parallel_for(plan_.outputs, ns_ + 5, [&](int64_t begin, int64_t end) {
            if (plan_.row_count == 1 && plan_.n <= MAX_DIRECT && plan_.kept.size() <= 1) return run_short(data, begin, end);
            Odometer at(plan_.kept, begin);
            for (int64_t i = begin; i < end; ++i, at.next()) {
                const char* x = data[1] + at.x;
                put(data[0] + at.out, plan_.row_count == 1 ? row(x, plan_.n) : rows(x, 0, plan_.row_count, 0, plan_.n));
            }
        });
    }

private:
    /// Elements that are folded without a detour by a wider type.
    static constexpr int64_t MAX_DIRECT = CONTIGUOUS ? 16 * 8 * SIMD_WIDTH<A> : 128;
    /// Columns up to which rows are better added up element by element first.
    static constexpr int64_t NARROW = 256;

    void run_short(char* const* data, int64_t begin, int64_t end) const {
        Axis axis = plan_.kept.empty() ? Axis{1, 0, 0} : plan_.kept[0];
        const int64_t n = plan_.n, stride = plan_.x_stride;
        const char* x = data[1] + begin * axis.x;
        char* out = data[0] + begin * axis.out;
        for (int64_t i = begin; i < end; ++i, x += axis.x, out += axis.out)
            *reinterpret_cast<T*>(out) = store<T>(block(x, stride, n));
    }

    static A block(const char* x, int64_t stride, int64_t n) {
        if constexpr (CONTIGUOUS) return fold_block<T, Op>(reinterpret_cast<const T*>(x), n);
        else return fold_block<T, Op>(x, stride, n);
    }

    void run_split(char* const* data) const {
        Scratch<Upcast> partial(plan_.outputs * units_);
        double ns = ns_ / double(units_);
        parallel_for(plan_.outputs * units_, ns, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                int64_t unit = i % units_, first = unit / pieces_ * rows_per_unit_, start = unit % pieces_ * CHUNK;
                partial[i] = rows(data[1] + Odometer(plan_.kept, i / units_).x, first,
                                  std::min(plan_.row_count, first + rows_per_unit_), start,
                                  std::min(CHUNK, plan_.n - start));
            }
        });
        Odometer at(plan_.kept, 0);
        for (int64_t i = 0; i < plan_.outputs; ++i, at.next())
            put(data[0] + at.out, combine(partial.data() + i * units_, units_));
    }

    static void put(char* out, Upcast value) { *reinterpret_cast<T*>(out) = store<T>(A(value)); }

    static Upcast combine(const Upcast* p, int64_t n) {
        if (n == 1) return p[0];
        return Op::apply(combine(p, n / 2), combine(p + n / 2, n - n / 2));
    }

    /// Elements [start, start + n) of the rows from `first` to `last`.
    Upcast rows(const char* x, int64_t first, int64_t last, int64_t start, int64_t n) const {
        Odometer at(plan_.reduced, first);
        x += start * plan_.x_stride;
        if (CONTIGUOUS && n <= NARROW && last - first >= 4) return narrow_rows(x, at, last - first, n);
        Upcast total = row(x + at.x, n);
        for (int64_t i = first + 1; i < last; ++i) {
            at.next();
            total = Op::apply(total, row(x + at.x, n));
        }
        return total;
    }

    static Upcast narrow_rows(const char* x, Odometer& at, int64_t rows, int64_t n) {
        A acc[NARROW];
        Upcast total = Op::template identity<Upcast>;
        for (int64_t i = 0; i < rows; i += CHUNK_ROWS) {
            accumulate_rows<T, Op>(acc, x, at, std::min(CHUNK_ROWS, rows - i), n);
            total = Op::apply(total, Upcast(fold_block<A, Op>(acc, n)));
        }
        return total;
    }

    Upcast row(const char* x, int64_t n) const {
        if (n <= MAX_DIRECT) return block(x, plan_.x_stride, n);
        int64_t half = (n / 2 + MAX_DIRECT - 1) / MAX_DIRECT * MAX_DIRECT;
        return Op::apply(row(x, half), row(x + half * plan_.x_stride, n - half));
    }

    ReductionPlan plan_;
    double ns_;  // an output's
    // An output's elements in pieces, where outputs are few: so many rows each, or so many pieces of a row.
    int64_t units_ = 1, rows_per_unit_ = 1, pieces_ = 1;
};

/// A reduction whose inner loop is over kept elements.
template <class T, class Op>
class ColumnFold final : public Kernel {
public:
    using A = compute_t<T>;
    using Upcast = typename Op::template upcast<A>;

    ColumnFold(const ReductionPlan& plan, double ns) : plan_(plan), columns_(plan.n), rows_(plan.row_count) {
        work = ns * double(plan.inputs) * double(plan.outputs);
        contiguous_ = plan.x_stride == int64_t(sizeof(T));
        if (contiguous_) merge_rows();
        // One tile after the other reads the rows in bits: only what lies in the cache or is one tile wide bears that.
        in_registers_ = contiguous_ && plan_.reduced.size() == 1 && rows_ >= 16 &&
                        (columns_ * merged_ == LANES ||
                         double(plan.inputs) * double(plan.n) * double(sizeof(T)) <= double(CACHED));
        blocks_ = (columns_ * merged_ + BLOCK - 1) / BLOCK;
        block_ = (columns_ * merged_ + blocks_ - 1) / blocks_;
        if (blocks_ > 1) block_ = (block_ + 63) / 64 * 64;
        chunks_ = (rows_ + CHUNK_ROWS - 1) / CHUNK_ROWS;
        tasks_ = plan.kept_count * blocks_;
        ns_ = work / double(tasks_);
        in_place_ = std::is_same_v<A, T> && plan.out_stride == int64_t(sizeof(T)) && merged_ == 1;
    }

    void run(char* const* data, const Scalar*) const override {
        if (tasks_ < MIN_OUTPUTS && chunks_ > 1) return run_split(data);
        parallel_for(tasks_, ns_, [&](int64_t begin, int64_t end) {
            Odometer at(plan_.kept, begin / blocks_);
            int64_t block = begin % blocks_;
            for (int64_t i = begin; i < end; ++i) {
                fold(data[0] + at.out, data[1] + at.x, block * block_, width(block));
                if (++block == blocks_) block = 0, at.next();
            }
        });
    }

private:
    static constexpr int64_t LANES = 8 * SIMD_WIDTH<A>;

    /// Several short rows that lie one after the other become one.
    void merge_rows() {
        if (plan_.reduced.empty() || plan_.reduced.back().x != columns_ * int64_t(sizeof(T))) return;
        Axis& axis = plan_.reduced.back();
        bool alone = plan_.reduced.size() == 1;
        int64_t times = 1;
        int64_t most = LANES % columns_ == 0 ? LANES : BLOCK / 2;
        while (2 * times * columns_ <= most && 16 * times <= axis.size && (alone || axis.size % (2 * times) == 0))
            times *= 2;
        if (times == 1) return;
        merged_ = times;
        left_over_ = alone ? axis.size % times : 0;
        axis.size /= times;
        axis.x *= times;
        rows_ = count_of(plan_.reduced);
    }

    int64_t width(int64_t block) const { return std::min(block_, columns_ * merged_ - block * block_); }

    /// Rows [first, last) of n columns.
    void accumulate(A* acc, const char* x, int64_t first, int64_t last, int64_t n) const {
        Odometer at(plan_.reduced, first);
        if (!contiguous_) {
            add_strided_row<T, Op, true>(acc, x + at.x, plan_.x_stride, n);
            for (int64_t i = first + 1; i < last; ++i) {
                at.next();
                add_strided_row<T, Op, false>(acc, x + at.x, plan_.x_stride, n);
            }
            return;
        }
        if (in_registers_) {
            for (; n >= LANES; n -= LANES, acc += LANES, x += LANES * int64_t(sizeof(T)))
                accumulate_tile<T, Op>(acc, x + at.x, plan_.reduced[0].x, last - first);
        }
        if (n > 0) accumulate_rows<T, Op>(acc, x, at, last - first, n);
    }

    void fold(char* out, const char* x, int64_t start, int64_t n) const {
        x += start * plan_.x_stride;
        out += start * plan_.out_stride;
        if (chunks_ == 1 && in_place_) {
            if constexpr (std::is_same_v<A, T>) accumulate(reinterpret_cast<A*>(out), x, 0, rows_, n);
            return;
        }
        alignas(64) A acc[BLOCK];
        accumulate(acc, x, 0, std::min(rows_, CHUNK_ROWS), n);
        if (chunks_ == 1) return finish(out, x, acc, n);
        alignas(64) Upcast total[BLOCK];
        for (int64_t j = 0; j < n; ++j) total[j] = acc[j];
        for (int64_t i = CHUNK_ROWS; i < rows_; i += CHUNK_ROWS) {
            accumulate(acc, x, i, std::min(rows_, i + CHUNK_ROWS), n);
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], Upcast(acc[j]));
        }
        finish(out, x, total, n);
    }

    /// Brings what was merged back to the columns, adds the rows left over, and writes.
    template <class W>
    void finish(char* out, const char* x, W* total, int64_t n) const {
        for (int64_t times = merged_ / 2; times > 0; times /= 2) {
            n = times * columns_;
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], total[j + n]);
        }
        for (int64_t i = 0; i < left_over_; ++i) {
            const T* row = reinterpret_cast<const T*>(x + rows_ * plan_.reduced.back().x) + i * columns_;
            for (int64_t j = 0; j < columns_; ++j) total[j] = Op::apply(total[j], W(load(row[j])));
        }
        if (plan_.out_stride == int64_t(sizeof(T))) {
            T* to = reinterpret_cast<T*>(out);
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) to[j] = store<T>(A(total[j]));
        } else {
            for (int64_t j = 0; j < n; ++j) *reinterpret_cast<T*>(out + j * plan_.out_stride) = store<T>(A(total[j]));
        }
    }

    void run_split(char* const* data) const {
        Scratch<A> partial(tasks_ * chunks_ * block_);
        parallel_for(tasks_ * chunks_, ns_ / double(chunks_), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                int64_t task = i / chunks_, first = i % chunks_ * CHUNK_ROWS, block = task % blocks_;
                const char* x = data[1] + Odometer(plan_.kept, task / blocks_).x + block * block_ * plan_.x_stride;
                accumulate(&partial[i * block_], x, first, std::min(rows_, first + CHUNK_ROWS), width(block));
            }
        });
        alignas(64) Upcast total[BLOCK];
        for (int64_t task = 0; task < tasks_; ++task) {
            Odometer at(plan_.kept, task / blocks_);
            int64_t block = task % blocks_, n = width(block), start = block * block_;
            const A* p = &partial[task * chunks_ * block_];
            for (int64_t j = 0; j < n; ++j) total[j] = p[j];
            for (int64_t i = 1; i < chunks_; ++i)
                for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], Upcast(p[i * block_ + j]));
            finish(data[0] + at.out + start * plan_.out_stride, data[1] + at.x + start * plan_.x_stride, total, n);
        }
    }

    ReductionPlan plan_;
    int64_t columns_, rows_;
    int64_t merged_ = 1, left_over_ = 0;  // how many rows make a wide one, and how many then remain
    int64_t blocks_, block_, chunks_, tasks_;
    bool contiguous_, in_place_, in_registers_;
    double ns_;  // a task's
};

/// What no elements give.
template <class T, class Op>
KernelPtr fill_empty(const ReductionPlan& plan) {
    std::vector<Axis> axes = plan.kept;
    axes.push_back({plan.columns ? plan.n : 1, 0, plan.out_stride});
    return make_kernel(double(plan.outputs), [axes, count = plan.outputs](char* const* data, const Scalar*) {
        Odometer at(axes, 0);
        for (int64_t i = 0; i < count; ++i, at.next())
            *reinterpret_cast<T*>(data[0] + at.out) = store<T>(Op::template empty<compute_t<T>>);
    });
}

template <class T, class Op>
KernelPtr make_fold(const ReductionPlan& plan, DType dtype) {
    if (plan.outputs == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    if (plan.inputs == 0) return fill_empty<T, Op>(plan);
    double ns = is_half(dtype) ? 0.08 : 0.02 * double(sizeof(T));
    if (plan.columns) return std::make_unique<ColumnFold<T, Op>>(plan, ns);
    if (plan.x_stride == int64_t(sizeof(T))) return std::make_unique<RowFold<T, Op, true>>(plan, ns);
    return std::make_unique<RowFold<T, Op, false>>(plan, ns + 0.3);
}

template <class Op>
KernelPtr fold(const Request& request) {
    const Operand& x = request.operands[1];
    ReductionPlan plan = plan_reduction(request.operands[0], x, request.attrs.integers("dims"));
    return visit(x.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if constexpr (std::is_same_v<T, bool>) return make_fold<uint8_t, typename Op::Bool>(plan, x.dtype);
        else return make_fold<T, Op>(plan, x.dtype);
    });
}

}  // namespace
}  // namespace norch::reduction
