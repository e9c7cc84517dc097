// scatter, scatter_add, and the extremes of what is scattered to a place: loops over index's shape, in which the tensor that
// is written has stride 0 along `dim`.
#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/arithmetic_ops.h"
#include "common/operands.h"
#include "indexing/half_rows.h"
#include "indexing/places.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"
#include "runtime/simd.h"

namespace norch::indexing {
namespace {

/// A piece of a scatter: `count` elements along dim, `columns` beside one another. Duplicates of an index lie along
/// dim, and dim is never cut, so that they are met in order by one thread.
struct Piece {
    int64_t count, columns;
    Strides dim, column;  // dim.tensor is what an index counts
    int64_t size;
    bool by_rows;     // whether columns are the inner loop
    bool whole_rows;  // and an index is that of many, of 16-bit floats too few for a copy of the output
};

using Scatter = void (*)(char* out, const char* index, const char* src, const Piece& piece);

struct Assign {
    template <class T>
    static T apply(T, T x) {
        return x;
    }
};
/// Whether an index often repeats the one before it, to judge by the first of n.
inline bool has_runs(const int64_t* index, int64_t n) {
    int64_t repeated = 0;
    n = std::min<int64_t>(n, 48);
    for (int64_t i = 1; i < n; ++i) repeated += index[i] == index[i - 1];
    return 3 * repeated > n;
}

/// Adds without reading again what was just written, since that takes long; and without a branch, which chance would decide.
template <class T, class S, class F>
void scatter_runs(T* to, const int64_t* index, const S* from, int64_t count, int64_t size) {
    using Lanes = vector_t<T, 16 / sizeof(T)>;
    using Choice = vector_t<std::conditional_t<sizeof(T) == 8, int64_t, int32_t>, 16 / sizeof(T)>;
    const T elsewhere = 0;
    int64_t last = -1;
    Lanes sum = {};
    each_place(index, count, size, [=, &elsewhere, &last, &sum](int64_t i, int64_t place) NORCH_INLINE_LAMBDA {
        const intptr_t is_last = -intptr_t(place == last), there = reinterpret_cast<intptr_t>(to + place);
        const intptr_t read = (there & ~is_last) | (reinterpret_cast<intptr_t>(&elsewhere) & is_last);
        const Lanes before = {*reinterpret_cast<const T*>(read)};
        sum = F::apply(Choice{} + int32_t(is_last) ? sum : before, Lanes{T(load(from[i]))});
        to[place] = sum[0];
        last = place;
    });
}

/// One column, all without gaps: of what is scattered most, since it is more code.
template <class T, class S, class F>
void scatter_line(char* out, const char* index, const char* src, int64_t count, int64_t size) {
    constexpr int64_t PART = 512;
    T* to = reinterpret_cast<T*>(out);
    const int64_t* k = reinterpret_cast<const int64_t*>(index);
    const S* from = reinterpret_cast<const S*>(src);
    for (int64_t n; count > 0; count -= n, k += n, from += n) {
        n = std::min(count, PART);
        if constexpr (!std::is_same_v<F, Assign>)
            if (has_runs(k, n)) {
                scatter_runs<T, S, F>(to, k, from, n, size);
                continue;
            }
        each_place(k, n, size, [=](int64_t i, int64_t place) NORCH_INLINE_LAMBDA {
            to[place] = F::apply(to[place], T(load(from[i])));
        });
    }
}

template <class T, class S, class F>
void scatter(char* out, const char* index, const char* src, const Piece& p) {
    if (!p.by_rows) {
        const Strides step = p.dim;  // the compiler would read it again after each element: p might lie in the output
        const int64_t count = p.count, size = p.size;
        constexpr bool is_common = std::is_same_v<F, Add> ? std::is_same_v<S, float> : std::is_same_v<F, Assign> && sizeof(T) >= 4;
        const bool is_line = is_common && step.index == 8 && step.tensor == sizeof(T) && step.other == sizeof(S);
        for (int64_t j = 0; j < p.columns; ++j) {
            if constexpr (is_common)
                if (is_line) scatter_line<T, S, F>(out, index, src, count, size);
            for (int64_t i = 0; i < count && !is_line; ++i) {
                T& to = at<T>(out, wrapped(at<int64_t>(index, i * step.index), size) * step.tensor);
                to = F::apply(to, T(load(at<S>(src, i * step.other))));
            }
            out += p.column.tensor;
            index += p.column.index;
            src += p.column.other;
        }
        return;
    }
    constexpr int64_t AHEAD = 4;
    for (int64_t i = 0; i < p.count; ++i, index += p.dim.index, src += p.dim.other) {
        if (p.column.index == 0) {
            if (p.column.tensor == sizeof(T) && i + AHEAD < p.count) {
                const char* soon = out + wrapped(at<int64_t>(index, AHEAD * p.dim.index), p.size) * p.dim.tensor;
                for (int64_t j = 0; j < p.columns * int64_t(sizeof(T)); j += 64) __builtin_prefetch(soon + j, 1);
            }
            char* row = out + wrapped(at<int64_t>(index, 0), p.size) * p.dim.tensor;
            if (p.column.tensor == sizeof(T) && p.column.other == sizeof(S)) {
                T* to = reinterpret_cast<T*>(row);
                const S* from = reinterpret_cast<const S*>(src);
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < p.columns; ++j) to[j] = F::apply(to[j], T(load(from[j])));
            } else {
                for (int64_t j = 0; j < p.columns; ++j) {
                    T& to = at<T>(row, j * p.column.tensor);
                    to = F::apply(to, T(load(at<S>(src, j * p.column.other))));
                }
            }
        } else {
            for (int64_t j = 0; j < p.columns; ++j) {
                int64_t k = wrapped(at<int64_t>(index, j * p.column.index), p.size);
                T& to = at<T>(out, j * p.column.tensor + k * p.dim.tensor);
                to = F::apply(to, T(load(at<S>(src, j * p.column.other))));
            }
        }
    }
}

/// 16-bit floats are added up in float32, in a copy of the output's columns, and rounded once.
void scatter_add_upcast(char* out, const char* index, const char* src, const Piece& p, Convert convert) {
    if (p.whole_rows)
        return add_half_rows(out, index, src, {p.count, p.columns, p.size, p.dim.tensor, p.column.tensor, p.dim.index,
                                               p.dim.other, p.column.other, convert});
    constexpr int64_t WIDE = sizeof(float);
    const int64_t most = std::clamp<int64_t>(16384 / p.columns, 1, p.count);  // of dim at a time
    Scratch<float> sums(p.size * p.columns), addends(most * p.columns);
    char *const total = reinterpret_cast<char*>(sums.data()), *const added = reinterpret_cast<char*>(addends.data());
    const auto move = [&](auto* moves, char* wide, char* narrow, int64_t n, int64_t dim, int64_t column) {
        const int64_t rows = p.by_rows ? n : p.columns, columns = p.by_rows ? p.columns : n;
        const Plane floats{wide, columns * WIDE, WIDE}, halves{narrow, p.by_rows ? dim : column, p.by_rows ? column : dim};
        const bool loads = moves == load_tile;
        moves(loads ? floats : halves, loads ? halves : floats, rows, columns, 2, convert);
    };
    const auto strides = [&](int64_t n) { return std::pair(p.by_rows ? p.columns * WIDE : WIDE, p.by_rows ? WIDE : n * WIDE); };
    Piece part = p;
    std::tie(part.dim.tensor, part.column.tensor) = strides(p.size);
    move(load_tile, total, out, p.size, p.dim.tensor, p.column.tensor);
    for (int64_t i = 0; i < p.count; i += most) {
        part.count = std::min(most, p.count - i);
        std::tie(part.dim.other, part.column.other) = strides(part.count);
        move(load_tile, added, const_cast<char*>(src) + i * p.dim.other, part.count, p.dim.other, p.column.other);
        scatter<float, float, Add>(total, index + i * p.dim.index, added, part);
    }
    move(store_tile, total, out, p.size, p.dim.tensor, p.column.tensor);
}

template <Convert CONVERT>
void scatter_add_half(char* out, const char* index, const char* src, const Piece& p) {
    scatter_add_upcast(out, index, src, p, CONVERT);
}

Scatter assigning(DType dtype) {
    return visit_bits(size_of(dtype), []<class T>(Tag<T>) -> Scatter { return scatter<T, T, Assign>; });
}

Scatter adding(DType dtype) {
    return visit(dtype, []<class T>(Tag<T>) -> Scatter {
        if constexpr (std::is_same_v<T, bool>) return scatter<uint8_t, uint8_t, Or>;
        else if constexpr (std::is_same_v<T, compute_t<T>>) return scatter<T, T, Add>;
        else return scatter_add_half<std::is_same_v<T, half> ? Convert::half : Convert::bfloat16>;
    });
}

/// The places from `low` to `high` alone, which another thread's elements do not touch: their rows of the source, without gaps, are
/// copied some at a time, for no processor foresees which they are.
void scatter_range(Scatter scatter, char* out, const char* index, const char* src, Piece p, int64_t row, int64_t low, int64_t high) {
    constexpr int64_t AT_ONCE = 512;
    int64_t places[AT_ONCE], found[AT_ONCE];
    const int64_t size = p.size, count = p.count, index_step = p.dim.index, step = p.dim.other;
    const Scratch<char> rows(std::min(AT_ONCE, count) * row);
    p.dim.index = sizeof(int64_t), p.dim.other = row;
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        int64_t n = 0;
        for (int64_t i = first; i < std::min(count, first + AT_ONCE); ++i) {  // without a branch, which chance would decide
            places[n] = wrapped(at<int64_t>(index, i * index_step), size), found[n] = i;
            n += (places[n] >= low) & (places[n] < high);
        }
        for (int64_t k = 0; k < n; ++k)
            for (int64_t j = 0; j < row; j += 64) __builtin_prefetch(src + found[k] * step + j);
        for (int64_t k = 0; k < n; ++k) std::memcpy(rows.data() + k * row, src + found[k] * step, size_t(row));
        p.count = n;
        scatter(out, reinterpret_cast<const char*>(places), rows.data(), p);
    }
}

