// The loops of sum, prod, amax, amin, any, all, for the drivers in fold.cpp. Where the inner dim is reduced, each row is
// folded in vectors; where it is kept, rows are added up in a block of columns that stays in the cache.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "reduction/elements.h"
#include "reduction/fold_plan.h"
#include "reduction/reduction.h"

namespace norch::reduction {
namespace {

/// The type that loops see of a dtype: that of another where converting costs nothing beside the operation itself, or the
/// operation is rare. The largest of short integers is found in a quarter of the time that converting them takes.
template <class Op, class T>
using seen_t = std::conditional_t<
    std::is_same_v<T, half>, float,
    std::conditional_t<std::is_same_v<Op, Prod>, std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>,
                       std::conditional_t<std::is_same_v<Op, Sum> && std::is_integral_v<T> && sizeof(T) < 4, int32_t, T>>>;

/// Element j of R rows, added up in a tree.
template <class Op, int R, class S>
NORCH_INLINE compute_t<S> fold_column(const S* const* r, int64_t j) {
    using A = compute_t<S>;
    if constexpr (R == 1) return load(r[0][j]);
    else return Op::apply(A(fold_column<Op, R / 2>(r, j)), A(fold_column<Op, R / 2>(r + R / 2, j)));
}

/// The first COUNT of N numbers as one, in the tree of fold_lanes, without those that are not there.
template <int N, int COUNT, class Op, class A>
NORCH_INLINE A fold_first(const A* v) {
    if constexpr (COUNT == 1) {
        return v[0];
    } else {
        constexpr int HALF = N / 2, LEFT = std::min(HALF, COUNT);
        A half[LEFT];
        for (int j = 0; j < LEFT; ++j) half[j] = j + HALF < COUNT ? Op::apply(v[j], v[j + HALF]) : v[j];
        return fold_first<HALF, LEFT, Op>(half);
    }
}

/// The loops of one operation on elements of type S.
template <class S, class Op>
struct Fold {
    using A = compute_t<S>;
    using Upcast = typename Op::template upcast<A>;
    static constexpr int64_t LANES = 8 * SIMD_WIDTH<A>;
    static constexpr int64_t MAX_DIRECT = max_direct(LANES, sizeof(A));
    static constexpr int64_t NARROW = 256;  // columns up to which rows are better added up element by element first
    static constexpr bool IS_PLAIN = is_plain<A>;

    static bool is_direct(const Elements& e, int64_t stride) { return e.is_seen && stride == sizeof(S); }

    /// n elements as loops see them: where they lie, or loaded to `buffer`.
    static const S* row_of(const Elements& e, const char* x, int64_t stride, int64_t n, S* buffer) {
        if (is_direct(e, stride)) return reinterpret_cast<const S*>(x);
        e.load(buffer, x, stride, n);
        return buffer;
    }

    // --- Rows -------------------------------------------------------------------------------------------------------

    static constexpr bool HAS_SQUARES = std::is_same_v<Op, Sum> && std::is_floating_point_v<S>;

    static __attribute__((noinline)) A block(const Elements& e, const char* x, int64_t stride, int64_t n) {
        S buffer[MAX_DIRECT];
        return fold_block<S, Op>(row_of(e, x, stride, n, buffer), n);
    }

    /// N elements of each of some rows, or their squares.
    template <int N, bool SQUARES>
    static void fold_few(A* folded, const char* x, int64_t step, int64_t count) {
        for (int64_t k = 0; k < count; ++k, x += step) {
            const S* p = reinterpret_cast<const S*>(x);
            A v[N];
            for (int j = 0; j < N; ++j) v[j] = SQUARES ? A(load(p[j])) * A(load(p[j])) : A(load(p[j]));
            folded[k] = fold_first<SIMD_WIDTH<A>, N, Op>(v);
        }
    }

    static constexpr int FEW = std::min(8, SIMD_WIDTH<A>);
    using FoldFew = void (*)(A* folded, const char* x, int64_t step, int64_t count);
    template <bool SQUARES>
    static FoldFew few(int64_t n) {
        if constexpr (std::is_floating_point_v<S>) {
            static constexpr auto all = []<int... N>(std::integer_sequence<int, N...>) {
                return std::array<FoldFew, FEW>{fold_few<N + 1, SQUARES>...};
            }(std::make_integer_sequence<int, FEW>());
            if (n <= FEW) return all[n - 1];
        }
        return nullptr;
    }

