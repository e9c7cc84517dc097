// The driver of elementwise kernels: brings operands of any layout to the contiguous loops of loop.h, tile by tile.
#include "elementwise/elementwise.h"

#include <algorithm>
#include <cstring>

#include "common/layout.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::elementwise {
namespace {

constexpr int MAX_OPERANDS = 6;
constexpr int64_t TILE = 2048;          // elements of a tile: its scratch memory stays in the first-level cache
constexpr int64_t SEGMENT = 16384;      // elements of a piece that is read where it lies: enough to forget its start
constexpr double TILE_NS = 2500;        // of rows that are read where they lie: the same, and many for many threads
constexpr int64_t TRANSPOSED_SIDE = 64; // columns of a tile with a transposed operand
constexpr int64_t SHORT_ROW = 16;       // columns of rows that are not worth a call of the loop each
constexpr int64_t SHORT_ROW_OF_SMALL = 128;  // the same where some have a byte or two, of which a vector holds many

class Elementwise final : public ElementwiseKernel {
public:
    Elementwise(const Request& request, Loop loop, double ns, unsigned flags, Loop narrow)
        : loop_(loop), given_loop_(loop), ns_(ns), flags_(flags), count_(int(request.operands.size())), loops_(collapse(request.operands)) {
        if (count_ > MAX_OPERANDS) throw std::invalid_argument("too many operands for an elementwise kernel");
        work = double(loops_.numel) * ns;
        transposed_ = move_contiguous_dim(loops_, request.operands);
        if (narrow && has_row(request.operands)) loop_ = narrow, is_narrow_ = true;
        plan_operands(request.operands, flags);
        plan_tiles();
    }

    void run(char* const* data, const Scalar* scalars) const override {
        uint64_t slots[MAX_OPERANDS];
        char* given[MAX_OPERANDS];
        for (int i = 0; i < count_; ++i) {
            given[i] = data[i];
            if (part_[i].is_scalar) {
                write_scalar(&slots[i], scalars[i], part_[i].dtype, part_[i].loop_size == part_[i].size, part_[i].rounds);
                given[i] = reinterpret_cast<char*>(&slots[i]);
            }
        }
        if (is_simple_ && items_ == 1) {
            loop_(given, broadcast_, columns_);
            return;
        }
        parallel_for(items_, ns_ * double(tile_rows_ * tile_columns_), [&](int64_t begin, int64_t end) {
            if (scratch_bytes_) {
                Scratch<> scratch(scratch_bytes_);
                for (int64_t i = begin; i < end; ++i) run_tile(given, i, scratch.data());
            } else {
                for (int64_t i = begin; i < end; ++i) run_tile(given, i, nullptr);
            }
        });
    }

    Inner inner() const override { return {given_loop_, ns_, flags_, {}}; }

private:
    struct Part {
        bool is_scalar, via_scratch;
        bool rounds;  // a comparison sees a scalar as a number of the tensor's dtype
        Convert convert;
        DType dtype;
        int64_t size, loop_size;  // bytes of an element in memory, and in the loop
        int64_t row, column;      // byte strides of the two inner dims
        int64_t scratch;          // where its tile lies in the scratch memory
    };

    /// Whether an input is not broadcast along the inner dim.
    bool has_row(const std::vector<Operand>& operands) const {
        for (int i = 1; i < count_; ++i)
            if (!operands[i].is_scalar && (loops_.ndim() == 0 || loops_.strides[i].back() != 0)) return true;
        return false;
    }

