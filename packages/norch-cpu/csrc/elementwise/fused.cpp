// fused: an elementwise program, instruction by instruction over tiles that stay in the first-level cache.
#include <algorithm>
#include <cstring>

#include "common/layout.h"
#include "elementwise/fused_program.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::elementwise {
namespace {

constexpr int64_t TILE = 512;            // elements: a dozen registers stay in the first-level cache
constexpr int64_t LARGEST = 1536;        // of a tile of several rows
constexpr int64_t SHORT_ROW = 256;       // columns: of shorter rows a tile has several
constexpr int64_t LANES = 16;            // elements that do not fill so many take as long each
constexpr int64_t TRANSPOSED_SIDE = 32;  // columns of a tile with a transposed operand

/// How many rows make a tile that instructions take the least time for.
int64_t rows_of_tile(int64_t rows, int64_t columns) {
    int64_t best = 1;
    double least = 1e9;
    for (int64_t r = 1; r <= rows && r * columns <= LARGEST; ++r) {
        const double start = 4, cost = (start + double(r * columns / LANES + r * columns % LANES)) / double(r * columns);
        if (cost < least) least = cost, best = r;
    }
    return best;
}

class Fused final : public Kernel {
public:
    /// Returns null where there is no such kernel.
    static KernelPtr make(const Request& request) {
        auto kernel = std::unique_ptr<Fused>(new Fused(request));
        return kernel->is_planned_ ? std::move(kernel) : nullptr;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        uint64_t slots[SLOTS];
        write_slots(program_, scalars, slots);
        parallel_for(items_, program_.ns * double(pieces_ * tile_rows_ * tile_columns_), [&](int64_t begin, int64_t end) {
            Scratch<> scratch(register_bytes_ * program_.registers);
            char* table[TABLE];
            for (int i = 0; i < program_.registers; ++i)
                table[FIRST_REGISTER + i] = scratch.data() + i * register_bytes_;
            for (size_t i = 0; i < program_.slots.size(); ++i)
                table[FIRST_SLOT + int(i)] = reinterpret_cast<char*>(&slots[i]);
            Kept kept[OPERANDS] = {};
            for (int64_t i = begin; i < end; ++i) run_tile(data, i, table, kept);
        });
    }

private:
    struct Step {
        int64_t size, row, column;  // bytes: of an element, between elements of the two inner dims
    };
    /// What is in the register of an operand already.
    struct Kept {
        const char* from;
        int64_t size, columns;

        bool holds(const Kept& other) const {
            return from == other.from && size >= other.size && columns == other.columns;
        }
    };

    explicit Fused(const Request& request) : count_(int(request.operands.size())), loops_(collapse(request.operands)) {
        const bool transposed = move_contiguous_dim(loops_, request.operands);
        const int nd = loops_.ndim();
        rows_ = nd >= 2 ? loops_.shape[nd - 2] : 1;
        columns_ = nd >= 1 ? loops_.shape[nd - 1] : 1;
        outer_dims_ = std::max(0, nd - 2);
        const bool several_rows = columns_ < SHORT_ROW || (columns_ <= LARGEST / 2 && columns_ % LANES);
        tile_columns_ = std::clamp<int64_t>(columns_, 1, transposed ? TRANSPOSED_SIDE : TILE);
        if (several_rows && !transposed) tile_columns_ = std::max<int64_t>(columns_, 1);
        tile_rows_ = transposed ? TILE / tile_columns_ : several_rows ? rows_of_tile(rows_, tile_columns_) : 1;
        tile_rows_ = std::clamp<int64_t>(tile_rows_, 1, std::max<int64_t>(rows_, 1));
        row_tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_;
        column_tiles_ = (columns_ + tile_columns_ - 1) / tile_columns_;
        for (int d = 0; d < outer_dims_; ++d) outer_ *= loops_.shape[d];
        if (row_tiles_ * column_tiles_ == 1)
            pieces_ = std::clamp<int64_t>(TILE / std::max<int64_t>(rows_ * columns_, 1), 1, std::max<int64_t>(outer_, 1));
        items_ = row_tiles_ * column_tiles_ * ((outer_ + pieces_ - 1) / pieces_);
        std::vector<OperandPlan> plans;
        for (size_t i = 0; i < request.operands.size(); ++i)
            plans.push_back(lie(loops_.strides[i], size_of(request.operands[i].dtype)));
        is_planned_ = plan_fused(request, std::move(plans), &program_);
        work = double(loops_.numel) * program_.ns;
        for (int i = 0; i < program_.outputs && is_planned_; ++i) stores_ |= program_.operands[size_t(i)].at != i;
        register_bytes_ = (pieces_ * tile_rows_ * tile_columns_ * program_.register_size + 127) / 64 * 64;
    }

    /// How an operand of these strides lies in a tile.
    OperandPlan lie(const std::vector<int64_t>& strides, int64_t size) {
        const int nd = loops_.ndim();
        const Step s{size, nd >= 2 ? strides[nd - 2] : 0, nd >= 1 ? strides[nd - 1] : size};
        step_.push_back(s);
        const bool one_row = tile_rows_ == 1 && pieces_ == 1;
        bool is_dense = s.column == size && (one_row || tile_columns_ == columns_);
        bool is_everywhere = nd >= 1 && s.column == 0;
        bool is_alike = true;  // in all pieces
        int64_t expected = size * columns_;
        for (int d = nd - 2; d >= (pieces_ > 1 ? 0 : nd - 2) && d >= 0; --d) {
            is_dense &= one_row || strides[size_t(d)] == expected;
            is_everywhere &= one_row || strides[size_t(d)] == 0;
            if (d < outer_dims_) is_alike &= strides[size_t(d)] == 0;
            expected *= loops_.shape[size_t(d)];
        }
        OperandPlan plan{};
        plan.is_broadcast = is_everywhere;
        plan.is_direct = is_everywhere || is_dense;
        plan.is_kept = !plan.is_direct && s.row == 0 && is_alike;
        plan.at = NOWHERE;
        return plan;
    }