    static void short_rows(const Elements& e, const ShortRows& r) {
        constexpr int64_t MANY = 64;
        A folded[MANY];
        S loaded[MAX_DIRECT];
        const bool direct = is_direct(e, r.stride);
        bool is_loaded = !direct && r.stride == e.size && r.x_step == r.n * e.size;  // as many rows at a time as there is room for
        FoldFew of_few = direct || is_loaded ? few<false>(r.n) : nullptr;
        if constexpr (HAS_SQUARES)
            if (FoldFew of_squares = few<true>(r.n); of_squares && e.are_squares && r.stride == e.size) of_few = of_squares, is_loaded = false;
        const int64_t most = is_loaded ? std::min(MANY, MAX_DIRECT / r.n) : MANY;
        for (int64_t i = 0, count; i < r.count; i += count) {
            count = std::min(most, r.count - i);
            const char* x = r.x + i * r.x_step;
            int64_t step = r.x_step;
            if (is_loaded) {
                e.load(loaded, x, e.size, count * r.n);
                x = reinterpret_cast<const char*>(loaded), step = r.n * int64_t(sizeof(S));
            }
            if (of_few) of_few(folded, x, step, count);
            else for (int64_t k = 0; k < count; ++k, x += step)
                folded[k] = direct || is_loaded ? fold_block<S, Op>(reinterpret_cast<const S*>(x), r.n) : block(e, x, r.stride, r.n);
            e.store(r.out + i * r.out_step, r.out_step, folded, count);
        }
    }

    /// Elements of a stream: rows of two to four such are folded block by block of each of their halves. Memory is read
    /// faster in a few long streams side by side than in one, or in many short ones: prefetchers stop at the end of a page,
    /// and need some lines to begin.
    static constexpr int64_t STREAM = std::max<int64_t>(MAX_DIRECT, (256 << 10) / sizeof(S));

    template <bool SQUARES>
    static __attribute__((noinline)) Upcast halves(const S* x, int64_t half) {
        Upcast total = Op::template identity<Upcast>;
        for (int64_t i = 0; i < half; i += MAX_DIRECT) {
            A first, second;
            fold_pair<S, Op, SQUARES>(x + i, x + half + i, MAX_DIRECT, first, second);
            total = Op::apply(total, Op::apply(Upcast(first), Upcast(second)));
        }
        return total;
    }

    static __attribute__((noinline)) Upcast row(const Elements& e, const char* x, int64_t stride, int64_t n) {
        if (n <= MAX_DIRECT) return block(e, x, stride, n);
        if constexpr (!IS_PLAIN) {
            if (stride == e.size && (e.is_seen || e.are_squares) && n >= 4 * MAX_DIRECT && n < 4 * STREAM) {
                const int64_t half = n / 2 / MAX_DIRECT * MAX_DIRECT, rest = n - 2 * half;
                const auto fold = HAS_SQUARES && e.are_squares ? halves<HAS_SQUARES> : halves<false>;
                const Upcast total = fold(reinterpret_cast<const S*>(x), half);
                return rest ? Op::apply(total, row(e, x + 2 * half * stride, stride, rest)) : total;
            }
        }
        const int64_t whole = n > 2 * STREAM ? 2 * STREAM : MAX_DIRECT, half = (n / 2 + whole - 1) / whole * whole;
        return Op::apply(row(e, x, stride, half), row(e, x + half * stride, stride, n - half));
    }

