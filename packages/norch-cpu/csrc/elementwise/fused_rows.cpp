// fused_rows: an elementwise program whose steps may also reduce rows of the last dim, one row after the other.
#include <algorithm>
#include <cstring>

#include "common/layout.h"
#include "elementwise/fused_program.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::elementwise {
namespace {

constexpr int64_t SHORTEST = 512;      // elements of a row that are worth the calls of the instructions
constexpr int64_t LONGEST = 16384;     // elements: reductions of longer rows may be cut in pieces by the separate kernels
constexpr int64_t CACHED = 256 << 10;  // bytes of all registers: a part of the second-level cache
constexpr double INSTRUCTION_NS = 8;   // what a call takes besides its elements

class FusedRows final : public Kernel {
public:
    /// Returns null where there is no such kernel.
    static KernelPtr make(const Request& request, int64_t columns) {
        auto kernel = std::unique_ptr<FusedRows>(new FusedRows(request, columns));
        return kernel->is_planned_ ? std::move(kernel) : nullptr;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        uint64_t slots[SLOTS];
        write_slots(program_, scalars, slots);
        parallel_for(rows_.numel, row_ns_, [&](int64_t begin, int64_t end) {
            Scratch<> scratch(register_bytes_ * program_.registers + 1);
            char* table[TABLE];
            for (int i = 0; i < program_.registers; ++i)
                table[FIRST_REGISTER + i] = scratch.data() + i * register_bytes_;
            for (size_t i = 0; i < program_.slots.size(); ++i)
                table[FIRST_SLOT + int(i)] = reinterpret_cast<char*>(&slots[i]);
            Walker at(rows_, rows_.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, at.next()) run_row(at.pointers(), table);
        });
    }

private:
    FusedRows(const Request& request, int64_t columns)
        : columns_(columns), rows_(collapse(request.operands, dims_but(request.operands[0].ndim(), request.operands[0].ndim() - 1))) {
        std::vector<OperandPlan> plans;
        for (const Operand& operand : request.operands) {
            OperandPlan plan{};
            plan.is_direct = true;
            if (!operand.is_scalar) {
                const bool is_output = plans.size() < request.attrs.integers("results").size();
                plan.is_of_row = operand.shape.back() == 1;
                plan.is_broadcast = !plan.is_of_row && operand.strides.back() == 0 && !is_output;
                if (!plan.is_of_row && !plan.is_broadcast && operand.strides.back() != 1) return;
                sizes_.push_back((plan.is_of_row ? 1 : columns) * size_of(operand.dtype));
            } else {
                sizes_.push_back(0);
            }
            plans.push_back(plan);
        }
        if (!plan_fused(request, std::move(plans), &program_, columns)) return;
        register_bytes_ = (columns * program_.register_size + 127) / 64 * 64;
        if (register_bytes_ * program_.registers > CACHED) return;
        row_ns_ = program_.ns * double(columns) + INSTRUCTION_NS * double(program_.instructions.size());
        work = double(rows_.numel) * row_ns_;
        is_planned_ = true;
    }

    void run_row(char* const* data, char** table) const {
        std::copy_n(data, sizes_.size(), table);
        for (const Instruction& one : program_.instructions) {
            char* p[6];
            for (int k = 0; k < one.count; ++k) p[k] = table[one.at[k]];
            if (one.fold) one.fold->run(p, nullptr);
            else one.loop(p, one.broadcast, one.is_of_row ? 1 : columns_);
        }
        for (int i = 0; i < program_.outputs; ++i) {
            const int from = program_.operands[size_t(i)].at;
            if (from != i) std::memcpy(table[i], table[from], size_t(sizes_[size_t(i)]));
        }
    }

    int64_t columns_;
    Loops rows_;
    FusedProgram program_;
    std::vector<int64_t> sizes_;  // bytes of an operand's row
    int64_t register_bytes_ = 0;
    double row_ns_ = 0;
    bool is_planned_ = false;
};

[[gnu::cold]] KernelPtr fused_rows(const Request& request) {
    const auto& operands = request.operands;
    if (operands.empty() || operands[0].is_scalar || operands[0].shape.empty())
        throw std::invalid_argument("a fused program of rows without outputs, or of 0 dims");
    if (operands.size() > size_t(OPERANDS)) return nullptr;
    std::vector<int64_t> row, full;
    for (const Operand& operand : operands) {
        if (operand.is_scalar) continue;
        if (operand.shape.empty()) throw std::invalid_argument("an operand of a fused program of rows has 0 dims");
        if (full.empty() || operand.shape.back() > full.back()) full = operand.shape;
    }
    row = full;
    row.back() = 1;
    for (const Operand& operand : operands)
        if (!operand.is_scalar && operand.shape != full && operand.shape != row)
            throw std::invalid_argument("the operands of a fused program of rows have different shapes");
    if (full.back() < SHORTEST || full.back() > LONGEST) return nullptr;
    return FusedRows::make(request, full.back());
}

}  // namespace

void add_fused_rows(Registry& registry) { registry["fused_rows"] = fused_rows; }

}  // namespace norch::elementwise
