// The loops of sum, prod, amax, amin, any, all, for the drivers in fold.cpp. Where the inner dim is reduced, each row is
// folded in vectors; where it is kept, rows are added up in a block of columns that stays in the cache.
#pragma once

#include <algorithm>

#include "reduction/fold_plan.h"
#include "reduction/reduction.h"

namespace norch::reduction {
namespace {

/// Element j of R rows, added up in a tree.
template <class T, class Op, int R>
NORCH_INLINE compute_t<T> fold_column(const T* const* r, int64_t j) {
    using A = compute_t<T>;
    if constexpr (R == 1) return load(r[0][j]);
    else return Op::apply(A(fold_column<T, Op, R / 2>(r, j)), A(fold_column<T, Op, R / 2>(r + R / 2, j)));
}

/// The loops of one operation on one dtype; A is what that is computed in.
template <class T, class Op>
struct Fold {
    using A = compute_t<T>;
    using Upcast = typename Op::template upcast<A>;
    static constexpr int64_t SIZE = sizeof(T);
    static constexpr int64_t LANES = 8 * SIMD_WIDTH<A>;
    static constexpr int64_t NARROW = 256;  // columns up to which rows are better added up element by element first
    static constexpr bool IS_PLAIN = std::is_integral_v<A>;  // of integers the order does not matter

    static A at(const char* p) { return load(*reinterpret_cast<const T*>(p)); }
    static void put(char* out, A value) { *reinterpret_cast<T*>(out) = store<T>(value); }

    // --- Rows -------------------------------------------------------------------------------------------------------

    static void short_rows(const ShortRows& r) {
        char* out = r.out;
        const char* x = r.x;
        for (int64_t i = 0; i < r.count; ++i, x += r.x_step, out += r.out_step)
            put(out, r.stride == SIZE ? fold_block<T, Op>(reinterpret_cast<const T*>(x), r.n)
                                      : fold_block<T, Op>(x, r.stride, r.n));
    }

    static __attribute__((noinline)) Upcast row(const char* x, int64_t stride, int64_t n) {
        const int64_t most = most_direct(stride == SIZE, LANES);
        if (n <= most) {
            if (stride == SIZE) return fold_block<T, Op>(reinterpret_cast<const T*>(x), n);
            return fold_block<T, Op>(x, stride, n);
        }
        int64_t half = (n / 2 + most - 1) / most * most;
        return Op::apply(row(x, stride, half), row(x + half * stride, stride, n - half));
    }

    static void rows(void* partial, const char* x, Odometer& at, int64_t rows, int64_t stride, int64_t n) {
        Upcast& total = *static_cast<Upcast*>(partial);
        if constexpr (!IS_PLAIN) {
            if (stride == SIZE && n <= NARROW && rows >= 4) {
                A acc[NARROW];
                total = Op::template identity<Upcast>;
                for (int64_t i = 0; i < rows; i += CHUNK_ROWS) {
                    accumulate_rows(acc, x, at, std::min(CHUNK_ROWS, rows - i), n);
                    total = Op::apply(total, Upcast(fold_block<A, Op>(acc, n)));
                }
                return;
            }
        }
        total = row(x + at.x, stride, n);
        for (int64_t i = 1; i < rows; ++i) {
            at.next();
            total = Op::apply(total, row(x + at.x, stride, n));
        }
    }

    static __attribute__((noinline)) Upcast combined(const Upcast* p, int64_t n) {
        if (n == 1) return p[0];
        return Op::apply(combined(p, n / 2), combined(p + n / 2, n - n / 2));
    }
    static void combine(char* out, const void* partials, int64_t n) {
        put(out, n ? A(combined(static_cast<const Upcast*>(partials), n)) : Op::template empty<A>);
    }

    // --- Columns ----------------------------------------------------------------------------------------------------

    /// acc[j] gets R rows' elements j, the rows being added up first.
    template <int R>
    static void add_rows(A* acc, const char* const* p, int64_t n) {
        const T* r[R];
        for (int i = 0; i < R; ++i) r[i] = reinterpret_cast<const T*>(p[i]);
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) acc[j] = Op::apply(acc[j], fold_column<T, Op, R>(r, j));
    }

