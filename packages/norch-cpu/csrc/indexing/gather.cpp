// gather, and places of two dims as one: loops over index's shape, in which the tensor that is indexed has stride 0 along
// `dim`.
#include <cstring>

#include "common/operands.h"
#include "indexing/places.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::indexing {
namespace {

/// out[j] = x[j + index[j] * step]; strides in bytes.
using GatherRow = void (*)(char* out, const char* x, const char* index, int64_t n, Strides s, int64_t step,
                           int64_t size);

template <class T>
void gather_row(char* out, const char* x, const char* index, int64_t n, Strides s, int64_t step, int64_t size) {
    constexpr int64_t item = sizeof(T);
    if (s.index == 0) {
        x += wrapped(at<int64_t>(index, 0), size) * step;
        if (s.other == item && s.tensor == item)
            std::memcpy(out, x, size_t(n * item));
        else
            for (int64_t j = 0; j < n; ++j) at<T>(out, j * s.other) = at<T>(x, j * s.tensor);
    } else if (s.index == 8 && s.other == item && s.tensor == 0 && step == item) {
        T* to = reinterpret_cast<T*>(out);
        const T* from = reinterpret_cast<const T*>(x);
        const int64_t* k = reinterpret_cast<const int64_t*>(index);
        each_place(k, n, size, [=](int64_t j, int64_t place) NORCH_INLINE_LAMBDA { to[j] = from[place]; });
    } else {
        for (int64_t j = 0; j < n; ++j) {
            int64_t k = wrapped(at<int64_t>(index, j * s.index), size);
            at<T>(out, j * s.other) = at<T>(x, j * s.tensor + k * step);
        }
    }
}

class Gather final : public Kernel {
public:
    Gather(const Operand& out, const Operand& x, const Operand& index, int dim)
        : loops_(collapse({out, indexed(x, out.shape, dim), index})),
          bounds_(index, -size_along(x, dim), size_along(x, dim)),
          row_(visit_bits(size_of(out.dtype), []<class T>(Tag<T>) -> GatherRow { return gather_row<T>; })),
          step_(stride_along(x, dim)),
          size_(size_along(x, dim)) {
        int nd = loops_.ndim();
        columns_ = nd >= 1 ? loops_.shape[nd - 1] : 1;
        rows_ = nd >= 2 ? loops_.shape[nd - 2] : 1;
        column_ = strides(nd - 1);
        between_rows_ = strides(nd - 2);
        outer_dims_ = std::max(0, nd - 2);
        constexpr int64_t FEW = 16;
        if (columns_ <= FEW && rows_ > FEW && between_rows_.index == 0 && column_.index != 0) {  // one index for many elements
            std::swap(columns_, rows_);
            std::swap(column_, between_rows_);
        }
        double ns = column_.index == 0 && nd ? 0.02 * double(size_of(out.dtype)) : 1;
        tile_columns_ = std::clamp<int64_t>(columns_, 1, 4096);
        tile_rows_ = std::clamp<int64_t>(4096 / tile_columns_, 1, std::max<int64_t>(rows_, 1));
        column_tiles_ = (columns_ + tile_columns_ - 1) / tile_columns_;
        row_tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_;
        items_ = column_tiles_ * row_tiles_;
        for (int d = 0; d < outer_dims_; ++d) items_ *= loops_.shape[d];
        ns_ = ns * double(tile_rows_ * tile_columns_) + 5 * double(tile_rows_);
        work = double(items_) * ns_ + bounds_.work();
    }

    void run(char* const* data, const Scalar*) const override {
        bounds_.check(data[2]);
        parallel_for(items_, ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) run_tile(data, i);
        });
    }

private:
    Strides strides(int d) const {
        if (d < 0) return {0, 0, 0};
        return {loops_.strides[1][d], loops_.strides[2][d], loops_.strides[0][d]};
    }

    void run_tile(char* const* data, int64_t item) const {
        int64_t row = item % row_tiles_ * tile_rows_;
        item /= row_tiles_;
        int64_t column = item % column_tiles_ * tile_columns_;
        item /= column_tiles_;
        char* at[] = {data[0] + column * column_.other + row * between_rows_.other,
                      data[1] + column * column_.tensor + row * between_rows_.tensor,
                      data[2] + column * column_.index + row * between_rows_.index};
        loops_.move(at, outer_dims_, item);
        auto [out, x, index] = at;
        int64_t columns = std::min(tile_columns_, columns_ - column);
        for (int64_t r = std::min(tile_rows_, rows_ - row); r > 0; --r) {
            row_(out, x, index, columns, column_, step_, size_);
            out += between_rows_.other;
            x += between_rows_.tensor;
            index += between_rows_.index;
        }
    }

    Loops loops_;
    Bounds bounds_;
    GatherRow row_;
    int64_t step_, size_;
    Strides column_, between_rows_;
    int outer_dims_;
    int64_t rows_, columns_, tile_rows_, tile_columns_, row_tiles_, column_tiles_, items_;
    double ns_;
};

// --- places of two dims ---------------------------------------------------------------------------------------------

/// out = a * sizes[1] + b: places along two dims as places along one.
[[gnu::cold]] KernelPtr make_flat_index(const Request& r) {
    const std::vector<int64_t>& sizes = r.attrs.integers("sizes");
    const int64_t first = sizes.at(0), second = sizes.at(1);
    const Bounds bounds_a(r.operands[1], -first, first), bounds_b(r.operands[2], -second, second);
    const Loops loops = collapse(r.operands);
    const int outer = std::max(loops.ndim() - 1, 0);
    const int64_t n = loops.ndim() ? loops.shape.back() : 1, rows = n ? loops.numel / n : 0;
    int64_t step[3] = {8, 8, 8};
    for (size_t i = 0; i < 3 && loops.ndim(); ++i) step[i] = loops.strides[i].back();
    const bool is_dense = step[0] == 8 && step[1] == 8 && step[2] == 8;
    const double ns = 1.0 * double(n);
    const double work = ns * double(rows) + bounds_a.work() + bounds_b.work();
    return make_kernel(work, [=, step0 = step[0], step1 = step[1], step2 = step[2]](char* const* data, const Scalar*) {
        bounds_a.check(data[1]);
        bounds_b.check(data[2]);
        parallel_for(rows, ns, [&](int64_t begin, int64_t end) {
            Walker row(loops, outer, data, begin);
            for (int64_t i = begin; i < end; ++i, row.next()) {
                if (is_dense) {
                    int64_t* out = reinterpret_cast<int64_t*>(row[0]);
                    const int64_t *a = reinterpret_cast<const int64_t*>(row[1]), *b = reinterpret_cast<const int64_t*>(row[2]);
                    NORCH_INDEPENDENT
                    for (int64_t j = 0; j < n; ++j) out[j] = wrapped(a[j], first) * second + wrapped(b[j], second);
                } else {
                    for (int64_t j = 0; j < n; ++j)
                        at<int64_t>(row[0], j * step0) = wrapped(at<int64_t>(row[1], j * step1), first) * second +
                                                         wrapped(at<int64_t>(row[2], j * step2), second);
                }
            }
        });
    });
}

[[gnu::cold]] KernelPtr make_gather(const Request& r) {
    return std::make_unique<Gather>(r.operands[0], r.operands[1], r.operands[2], int(r.attrs.integer("dim")));
}

}  // namespace

void add_gather(Registry& registry) {
    registry["gather"] = make_gather;
    registry["flat_index"] = make_flat_index;
}

}  // namespace norch::indexing