    static void rows(const Elements& e, void* partial, const char* x, Odometer& at, int64_t rows, int64_t stride,
                     int64_t n) {
        Upcast& total = *static_cast<Upcast*>(partial);
        if (stride == e.size && n <= NARROW && rows >= 4) {
            A acc[NARROW];
            total = Op::template identity<Upcast>;
            for (int64_t i = 0; i < rows; i += CHUNK_ROWS) {
                add_rows(e, acc, x, at, std::min(CHUNK_ROWS, rows - i), stride, n);
                total = Op::apply(total, Upcast(fold_block<A, Op>(acc, n)));
            }
            return;
        }
        total = row(e, x + at.x, stride, n);
        for (int64_t i = 1; i < rows; ++i) {
            at.next();
            total = Op::apply(total, row(e, x + at.x, stride, n));
        }
    }

    static __attribute__((noinline)) Upcast combined(const Upcast* p, int64_t n) {
        if (n == 1) return p[0];
        return Op::apply(combined(p, n / 2), combined(p + n / 2, n - n / 2));
    }
    static void combine(const Elements& e, char* out, const void* partials, int64_t n) {
        const A folded = n ? A(combined(static_cast<const Upcast*>(partials), n)) : Op::template empty<A>;
        e.store(out, 0, &folded, 1);
    }

    // --- Columns ----------------------------------------------------------------------------------------------------

    /// acc[j] gets R rows' elements j, the rows being added up first.
    template <int R>
    static void add(A* acc, const S* const* p, int64_t n) {
        const S* r[R];
        for (int i = 0; i < R; ++i) r[i] = p[i];
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) acc[j] = Op::apply(acc[j], A(fold_column<Op, R>(r, j)));
    }

    template <int R>
    static void add(const Elements& e, A* acc, const char* const* rows, int64_t stride, int64_t n) {
        constexpr int64_t PART = 256;  // columns that are loaded at a time
        const S* p[R];
        if (is_direct(e, stride)) {
            for (int k = 0; k < R; ++k) p[k] = reinterpret_cast<const S*>(rows[k]);
            return add<R>(acc, p, n);
        }
        alignas(64) S buffer[R][PART];
        for (int64_t j = 0; j < n; j += PART) {
            const int64_t count = std::min(PART, n - j);
            for (int k = 0; k < R; ++k) e.load(buffer[k], rows[k] + j * stride, stride, count), p[k] = buffer[k];
            add<R>(acc + j, p, count);
        }
    }

    /// acc[j] becomes the fold of `rows` rows' elements j, from where the odometer is.
    static __attribute__((noinline)) void add_rows(const Elements& e, A* acc, const char* x, Odometer& at, int64_t rows,
                                                   int64_t stride, int64_t n) {
        const char* p[8];
        const auto take = [&](int count) {
            for (int k = 0; k < count; ++k, at.next()) p[k] = x + at.x;
            rows -= count;
        };
        std::fill_n(acc, n, Op::template identity<A>);
        while (rows >= 8) take(8), add<8>(e, acc, p, stride, n);
        if constexpr (!IS_PLAIN)
            if (rows >= 4) take(4), add<4>(e, acc, p, stride, n);
        while (rows > 0) take(1), add<1>(e, acc, p, stride, n);
    }

    /// The same for rows at regular distances of as many columns as eight vectors have: these stay in registers.
    static void add_tile(A* acc, const char* x, int64_t stride, int64_t rows) {
        constexpr int64_t DEPTH = 32;  // rows in one chain of additions
        for (int64_t start = 0; start < rows; start += DEPTH) {
            A lanes[LANES];
            const S* p = reinterpret_cast<const S*>(x + start * stride);
            for (int j = 0; j < LANES; ++j) lanes[j] = load(p[j]);
            for (int64_t i = start + 1, end = std::min(rows, start + DEPTH); i < end; ++i) {
                p = reinterpret_cast<const S*>(x + i * stride);
                for (int j = 0; j < LANES; ++j) lanes[j] = Op::apply(lanes[j], A(load(p[j])));
            }
            if (start == 0)
                for (int j = 0; j < LANES; ++j) acc[j] = lanes[j];
            else
                for (int j = 0; j < LANES; ++j) acc[j] = Op::apply(acc[j], lanes[j]);
        }
    }