    void plan_operands(const std::vector<Operand>& operands, unsigned flags) {
        int nd = loops_.ndim();
        rows_ = nd >= 2 ? loops_.shape[nd - 2] : 1;
        columns_ = nd >= 1 ? loops_.shape[nd - 1] : 1;
        outer_dims_ = std::max(0, nd - 2);
        bool all_broadcast = true;
        for (int i = 0; i < count_; ++i) {
            const Operand& o = operands[i];
            Part& p = part_[i];
            p.is_scalar = o.is_scalar;
            p.dtype = o.dtype;
            p.rounds = operands[0].dtype == DType::boolean;
            p.size = size_of(o.dtype);
            p.row = nd >= 2 ? loops_.strides[i][nd - 2] : 0;
            p.column = o.is_scalar ? 0 : nd >= 1 ? loops_.strides[i][nd - 1] : p.size;
            bool is_broadcast = i > 0 && p.column == 0;
            p.convert = flags & BITS || (is_narrow_ && !is_broadcast) ? Convert::none : conversion_of(o.dtype);
            p.loop_size = p.convert == Convert::none ? p.size : 4;
            if (is_broadcast) broadcast_ |= 1u << i;
            else if (i > 0) all_broadcast = false;
            // A scalar is put where it is needed in the loop's own dtype.
            p.via_scratch = !o.is_scalar && (p.convert != Convert::none || (!is_broadcast && p.column != p.size));
            if (o.is_scalar) p.convert = Convert::none;
        }
        if (all_broadcast && count_ > 1 && !(flags & TAKES_BROADCAST)) {
            part_[1].via_scratch = true;
            broadcast_ &= ~2u;
        }
    }

    /// Short rows are laid one behind the other, so that the loop goes over a whole tile; what is repeated only in rows or
    /// only in columns is written out for that.
    void join_rows() {
        int64_t smallest = 8;
        for (int i = 0; i < count_; ++i)
            if (!part_[i].is_scalar) smallest = std::min(smallest, part_[i].size);
        if (columns_ < 2 || columns_ > (smallest <= 2 ? SHORT_ROW_OF_SMALL : SHORT_ROW) || rows_ < 16) return;
        if (columns_ > SHORT_ROW && (columns_ % 64 == 0 || transposed_)) return;  // where 64 divides them nothing is left over
        unsigned ones = 0;
        for (int i = 0; i < count_; ++i) {
            const Part& p = part_[i];
            if (i && (p.is_scalar || (p.row == 0 && p.column == 0))) ones |= 1u << i;
        }
        if (count_ == 1 || ones == (1u << count_) - 2) return;
        joins_rows_ = true;
        broadcast_ = ones;
        for (int i = 0; i < count_; ++i) {
            Part& p = part_[i];
            const bool is_one = ones >> i & 1;
            if (is_narrow_ && !is_one) p.convert = Convert::none, p.loop_size = p.size;  // it is broadcast no more
            const bool is_dense = is_one || (p.column == p.size && p.row == columns_ * p.size);
            p.via_scratch = p.convert != Convert::none || !is_dense;
        }
    }

    void plan_tiles() {
        join_rows();
        bool staged = false;
        for (int i = 0; i < count_; ++i) staged |= part_[i].via_scratch;
        tile_columns_ = std::min(columns_, transposed_ ? TRANSPOSED_SIDE : staged ? TILE : SEGMENT);
        tile_columns_ = std::max<int64_t>(tile_columns_, 1);
        const int64_t in_place = int64_t(std::clamp(TILE_NS / ns_, double(TILE), double(SEGMENT)));
        const int64_t tile = !staged ? in_place : transposed_ && part_[0].size <= 4 ? 2 * TILE : TILE;
        tile_rows_ = std::min(rows_, std::max<int64_t>(1, tile / tile_columns_));
        tile_rows_ = std::max<int64_t>(tile_rows_, 1);
        row_tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_;
        column_tiles_ = (columns_ + tile_columns_ - 1) / tile_columns_;
        items_ = row_tiles_ * column_tiles_;
        for (int d = 0; d < outer_dims_; ++d) items_ *= loops_.shape[d];
        for (int i = 0; i < count_; ++i) {
            if (!part_[i].via_scratch) continue;
            part_[i].scratch = scratch_bytes_;
            scratch_bytes_ += (tile_rows_ * tile_columns_ * part_[i].loop_size + 63) / 64 * 64;
        }
        is_simple_ = !staged && rows_ == 1;
    }

