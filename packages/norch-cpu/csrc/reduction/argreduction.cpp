// argmax and argmin: the first of equals, the first NaN before all.
#include <algorithm>

#include "reduction/reduction.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::reduction {
namespace {

constexpr int64_t BLOCK = 1024;     // elements searched at a time
constexpr int64_t CHUNK = 65536;    // elements of a piece of a long row
constexpr int64_t COLUMNS = 512;    // columns compared at a time
constexpr int64_t MIN_OUTPUTS = 16;         // with fewer, outputs do not give every thread its share

template <class A>
struct Best {
    A value;
    int64_t index;
};

/// Whether b comes before a where a was met first.
template <class Op, class A>
NORCH_INLINE bool beats(A b, A a) {
    bool is_better = std::is_same_v<Op, Largest> ? b > a : b < a;
    return is_better | ((b != b) & (a == a));
}

/// A contiguous row: the best of each block first, then where it is.
template <class T, class Op>
Best<compute_t<T>> best_of(const T* p, int64_t n) {
    using A = compute_t<T>;
    A best = fold_block<T, Op>(p, std::min(BLOCK, n));
    int64_t at = 0;
    for (int64_t i = BLOCK; i < n; i += BLOCK) {
        A value = fold_block<T, Op>(p + i, std::min(BLOCK, n - i));
        if (beats<Op>(value, best)) best = value, at = i;
    }
    constexpr int WIDTH = 64;
    for (int64_t end = std::min(n, at + BLOCK); at + WIDTH <= end; at += WIDTH) {
        int found = 0;
        if (best == best)
            for (int j = 0; j < WIDTH; ++j) found |= A(load(p[at + j])) == best;
        else
            for (int j = 0; j < WIDTH; ++j) found |= A(load(p[at + j])) != A(load(p[at + j]));
        if (found) break;
    }
    for (A x = load(p[at]); x != best && (x == x || best == best); x = load(p[at])) ++at;
    return {best, at};
}

template <class T, class Op>
Best<compute_t<T>> best_of(const char* p, int64_t stride, int64_t n) {
    using A = compute_t<T>;
    Best<A> best{load(*reinterpret_cast<const T*>(p)), 0};
    for (int64_t i = 1; i < n; ++i) {
        A x = load(*reinterpret_cast<const T*>(p + i * stride));
        if (beats<Op>(x, best.value)) best = {x, i};
    }
    return best;
}

/// The inner loop is over reduced elements.
template <class T, class Op>
class RowSearch final : public Kernel {
public:
    using A = compute_t<T>;

    RowSearch(const ReductionPlan& plan, double ns) : plan_(plan) {
        contiguous_ = plan.x_stride == int64_t(sizeof(T));
        ns_ = double(plan.n) * (contiguous_ ? ns : 1) + 10;
        work = ns_ * double(plan.outputs);
        if (plan.outputs < MIN_OUTPUTS) pieces_ = (plan.n + CHUNK - 1) / CHUNK;
    }

    void run(char* const* data, const Scalar*) const override {
        if (pieces_ > 1) return run_split(data);
        parallel_for(plan_.outputs, ns_, [&](int64_t begin, int64_t end) {
            Odometer at(plan_.kept, begin);
            for (int64_t i = begin; i < end; ++i, at.next())
                put(data[0] + at.out, search(data[1] + at.x, plan_.n).index);
        });
    }

private:
    Best<A> search(const char* x, int64_t n) const {
        return contiguous_ ? best_of<T, Op>(reinterpret_cast<const T*>(x), n) : best_of<T, Op>(x, plan_.x_stride, n);
    }

    static void put(char* out, int64_t index) { *reinterpret_cast<int64_t*>(out) = index; }

    void run_split(char* const* data) const {
        Scratch<Best<A>> found(plan_.outputs * pieces_);
        parallel_for(plan_.outputs * pieces_, ns_ / double(pieces_), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                int64_t start = i % pieces_ * CHUNK;
                const char* x = data[1] + Odometer(plan_.kept, i / pieces_).x + start * plan_.x_stride;
                found[i] = search(x, std::min(CHUNK, plan_.n - start));
                found[i].index += start;
            }
        });
        Odometer at(plan_.kept, 0);
        for (int64_t i = 0; i < plan_.outputs; ++i, at.next()) {
            Best<A> best = found[i * pieces_];
            for (int64_t k = 1; k < pieces_; ++k)
                if (beats<Op>(found[i * pieces_ + k].value, best.value)) best = found[i * pieces_ + k];
            put(data[0] + at.out, best.index);
        }
    }

    ReductionPlan plan_;
    bool contiguous_;
    double ns_;
    int64_t pieces_ = 1;
};