    /// Rows [first, last) of n columns.
    static __attribute__((noinline)) void accumulate(const ColumnPlan& c, void* partials, const char* x, int64_t first,
                                                     int64_t last, int64_t n) {
        A* acc = static_cast<A*>(partials);
        Odometer at(c.plan.reduced, first);
        if (c.in_registers) {
            for (; n >= LANES; n -= LANES, acc += LANES, x += LANES * int64_t(sizeof(S)))
                add_tile(acc, x + at.x, c.plan.reduced[0].x, last - first);
        }
        if (n > 0) add_rows(c.elements, acc, x, at, last - first, c.plan.x_stride, n);
    }

    /// total[j] becomes, or without `is_first` gets, acc[j].
    static __attribute__((noinline)) void add_wide(Upcast* total, const A* acc, int64_t n, bool is_first) {
        if (is_first) std::copy_n(acc, n, total);
        else
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], Upcast(acc[j]));
    }

    static void columns(const ColumnPlan& c, char* out, const char* x, int64_t n) {
        if (c.chunks == 1 && c.in_place) return accumulate(c, out, x, 0, c.rows, n);
        alignas(64) A acc[BLOCK];
        accumulate(c, acc, x, 0, std::min(c.rows, CHUNK_ROWS), n);
        if (c.chunks == 1) return finish(c, out, x, acc, n);
        alignas(64) Upcast total[BLOCK];
        add_wide(total, acc, n, true);
        for (int64_t i = CHUNK_ROWS; i < c.rows; i += CHUNK_ROWS) {
            accumulate(c, acc, x, i, std::min(c.rows, i + CHUNK_ROWS), n);
            add_wide(total, acc, n, false);
        }
        finish(c, out, x, total, n);
    }

    static void combine_columns(const ColumnPlan& c, char* out, const char* x, const void* partials, int64_t n) {
        alignas(64) Upcast total[BLOCK];
        const A* acc = static_cast<const A*>(partials);
        for (int64_t i = 0; i < c.chunks; ++i, acc += c.block) add_wide(total, acc, n, i == 0);
        finish(c, out, x, total, n);
    }

    /// The rows left over by themselves: each sum of one with the total would round by the total's last digit.
    [[gnu::cold]] static __attribute__((noinline)) void add_left_over(const ColumnPlan& c, A* rest, const char* x, int64_t n) {
        std::fill_n(rest, n, Op::template identity<A>);
        for (int64_t i = 0; i < c.left_over; ++i) {
            S buffer[BLOCK];
            const char* row = x + c.rows * c.plan.reduced.back().x + i * n * c.elements.size;
            const S* p = row_of(c.elements, row, c.elements.size, n, buffer);
            for (int64_t j = 0; j < n; ++j) rest[j] = Op::apply(rest[j], A(load(p[j])));
        }
    }

    /// Brings what was merged back to the columns, adds the rows left over, and writes.
    template <class W>
    static __attribute__((noinline)) void finish(const ColumnPlan& c, char* out, const char* x, W* total, int64_t n) {
        for (int64_t times = c.merged / 2; times > 0; times /= 2) {
            n = times * c.columns;
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], total[j + n]);
        }
        if (c.left_over > 0) {
            A rest[BLOCK];
            add_left_over(c, rest, x, n);
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], W(rest[j]));
        }
        if constexpr (std::is_same_v<W, A>) {
            c.elements.store(out, c.plan.out_stride, total, n);
        } else {
            A narrow[BLOCK];
            std::copy_n(total, n, narrow);
            c.elements.store(out, c.plan.out_stride, narrow, n);
        }
    }

    static constexpr FoldLoops loops = {sizeof(A), sizeof(Upcast), LANES, !IS_PLAIN, short_rows, rows, combine,
                                        accumulate, columns, combine_columns};
};

template <class Op>
[[gnu::cold]] KernelPtr fold(const Request& request) {
    return visit(request.operands[1].dtype, [&]<class T>(Tag<T>) {
        if constexpr (std::is_same_v<T, bool>)
            return fold_kernel(request, Fold<uint8_t, typename Op::Bool>::loops, ElementsOf<uint8_t>::all);
        else
            return fold_kernel(request, Fold<seen_t<Op, T>, Op>::loops, ElementsOf<T, seen_t<Op, T>>::all);
    });
}

}  // namespace
}  // namespace norch::reduction