    /// acc[j] becomes the fold of `rows` rows' elements j, from where the odometer is.
    static __attribute__((noinline)) void accumulate_rows(A* acc, const char* x, Odometer& at, int64_t rows, int64_t n) {
        const char* p[8];
        auto take = [&](int count) {
            for (int k = 0; k < count; ++k, at.next()) p[k] = x + at.x;
            rows -= count;
        };
        std::fill_n(acc, n, Op::template identity<A>);
        if constexpr (!IS_PLAIN) {
            while (rows >= 8) take(8), add_rows<8>(acc, p, n);
            if (rows >= 4) take(4), add_rows<4>(acc, p, n);
        }
        while (rows > 0) take(1), add_rows<1>(acc, p, n);
    }

    /// The same for rows at regular distances of as many columns as eight vectors have: these stay in registers.
    static void accumulate_tile(A* acc, const char* x, int64_t stride, int64_t rows) {
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

    /// Rows [first, last) of n columns.
    static __attribute__((noinline)) void accumulate(const ColumnPlan& c, void* partial, const char* x, int64_t first,
                                                     int64_t last, int64_t n) {
        A* acc = static_cast<A*>(partial);
        Odometer row(c.plan.reduced, first);
        if (!c.contiguous) {
            std::fill_n(acc, n, Op::template identity<A>);
            for (int64_t i = first; i < last; ++i, row.next()) {
                const char* p = x + row.x;
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < n; ++j) acc[j] = Op::apply(acc[j], at(p + j * c.plan.x_stride));
            }
            return;
        }
        if (c.in_registers) {
            for (; n >= LANES; n -= LANES, acc += LANES, x += LANES * SIZE)
                accumulate_tile(acc, x + row.x, c.plan.reduced[0].x, last - first);
        }
        if (n > 0) accumulate_rows(acc, x, row, last - first, n);
    }

    static void columns(const ColumnPlan& c, char* out, const char* x, int64_t n) {
        if (c.chunks == 1 && c.in_place) return accumulate(c, out, x, 0, c.rows, n);
        alignas(64) A acc[BLOCK];
        accumulate(c, acc, x, 0, std::min(c.rows, CHUNK_ROWS), n);
        if (c.chunks == 1) return finish(c, out, x, acc, n);
        alignas(64) Upcast total[BLOCK];
        for (int64_t j = 0; j < n; ++j) total[j] = acc[j];
        for (int64_t i = CHUNK_ROWS; i < c.rows; i += CHUNK_ROWS) {
            accumulate(c, acc, x, i, std::min(c.rows, i + CHUNK_ROWS), n);
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], Upcast(acc[j]));
        }
        finish(c, out, x, total, n);
    }

    static void combine_columns(const ColumnPlan& c, char* out, const char* x, const void* partials, int64_t n) {
        const A* p = static_cast<const A*>(partials);
        alignas(64) Upcast total[BLOCK];
        for (int64_t j = 0; j < n; ++j) total[j] = p[j];
        for (int64_t i = 1; i < c.chunks; ++i)
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], Upcast(p[i * c.block + j]));
        finish(c, out, x, total, n);
    }

    /// Brings what was merged back to the columns, adds the rows left over, and writes.
    template <class W>
    static __attribute__((noinline)) void finish(const ColumnPlan& c, char* out, const char* x, W* total, int64_t n) {
        for (int64_t times = c.merged / 2; times > 0; times /= 2) {
            n = times * c.columns;
            for (int64_t j = 0; j < n; ++j) total[j] = Op::apply(total[j], total[j + n]);
        }
        for (int64_t i = 0; i < c.left_over; ++i) {
            const char* row = x + c.rows * c.plan.reduced.back().x + i * c.columns * SIZE;
            for (int64_t j = 0; j < c.columns; ++j) total[j] = Op::apply(total[j], W(at(row + j * SIZE)));
        }
        if (c.plan.out_stride == SIZE) {
            T* to = reinterpret_cast<T*>(out);
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) to[j] = store<T>(A(total[j]));
        } else {
            for (int64_t j = 0; j < n; ++j) put(out + j * c.plan.out_stride, A(total[j]));
        }
    }

    static constexpr FoldLoops loops = {SIZE, sizeof(A), sizeof(Upcast), LANES, !IS_PLAIN, short_rows, rows, combine,
                                        accumulate, columns, combine_columns};
};

template <class Op>
KernelPtr fold(const Request& request) {
    return fold_kernel(request, visit(request.operands[1].dtype, []<class T>(Tag<T>) {
        if constexpr (std::is_same_v<T, bool>) return Fold<uint8_t, typename Op::Bool>::loops;
        else return Fold<T, Op>::loops;
    }));
}

}  // namespace
}  // namespace norch::reduction