/// The inner loop is over kept elements.
template <class T, class Op>
class ColumnSearch final : public Kernel {
public:
    using A = compute_t<T>;
    // As wide as the numbers, so that both are compared in vectors of as many lanes.
    using Index = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;

    ColumnSearch(const ReductionPlan& plan, double ns) : plan_(plan), blocks_((plan.n + COLUMNS - 1) / COLUMNS) {
        contiguous_ = plan.x_stride == int64_t(sizeof(T));
        work = 2 * ns * double(plan.inputs) * double(plan.outputs);
        ns_ = work / double(plan.kept_count * blocks_);
    }

    void run(char* const* data, const Scalar*) const override {
        parallel_for(plan_.kept_count * blocks_, ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                Odometer at(plan_.kept, i / blocks_);
                int64_t start = i % blocks_ * COLUMNS;
                search(data[0] + at.out + start * plan_.out_stride, data[1] + at.x + start * plan_.x_stride,
                       std::min(COLUMNS, plan_.n - start));
            }
        });
    }

private:
    void search(char* out, const char* x, int64_t n) const {
        A best[COLUMNS];
        Index index[COLUMNS];
        int64_t rows = plan_.row_count, row_stride = plan_.reduced.empty() ? 0 : plan_.reduced[0].x;
        if (rows > INT32_MAX && sizeof(Index) == 4) rows = INT32_MAX;
        for (int64_t j = 0; j < n; ++j) best[j] = at(x, j), index[j] = 0;
        for (int64_t i = 1; i < rows; ++i) {
            const char* row = x + i * row_stride;
            if (contiguous_) compare(best, index, reinterpret_cast<const T*>(row), Index(i), n);
            else
                for (int64_t j = 0; j < n; ++j)
                    if (beats<Op>(at(row, j), best[j])) best[j] = at(row, j), index[j] = Index(i);
        }
        for (int64_t j = 0; j < n; ++j) {
            int64_t found = index[j];
            // What 32 bits do not count is searched element by element.
            for (int64_t i = rows; i < plan_.row_count; ++i)
                if (A y = at(x + i * row_stride, j); beats<Op>(y, best[j])) best[j] = y, found = i;
            *reinterpret_cast<int64_t*>(out + j * plan_.out_stride) = found;
        }
    }

    A at(const char* row, int64_t j) const { return load(*reinterpret_cast<const T*>(row + j * plan_.x_stride)); }

    static void compare(A* best, Index* index, const T* row, Index i, int64_t n) {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) {
            A x = load(row[j]), old = best[j];
            bool is_better = beats<Op>(x, old);
            best[j] = is_better ? x : old;
            index[j] = is_better ? i : index[j];
        }
    }

    ReductionPlan plan_;
    int64_t blocks_;
    bool contiguous_;
    double ns_;
};

template <class Op>
KernelPtr search(const Request& request) {
    const Operand& x = request.operands[1];
    const std::vector<int64_t>& dims = request.attrs.integers("dims");
    if (dims.size() > 1) throw std::invalid_argument(request.op + " is along one dim");
    if (request.operands[0].dtype != DType::i64) throw std::invalid_argument(request.op + " gives int64");
    ReductionPlan plan = plan_reduction(request.operands[0], x, dims);
    if (plan.is_empty()) return make_kernel(0, [](char* const*, const Scalar*) {});
    return visit(x.dtype, [&]<class Given>(Tag<Given>) -> KernelPtr {
        using T = std::conditional_t<std::is_same_v<Given, bool>, uint8_t, Given>;
        double ns = is_half(x.dtype) ? 0.15 : 0.03 * double(sizeof(T));
        if (plan.columns) return std::make_unique<ColumnSearch<T, Op>>(plan, ns);
        return std::make_unique<RowSearch<T, Op>>(plan, ns);
    });
}

}  // namespace

KernelPtr argmax(const Request& request) { return search<Largest>(request); }
KernelPtr argmin(const Request& request) { return search<Smallest>(request); }

}  // namespace norch::reduction
