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
constexpr int64_t SHORT = 8;        // elements of a row that are compared one by one
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
        const bool is_better = beats<Op>(x, best.value);  // no branch, which short rows would often mispredict
        best.value = is_better ? x : best.value;
        best.index = is_better ? i : best.index;
    }
    return best;
}

/// The loops of one search in one dtype, for the drivers below.
struct SearchLoops {
    int64_t size, best;  // bytes of an element, and of a Best
    /// *found = the best of n elements, of which the first counts as number `start`; returns its index.
    int64_t (*row)(void* found, const char* x, int64_t stride, int64_t n, int64_t start);
    /// The index of the best of n in order.
    int64_t (*first_of)(const void* found, int64_t n);
    void (*columns)(const ReductionPlan& plan, char* out, const char* x, int64_t n);
};

template <class T, class Op>
struct Search {
    using A = compute_t<T>;
    // As wide as the numbers, so that both are compared in vectors of as many lanes.
    using Index = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;

    static int64_t row(void* found, const char* x, int64_t stride, int64_t n, int64_t start) {
        Best<A> best =
            stride == sizeof(T) && n > SHORT ? best_of<T, Op>(reinterpret_cast<const T*>(x), n) : best_of<T, Op>(x, stride, n);
        best.index += start;
        *static_cast<Best<A>*>(found) = best;
        return best.index;
    }

    static int64_t first_of(const void* found, int64_t n) {
        const auto* p = static_cast<const Best<A>*>(found);
        Best<A> best = p[0];
        for (int64_t k = 1; k < n; ++k)
            if (beats<Op>(p[k].value, best.value)) best = p[k];
        return best.index;
    }

    /// Of few columns, whose rows lie one behind the other, as many rows at a time as fill the room.
    static void few_columns(const ReductionPlan& plan, char* out, const T* x, int64_t n) {
        A best[COLUMNS];
        Index index[COLUMNS];
        const int64_t times = COLUMNS / n, width = times * n, rows = plan.row_count / times;
        for (int64_t j = 0; j < width; ++j) best[j] = load(x[j]), index[j] = 0;
        for (int64_t i = 1; i < rows; ++i) compare(best, index, x + i * width, Index(i), width);
        for (int64_t j = 0; j < n; ++j) {
            Best<A> found{best[j], index[j] * times};
            for (int64_t r = 1; r < times + plan.row_count % times; ++r) {
                const int64_t left = (rows - 1) * times + r;  // of the rows behind the last that are whole
                const A value = r < times ? best[r * n + j] : A(load(x[left * n + j]));
                const int64_t place = r < times ? index[r * n + j] * times + r : left;
                const bool is_equal = !beats<Op>(found.value, value) && place < found.index;
                if (beats<Op>(value, found.value) || is_equal) found = {value, place};
            }
            *reinterpret_cast<int64_t*>(out + j * plan.out_stride) = found.index;
        }
    }

    static void columns(const ReductionPlan& plan, char* out, const char* x, int64_t n) {
        if constexpr (std::is_same_v<T, float> && SIMD_WIDTH<float> >= 8) {  // points; others are too rare for more code
            const bool is_dense = plan.x_stride == sizeof(T) && plan.reduced.size() == 1 && plan.reduced[0].x == n * int64_t(sizeof(T));
            if (is_dense && n <= 16 && plan.row_count >= 4 * (COLUMNS / n) && plan.row_count < INT32_MAX)
                return few_columns(plan, out, reinterpret_cast<const T*>(x), n);
        }
        A best[COLUMNS];
        Index index[COLUMNS];
        const auto at = [stride = plan.x_stride](const char* row, int64_t j) {
            return A(load(*reinterpret_cast<const T*>(row + j * stride)));
        };
        int64_t rows = plan.row_count, row_stride = plan.reduced.empty() ? 0 : plan.reduced[0].x;
        if (rows > INT32_MAX && sizeof(Index) == 4) rows = INT32_MAX;
        for (int64_t j = 0; j < n; ++j) best[j] = at(x, j), index[j] = 0;
        for (int64_t i = 1; i < rows; ++i) {
            const char* row = x + i * row_stride;
            if (plan.x_stride == sizeof(T)) compare(best, index, reinterpret_cast<const T*>(row), Index(i), n);
            else
                for (int64_t j = 0; j < n; ++j)
                    if (A y = at(row, j); beats<Op>(y, best[j])) best[j] = y, index[j] = Index(i);
        }
        for (int64_t j = 0; j < n; ++j) {
            int64_t found = index[j];
            // What 32 bits do not count is searched element by element.
            for (int64_t i = rows; i < plan.row_count; ++i)
                if (A y = at(x + i * row_stride, j); beats<Op>(y, best[j])) best[j] = y, found = i;
            *reinterpret_cast<int64_t*>(out + j * plan.out_stride) = found;
        }
    }

