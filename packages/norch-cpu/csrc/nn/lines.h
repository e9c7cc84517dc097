// Kernels that compute along one dim: the driver hands them rows, or columns side by side, whatever the layout.
#pragma once

#include <algorithm>

#include "common/layout.h"
#include "reduction/reduction.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn {

constexpr int64_t COLUMNS = 128;     // the most columns that lie side by side in one call
constexpr int64_t CONVERTED = 32768, LEAST_COLUMNS = 16;  // elements of a block of columns of 16-bit floats, unless those were few
constexpr int64_t LINES_BLOCK = 2048;  // elements of a block of short rows, unless that were few lines

/// Elements of an input block: row r starts at data + r * stride.
template <class C>
struct LineBlock {
    const C* data;
    int64_t stride;
};

/// NaN is passed over.
struct Larger {
    template <class C>
    static C apply(C a, C b) {
        return b > a ? b : a;
    }
};

/// `start`, f(0), ... f(n - 1) combined, in lanes that the compiler turns into vectors.
template <class Op, int LANES, class C, class F>
inline C reduce_in_lanes(C start, int64_t n, const F& f) {
    C lanes[LANES];
    for (int j = 0; j < LANES; ++j) lanes[j] = start;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        NORCH_INDEPENDENT
        for (int j = 0; j < LANES; ++j) lanes[j] = Op::apply(lanes[j], f(i + j));
    }
    const int rest = int(n - i);
    NORCH_INDEPENDENT
    for (int j = 0; j < rest; ++j) lanes[j] = Op::apply(lanes[j], f(i + j));
    return reduction::fold_lanes<LANES, Op>(lanes);
}

constexpr int64_t SHORT = 256;  // rows up to this are not worth many lanes
constexpr int64_t STAGED_LINES = 16;  // the least lines that a block has in scratch memory
constexpr int64_t SHORT_BLOCK = std::max(LINES_BLOCK, STAGED_LINES * SHORT);  // the most elements of such a block

template <class C, class F>
inline C sum_of(int64_t n, const F& f) {
    return n < SHORT ? reduce_in_lanes<reduction::Sum, 16>(C(0), n, f) : reduce_in_lanes<reduction::Sum, 64>(C(0), n, f);
}

/// The largest of n > 0 elements; NaN is passed over unless it comes first.
template <class C>
inline C max_of(const C* x, int64_t n) {
    const auto f = [=](int64_t i) { return x[i]; };
    return n < SHORT ? reduce_in_lanes<Larger, 16>(x[0], n, f) : reduce_in_lanes<Larger, 64>(x[0], n, f);
}

/// F::rows(const LineBlock<C>* x, C* out, rows, n): rows of n contiguous elements; out's lie one after the other.
/// F::columns(const LineBlock<C>* x, C* out, stride, n, width): line j is column j of n rows, width <= COLUMNS.
template <class C, class F, int INPUTS>
class Lines final : public Kernel {
public:
    Lines(const Request& request, int64_t dim, double ns) {
        std::vector<Operand> operands(request.operands.begin(), request.operands.begin() + INPUTS + 1);
        int nd = operands[0].ndim();
        n_ = nd ? operands[0].shape[dim] : 1;
        loops_ = collapse(operands, dims_but(nd, dim));
        int inner = loops_.ndim() - 1;
        lines_ = inner < 0 ? 1 : loops_.shape[inner];
        for (int k = 0; k <= INPUTS; ++k) {
            Part& p = part_[k];
            p.size = size_of(operands[k].dtype);
            p.convert = conversion_of(operands[k].dtype);
            p.along = nd ? operands[k].strides[dim] * p.size : p.size;
            p.line = inner < 0 ? n_ * p.size : loops_.strides[k][inner];
            p.is_direct = p.convert == Convert::none && (p.along == p.size || n_ == 1);
            p.is_column = p.convert == Convert::none && p.line == p.size;
            moved_ += !p.is_column;
        }
        // Rows of so few elements are turned over, and the result: measured. How many there are changes no bits.
        const bool are_few = n_ > 1 && n_ <= (SIMD_WIDTH<float> < 8 ? 6 : 24);
        const bool column_wise = are_few || (lines_ >= 8 && part_[0].line == part_[0].size);  // inputs are brought to that
        part_[0].is_direct &= part_[0].line == n_ * part_[0].size;
        for (const Part& p : part_) staged_ += !p.is_direct;
        bool row_wise = !staged_ && !are_few;
        by_columns_ = column_wise && !row_wise;
        const int64_t columns = moved_ ? std::clamp(CONVERTED / std::max<int64_t>(n_, 1), LEAST_COLUMNS, COLUMNS) : COLUMNS;
        int64_t least = row_wise ? 1 : STAGED_LINES, most = row_wise && n_ >= SHORT ? 8 * LINES_BLOCK : LINES_BLOCK;
        size_ = by_columns_ ? columns : std::max<int64_t>(least, most / std::max<int64_t>(n_, 1));
        size_ = std::max<int64_t>(1, std::min(size_, lines_));
        blocks_ = (lines_ + size_ - 1) / size_;
        items_ = blocks_;
        for (int d = 0; d < inner; ++d) items_ *= loops_.shape[d];
        if (!operands[0].numel()) items_ = 0;
        ns_ = double(size_ * n_) * ns * (row_wise || by_columns_ ? 1 : 2);
        work = double(items_) * ns_;
    }