    void run_tile(char* const* data, int64_t item, char* scratch) const {
        int64_t column = item % column_tiles_ * tile_columns_;
        item /= column_tiles_;
        int64_t row = item % row_tiles_ * tile_rows_;
        item /= row_tiles_;
        int64_t rows = std::min(tile_rows_, rows_ - row), columns = std::min(tile_columns_, columns_ - column);
        char* start[MAX_OPERANDS];
        std::copy_n(data, count_, start);
        loops_.move(start, outer_dims_, item);
        Plane plane[MAX_OPERANDS];  // where the loop finds each operand
        Plane out{};
        for (int i = 0; i < count_; ++i) {
            const Part& p = part_[i];
            plane[i] = {data[i], p.row, p.column};
            if (p.is_scalar) {
                if (p.via_scratch) fill_tile(plane[i], scratch + p.scratch, p, rows, columns);
                continue;
            }
            plane[i].data = start[i] + row * p.row + column * p.column;
            if (!p.via_scratch) continue;
            bool is_broadcast = broadcast_ >> i & 1;
            Plane staged{scratch + p.scratch, is_broadcast ? p.loop_size : tile_columns_ * p.loop_size, p.loop_size};
            if (i == 0) out = plane[0];
            else load_tile(staged, plane[i], rows, is_broadcast ? 1 : columns, p.size, p.convert);
            plane[i] = staged;
        }
        char* p[MAX_OPERANDS];
        for (int i = 0; i < count_; ++i) p[i] = plane[i].data;
        if (joins_rows_) {
            loop_(p, broadcast_, rows * columns);
        } else {
            for (int64_t r = 0; r < rows; ++r) {
                loop_(p, broadcast_, columns);
                for (int i = 0; i < count_; ++i) p[i] += plane[i].row;
            }
        }
        if (part_[0].via_scratch) store_tile(out, plane[0], rows, columns, part_[0].size, part_[0].convert);
    }

    void fill_tile(Plane& plane, char* staged, const Part& p, int64_t rows, int64_t columns) const {
        Plane to{staged, tile_columns_ * p.loop_size, p.loop_size};
        copy_tile(to, {plane.data, 0, 0}, rows, columns, p.loop_size);
        plane = to;
    }

    Loop loop_, given_loop_;
    bool is_narrow_ = false;
    double ns_;
    unsigned flags_;
    int count_;
    Loops loops_;
    int outer_dims_ = 0;
    Part part_[MAX_OPERANDS] = {};
    unsigned broadcast_ = 0;
    bool transposed_ = false, is_simple_ = false, joins_rows_ = false;
    int64_t rows_ = 1, columns_ = 1, tile_rows_ = 1, tile_columns_ = 1, row_tiles_ = 1, column_tiles_ = 1;
    int64_t items_ = 1, scratch_bytes_ = 0;
};

}  // namespace

void write_scalar(void* to, Scalar value, DType dtype, bool as_bits, bool rounds) {
    if (!is_floating(dtype)) {
        std::memcpy(to, &value.i, 8);  // little endian: the low bytes come first
        return;
    }
    visit_floating(dtype, [&]<class T>(Tag<T>) {
        const auto exact = compute_t<T>(value.f);
        const T stored = store<T>(exact);
        const compute_t<T> seen = rounds ? load(stored) : exact;
        if (as_bits) std::memcpy(to, &stored, sizeof stored);
        else std::memcpy(to, &seen, sizeof seen);
    });
}

bool move_contiguous_dim(Loops& loops, const std::vector<Operand>& operands) {
    const int nd = loops.ndim();
    for (size_t k = 0; k < operands.size() && nd >= 2; ++k) {
        const int64_t size = size_of(operands[k].dtype), inner = loops.strides[k][nd - 1];
        if (inner == size || inner == 0) continue;
        for (int d = 0; d < nd - 1; ++d) {
            if (loops.strides[k][d] != size) continue;
            std::rotate(loops.shape.begin() + d, loops.shape.begin() + d + 1, loops.shape.begin() + nd - 1);
            for (auto& s : loops.strides) std::rotate(s.begin() + d, s.begin() + d + 1, s.begin() + nd - 1);
            return true;
        }
    }
    return false;
}

[[gnu::cold]] KernelPtr elementwise_kernel(const Request& request, Loop loop, double ns, unsigned flags, Loop narrow) {
    return std::make_unique<Elementwise>(request, loop, ns, flags, narrow);
}

}  // namespace norch::elementwise