class ScatterKernel final : public Kernel {
    static constexpr int64_t COPIED = 65536;  // elements of an output of 16-bit floats that are copied at a time

public:
    ScatterKernel(const Operand& out, const Operand& index, const Operand& src, int dim, Scatter scatter, bool is_upcast)
        : bounds_(index, -size_along(out, dim), size_along(out, dim)), scatter_(scatter) {
        Operand source = src;
        source.shape = index.shape;
        loops_ = collapse({indexed(out, index.shape, dim), index, source}, dims_but(index.ndim(), dim));
        int nd = loops_.ndim();
        columns_ = nd ? loops_.shape[nd - 1] : 1;
        piece_.count = size_along(index, dim);
        piece_.size = size_along(out, dim);
        piece_.dim = {stride_along(out, dim), stride_along(index, dim), stride_along(source, dim)};
        piece_.column = nd ? Strides{loops_.strides[0][nd - 1], loops_.strides[1][nd - 1], loops_.strides[2][nd - 1]}
                           : Strides{0, 0, 0};
        int64_t itemsize = size_of(out.dtype);
        const bool is_row = piece_.column.index == 0 && piece_.dim.tensor != itemsize;
        const bool is_one = piece_.count == 1 && !is_upcast;
        piece_.by_rows = columns_ > 1 && (is_row || is_one || piece_.column.tensor == itemsize);
        for (int d = 0; d < nd - 1; ++d) outer_ *= loops_.shape[d];
        if (!piece_.count || !loops_.numel) outer_ = 0;
        piece_.whole_rows = piece_.by_rows && piece_.column.index == 0 && columns_ >= 16 &&
                            (piece_.count < piece_.size || piece_.size * columns_ > COPIED);
        const bool copies = is_upcast && !piece_.whole_rows;
        if (copies) most_ = std::clamp<int64_t>(COPIED / std::max<int64_t>(piece_.size, 1), 16, most_);
        can_cut_ = piece_.by_rows && piece_.column.index == 0 && !is_upcast && piece_.count >= 1024 &&
                   piece_.column.other == size_of(src.dtype) && columns_ * piece_.column.other >= 64;
        ns_ = double(piece_.count) * (piece_.by_rows && piece_.column.index == 0 ? 0.03 * double(itemsize) : 1.2);
        if (copies) ns_ += double(piece_.size);
        work = bounds_.work() + double(outer_ * columns_) * ns_;
    }