    void run(char* const* data, const Scalar*) const override {
        parallel_for(items_, ns_, [&](int64_t begin, int64_t end) {
            if (by_columns_) {
                Scratch<C> scratch(moved_ * size_ * n_);
                for (int64_t i = begin; i < end; ++i) run_columns(data, i, scratch.data());
            } else if (staged_) {
                Scratch<C> scratch(staged_ * size_ * n_);
                for (int64_t i = begin; i < end; ++i) run_rows(data, i, scratch.data());
            } else {
                for (int64_t i = begin; i < end; ++i) run_rows(data, i, nullptr);
            }
        });
    }

private:
    struct Part {
        Convert convert;
        bool is_direct, is_column;  // as rows, as columns
        int64_t size, along, line;  // bytes: of an element, from element to element, from line to line
    };

    /// The first element of each operand's block, and how many lines the block has.
    int64_t locate(char* const* data, int64_t item, char** start) const {
        int64_t first = item % blocks_ * size_;
        item /= blocks_;
        for (int k = 0; k <= INPUTS; ++k) start[k] = data[k] + first * part_[k].line;
        loops_.move(start, loops_.ndim() - 1, item);
        return std::min(size_, lines_ - first);
    }

    void run_columns(char* const* data, int64_t item, C* scratch) const {
        char* start[INPUTS + 1];
        const int64_t width = locate(data, item, start), row = width * int64_t(sizeof(C));
        LineBlock<C> x[INPUTS];
        for (int k = 0; k < INPUTS; ++k) {
            const Part& p = part_[k + 1];
            x[k] = {reinterpret_cast<const C*>(start[k + 1]), p.along / int64_t(sizeof(C))};
            if (p.is_column) continue;
            load_tile({reinterpret_cast<char*>(scratch), row, sizeof(C)}, {start[k + 1], p.along, p.line}, n_, width, p.size, p.convert);
            x[k] = {scratch, width};
            scratch += width * n_;
        }
        const Part& out = part_[0];
        F::columns(x, out.is_column ? reinterpret_cast<C*>(start[0]) : scratch, out.is_column ? out.along / int64_t(sizeof(C)) : width, n_, width);
        if (out.is_column) return;
        store_tile({start[0], out.along, out.line}, {reinterpret_cast<char*>(scratch), row, sizeof(C)}, n_, width, out.size, out.convert);
    }

    void run_rows(char* const* data, int64_t item, C* scratch) const {
        char* start[INPUTS + 1];
        int64_t rows = locate(data, item, start);
        LineBlock<C> x[INPUTS];
        for (int k = 0; k < INPUTS; ++k) {
            const Part& p = part_[k + 1];
            if (p.is_direct) {
                x[k] = {reinterpret_cast<const C*>(start[k + 1]), p.line / int64_t(sizeof(C))};
                continue;
            }
            Plane from{start[k + 1], p.line, p.along}, to{reinterpret_cast<char*>(scratch), n_ * int64_t(sizeof(C)), sizeof(C)};
            load_tile(to, from, rows, n_, p.size, p.convert);
            x[k] = {scratch, n_};
            scratch += size_ * n_;
        }
        const Part& out = part_[0];
        F::rows(x, out.is_direct ? reinterpret_cast<C*>(start[0]) : scratch, rows, n_);
        if (out.is_direct) return;
        Plane from{reinterpret_cast<char*>(scratch), n_ * int64_t(sizeof(C)), sizeof(C)}, to{start[0], out.line, out.along};
        store_tile(to, from, rows, n_, out.size, out.convert);
    }

    Loops loops_;
    Part part_[INPUTS + 1];
    int64_t n_, lines_, size_, blocks_, items_;  // size_: lines of a block
    int staged_ = 0, moved_ = 0;                 // operands that go through scratch memory as rows, and as columns
    bool by_columns_;
    double ns_;
};

/// The kernel of a request whose operands have one floating dtype; F<C> computes in float or double.
template <template <class> class F, int INPUTS>
[[gnu::cold]] KernelPtr along_dim(const Request& request, int64_t dim, double ns) {
    const Operand& out = request.operands[0];
    if (!is_floating(out.dtype)) return nullptr;
    if (dim < 0) dim += out.ndim();
    if (out.dtype == DType::f64) return std::make_unique<Lines<double, F<double>, INPUTS>>(request, dim, 2 * ns);
    return std::make_unique<Lines<float, F<float>, INPUTS>>(request, dim, ns);
}

}  // namespace norch::nn