    static __attribute__((noinline)) void compare(A* best, Index* index, const T* row, Index i, int64_t n) {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) {
            A x = load(row[j]), old = best[j];
            bool is_better = beats<Op>(x, old);
            best[j] = is_better ? x : old;
            index[j] = is_better ? i : index[j];
        }
    }

    static constexpr SearchLoops loops = {sizeof(T), sizeof(Best<A>), row, first_of, columns};
};

/// The inner loop is over reduced elements.
[[gnu::cold]] KernelPtr search_rows(const ReductionPlan& plan, const SearchLoops& loops, double element_ns) {
    const double ns = double(plan.n) * (plan.x_stride == loops.size ? element_ns : 1) + 10;
    const double work = ns * double(plan.outputs);
    const int64_t pieces = (plan.n + CHUNK - 1) / CHUNK;
    const auto put = [](char* out, int64_t index) { *reinterpret_cast<int64_t*>(out) = index; };
    if (pieces == 1 || plan.outputs >= MIN_OUTPUTS)
        return make_kernel(work, [=](char* const* data, const Scalar*) {
            parallel_for(plan.outputs, ns, [&](int64_t begin, int64_t end) {
                Best<double> found;  // as large as any
                Odometer at(plan.kept, begin);
                for (int64_t i = begin; i < end; ++i, at.next())
                    put(data[0] + at.out, loops.row(&found, data[1] + at.x, plan.x_stride, plan.n, 0));
            });
        });
    return make_kernel(work, [=](char* const* data, const Scalar*) {
        Scratch<> found(plan.outputs * pieces * loops.best);
        parallel_for(plan.outputs * pieces, ns / double(pieces), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t start = i % pieces * CHUNK;
                const char* x = data[1] + Odometer(plan.kept, i / pieces).x + start * plan.x_stride;
                loops.row(found.data() + i * loops.best, x, plan.x_stride, std::min(CHUNK, plan.n - start), start);
            }
        });
        Odometer at(plan.kept, 0);
        for (int64_t i = 0; i < plan.outputs; ++i, at.next())
            put(data[0] + at.out, loops.first_of(found.data() + i * pieces * loops.best, pieces));
    });
}

/// The inner loop is over kept elements.
[[gnu::cold]] KernelPtr search_columns(const ReductionPlan& plan, const SearchLoops& loops, double element_ns) {
    const int64_t blocks = (plan.n + COLUMNS - 1) / COLUMNS;
    const double work = 2 * element_ns * double(plan.inputs) * double(plan.outputs);
    return make_kernel(work, [=](char* const* data, const Scalar*) {
        parallel_for(plan.kept_count * blocks, work / double(plan.kept_count * blocks), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                Odometer at(plan.kept, i / blocks);
                const int64_t start = i % blocks * COLUMNS;
                loops.columns(plan, data[0] + at.out + start * plan.out_stride, data[1] + at.x + start * plan.x_stride,
                              std::min(COLUMNS, plan.n - start));
            }
        });
    });
}

template <class Op>
[[gnu::cold]] KernelPtr search(const Request& request) {
    const Operand& x = request.operands[1];
    const std::vector<int64_t>& dims = request.attrs.integers("dims");
    if (dims.size() > 1) throw std::invalid_argument(request.op + " is along one dim");
    if (request.operands[0].dtype != DType::i64) throw std::invalid_argument(request.op + " gives int64");
    ReductionPlan plan = plan_reduction(request.operands[0], x, dims);
    if (plan.is_empty()) return make_kernel(0, [](char* const*, const Scalar*) {});
    const SearchLoops loops = visit(x.dtype, []<class T>(Tag<T>) {
        return Search<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>, Op>::loops;
    });
    const double ns = is_half(x.dtype) ? 0.15 : 0.03 * double(loops.size);
    return plan.columns ? search_columns(plan, loops, ns) : search_rows(plan, loops, ns);
}

}  // namespace

[[gnu::cold]] KernelPtr argmax(const Request& request) { return search<Largest>(request); }
[[gnu::cold]] KernelPtr argmin(const Request& request) { return search<Smallest>(request); }

}  // namespace norch::reduction