    void run(char* const* data, const Scalar*) const override {
        bounds_.check(data[1]);
        // As wide as leaves work for each thread: a narrow tile reads a little of each row of what is scattered.
        const int64_t share = outer_ >= 16 ? columns_ : (columns_ / num_threads() + 15) / 16 * 16;
        const int64_t tile = std::clamp<int64_t>(columns_, 1, std::min(std::clamp<int64_t>(share, 64, 1024), most_));
        const int64_t tiles = (columns_ + tile - 1) / tile, all = outer_ * tiles;
        // Where these are far too few for all threads each writes some of the places. It reads the whole index for it, and rows that
        // lie apart, which takes three times as long for each.
        const int64_t each = all ? num_threads() / all : 0, ranges = can_cut_ && each >= 8 ? std::min(each, piece_.size) : 1;
        parallel_for(all * ranges, ns_ * double(tile) / double(ranges), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) run_tile(data, i / ranges, tiles, tile, i % ranges, ranges);
        });
    }

private:
    void run_tile(char* const* data, int64_t i, int64_t tiles, int64_t tile, int64_t range, int64_t ranges) const {
        const int64_t outer = i / tiles, column = i % tiles * tile;
        char* at[] = {data[0] + column * piece_.column.tensor, data[1] + column * piece_.column.index,
                      data[2] + column * piece_.column.other};
        loops_.move(at, loops_.ndim() - 1, outer);
        Piece piece = piece_;
        piece.columns = std::min(tile, columns_ - column);
        if (ranges == 1) return scatter_(at[0], at[1], at[2], piece);
        scatter_range(scatter_, at[0], at[1], at[2], piece, piece.columns * piece.column.other, piece.size * range / ranges,
                      piece.size * (range + 1) / ranges);
    }

    Bounds bounds_;
    Scatter scatter_;
    Loops loops_;
    Piece piece_{};
    int64_t columns_, outer_ = 1, most_ = 1024;  // most: columns of a tile
    double ns_;                                  // of a column
    bool can_cut_;                               // by places
};