    void run_tile(char* const* data, int64_t item, char** table, Kept* kept) const {
        const int64_t column = item % column_tiles_ * tile_columns_;
        item /= column_tiles_;
        const int64_t row = item % row_tiles_ * tile_rows_;
        item = item / row_tiles_ * pieces_;
        const int64_t rows = std::min(tile_rows_, rows_ - row), columns = std::min(tile_columns_, columns_ - column);
        const int64_t pieces = std::min(pieces_, outer_ - item), size = rows * columns;
        std::copy_n(data, count_, table);
        loops_.move(table, outer_dims_, item);
        for (int i = 0; i < count_; ++i) table[i] += row * step_[i].row + column * step_[i].column;
        char* first[OPERANDS];
        std::copy_n(table, count_, first);
        each_piece(first, item, pieces, [&](char* const* at, int64_t piece) {
            for (int i = program_.outputs; i < count_; ++i) {
                const OperandPlan& plan = program_.operands[i];
                if (plan.at < FIRST_REGISTER || plan.at >= FIRST_SLOT) continue;
                const Kept wanted{first[i], (piece + 1) * size, columns};
                if (plan.is_kept && kept[i].holds(wanted)) continue;
                kept[i] = wanted;
                stage(table[plan.at] + piece * size * step_[i].size, at[i], step_[i], rows, columns);
            }
        });
        for (const Instruction& one : program_.instructions) {
            char* p[6];
            for (int k = 0; k < one.count; ++k) p[k] = table[one.at[k]];
            one.loop(p, one.broadcast, pieces * size);
        }
        if (!stores_) return;
        each_piece(first, item, pieces, [&](char* const* at, int64_t piece) {
            for (int i = 0; i < program_.outputs; ++i) {
                const Step& s = step_[i];
                const int from = program_.operands[i].at;
                if (from == i) continue;
                const Plane made{table[from] + piece * size * s.size, columns * s.size, s.size};
                copy_tile({at[i], s.row, s.column}, made, rows, columns, s.size);
            }
        });
    }

    /// Calls f(where the operands of a piece begin, its number) for some pieces, of which the first is number `item`.
    template <class F>
    void each_piece(char* const* first, int64_t item, int64_t pieces, const F& f) const {
        f(first, 0);
        if (pieces == 1) return;
        char* at[OPERANDS];
        std::copy_n(first, count_, at);
        for (int64_t piece = 1; piece < pieces; ++piece) {
            int64_t index = item + piece;
            for (int d = outer_dims_ - 1; d >= 0; index /= loops_.shape[d--]) {
                const bool wraps = index % loops_.shape[d] == 0;
                const int64_t steps = wraps ? 1 - loops_.shape[d] : 1;
                for (int i = 0; i < count_; ++i) at[i] += steps * loops_.strides[i][d];
                if (!wraps) break;
            }
            f(at, piece);
        }
    }

    /// Moves an operand's elements to a register, row by row without gaps.
    static void stage(char* to, char* from, const Step& s, int64_t rows, int64_t columns) {
        const Plane made{to, columns * s.size, s.size};
        if (s.column != 0) return copy_tile(made, {from, s.row, s.column}, rows, columns, s.size);
        visit_bits(s.size, [&]<class T>(Tag<T>) {
            for (int64_t i = 0; i < rows; ++i)
                std::fill_n(reinterpret_cast<T*>(to) + i * columns, columns, *reinterpret_cast<T*>(from + i * s.row));
        });
    }

    int count_;
    Loops loops_;
    int outer_dims_ = 0;
    int64_t rows_ = 1, columns_ = 1, tile_rows_ = 1, tile_columns_ = 1, row_tiles_ = 1, column_tiles_ = 1;
    int64_t outer_ = 1, pieces_ = 1, items_ = 1;  // pieces: of a tile, each of rows and columns
    std::vector<Step> step_;
    FusedProgram program_;
    bool is_planned_ = false, stores_ = false;
    int64_t register_bytes_ = 0;
};

/// One step of 16-bit floats with conversions of what it reads: kernels of their own keep more in registers.
[[gnu::cold]] bool is_quicker_apart(const Request& request) {
    const std::vector<FusedStep> steps = fused_steps(request);
    if (steps.size() == 1 || !is_half(steps.back().dtype)) return false;
    return std::all_of(steps.begin(), steps.end() - 1, [](const FusedStep& step) { return step.op == "copy"; });
}

[[gnu::cold]] KernelPtr fused(const Request& request) {
    const auto& operands = request.operands;
    if (operands.empty() || operands[0].is_scalar) throw std::invalid_argument("a fused program without outputs");
    if (operands.size() > size_t(OPERANDS)) return nullptr;
    for (const Operand& operand : operands)
        if (!operand.is_scalar && operand.shape != operands[0].shape)
            throw std::invalid_argument("the operands of a fused program have different shapes");
    return is_quicker_apart(request) ? nullptr : Fused::make(request);
}

}  // namespace

void add_fused(Registry& registry) { registry["fused"] = fused; }

}  // namespace norch::elementwise