[[gnu::cold]] KernelPtr make_scatter(const Request& r) {
    return std::make_unique<ScatterKernel>(r.operands[0], r.operands[1], r.operands[2], int(r.attrs.integer("dim")),
                                           assigning(r.operands[0].dtype), false);
}

[[gnu::cold]] KernelPtr make_scatter_add(const Request& r) {
    DType dtype = r.operands[0].dtype;
    return std::make_unique<ScatterKernel>(r.operands[0], r.operands[1], r.operands[2], int(r.attrs.integer("dim")),
                                           adding(dtype), is_half(dtype));
}

// --- scatter_reduce -------------------------------------------------------------------------------------------------

template <class F>
Scatter extreme(DType dtype) {
    switch (dtype) {
        case DType::f32: return scatter<float, float, F>;
        case DType::f64: return scatter<double, double, F>;
        case DType::i64: return scatter<int64_t, int64_t, F>;
        default: return nullptr;
    }
}

/// The largest or smallest of what is scattered to a place and of what is there: a copy, with one value each written over
/// it first where what is there does not count.
class ScatterExtreme final : public Kernel {
public:
    ScatterExtreme(const Operand& out, const Operand& input, const Operand& src, const Operand& index, int dim,
                   Scatter scatter, bool includes_self)
        : copy_(copy_kernel(out, input)), extreme_(out, index, src, dim, scatter, false) {
        if (!includes_self) first_.emplace(out, index, src, dim, assigning(out.dtype), false);
        work = copy_->work + extreme_.work + (first_ ? first_->work : 0);
    }
    void run(char* const* data, const Scalar* scalars) const override {
        char* const operands[] = {data[0], data[3], data[2]};
        run_copy(*copy_, data[0], data[1]);
        if (first_) first_->run(operands, scalars);
        extreme_.run(operands, scalars);
    }

private:
    KernelPtr copy_;
    std::optional<ScatterKernel> first_;
    ScatterKernel extreme_;
};

[[gnu::cold]] KernelPtr make_scatter_extreme(const Request& r) {
    const Operand& out = r.operands[0];
    const Scatter scatter = r.attrs.text("reduce") == "amax" ? extreme<Maximum>(out.dtype) : extreme<Minimum>(out.dtype);
    if (!scatter || out.shape.empty()) return nullptr;
    const int64_t dim = r.attrs.integer("dim");
    return std::make_unique<ScatterExtreme>(out, r.operands[1], r.operands[2], r.operands[3],
                                            int(dim < 0 ? dim + out.ndim() : dim), scatter, r.attrs.flag("include_self"));
}

}  // namespace

void add_scatter(Registry& registry) {
    registry["scatter"] = make_scatter;
    registry["scatter_add"] = make_scatter_add;
    registry["functional_scatter_extreme"] = make_scatter_extreme;
}

}  // namespace norch::indexing
