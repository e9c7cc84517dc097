#include "elementwise/fused_program.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "elementwise/superinstructions.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

constexpr int FIRST_VALUE = TABLE;  // results of instructions, numbered until they get registers
constexpr int64_t SOME = 64;        // elements of the operands that a step's kernel is asked for with

const Registry& loops_by_op() {
    static const Registry all = [] {
        Registry found;
        for (auto add : {add_arithmetic, add_copying, add_weighted, add_transcendental, add_activations}) add(found);
        found.erase("mse_loss_grad");  // by the number of elements, which here is another
        return found;
    }();
    return all;
}

const Registry& folds_by_op() {
    static const Registry all = [] {
        Registry found, chosen;
        reduction::add_reductions(found);
        for (const char* op : {"sum", "prod", "amax", "amin"}) chosen[op] = found.at(op);
        return chosen;
    }();
    return all;
}

bool is_comparison(const std::string& op) {
    static const std::set<std::string> ops = {"eq", "ne", "lt", "le", "gt", "ge"};
    return ops.count(op) != 0;
}

size_t inputs_of(const std::string& op) {
    static const std::set<std::string> two = {
        "add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "atan2", "maximum", "minimum", "bitwise_and",
        "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"};
    if (op == "where" || op == "clamp" || op == "axpy" || op == "lerp_by_tensor") return 3;
    if (op == "addcmul" || op == "addcdiv" || op == "lerp") return 4;
    const bool is_gradient = op.size() > 5 && op.compare(op.size() - 5, 5, "_grad") == 0;
    return two.count(op) || is_comparison(op) || is_gradient ? 2 : 1;
}

/// How many of its last inputs are scalars for sure.
size_t scalars_of(const std::string& op) {
    if (op == "lerp") return 2;
    return op == "clamp" || op == "axpy" || op == "addcmul" || op == "addcdiv";
}

Operand vector_of(DType dtype, bool is_scalar) {
    Operand out{dtype, {}, {}, is_scalar};
    if (!is_scalar) out.shape = {SOME}, out.strides = {1};
    return out;
}

/// An operand, or a step's result: where it is as it lies in memory, and, of 16-bit floats, as float32.
struct Value {
    DType dtype;
    bool is_scalar = false, is_broadcast = false, is_of_row = false;
    int raw = NOWHERE, wide = NOWHERE;
};

class Planner {
public:
    Planner(const Request& request, FusedProgram& program, int64_t row)
        : request_(request),
          program_(program),
          row_(row),
          steps_(fused_steps(request)),
          results_(request.attrs.integers("results")) {}

    bool plan() {
        check_results();
        for (const Operand& operand : request_.operands) values_.push_back({operand.dtype, operand.is_scalar});
        for (size_t i = 0; i < values_.size(); ++i) {
            if (values_[i].is_scalar) continue;
            values_[i].is_broadcast = program_.operands[i].is_broadcast;
            values_[i].is_of_row = program_.operands[i].is_of_row;
            values_[i].raw = program_.operands[i].is_direct ? int(i) : new_value(values_[i].dtype, -1);
        }
        for (const FusedStep& step : steps_) {
            inner_.push_back(is_fold(step) ? Inner{} : inner_of(step));
            if (is_fold(step) ? !may_fold(step) : !inner_.back().loop) return false;
            values_.push_back({step.dtype});
            values_.back().is_of_row = is_fold(step) || reads_rows_only(step);
        }
        for (int i = 0; i < program_.outputs; ++i)
            if (program_.operands[size_t(i)].is_of_row != value_of_step(results_[size_t(i)]).is_of_row)
                throw std::invalid_argument("result " + std::to_string(i) + " of a fused program is of another shape");
        find_pairs();
        for (size_t k = 0; k < steps_.size(); ++k) {
            if (absorbed_[k]) continue;
            if (is_fold(steps_[k])) emit_fold(int(k));
            else if (first_of_pair_[k] >= 0) emit_pair(int(k), first_of_pair_[k]);
            else emit(int(k));
        }
        if (int(program_.slots.size()) > SLOTS) return false;
        place_operands();
        return give_registers();
    }

private:
    void check_results() {
        program_.outputs = int(results_.size());
        if (results_.empty() || results_.size() >= request_.operands.size())
            throw std::invalid_argument("a fused program with " + std::to_string(results_.size()) + " results of " +
                                        std::to_string(request_.operands.size()) + " operands");
        for (size_t i = 0; i < results_.size(); ++i) {
            const Operand& out = request_.operands[i];
            if (results_[i] < 0 || results_[i] >= int64_t(steps_.size()) || out.is_scalar ||
                out.dtype != steps_[size_t(results_[i])].dtype)
                throw std::invalid_argument("result " + std::to_string(i) + " of a fused program is none of its steps'");
        }
        for (const FusedStep& step : steps_)
            for (auto read : step.reads)
                if (!read.is_step && read.index < program_.outputs)
                    throw std::invalid_argument("a step of a fused program reads an output");
    }

    Value& value_of_step(int64_t k) { return values_[request_.operands.size() + size_t(k)]; }

    bool is_fold(const FusedStep& step) const { return row_ > 0 && folds_by_op().count(step.op); }
    bool may_fold(const FusedStep& step) const {
        if (step.reads.size() != 1 || !is_floating(step.dtype) || dtype_of(step.reads[0]) != step.dtype) return false;
        const Value& x = values_[size_t(number_of(step.reads[0]))];
        return !x.is_scalar && !x.is_broadcast && !x.is_of_row;
    }
    bool reads_rows_only(const FusedStep& step) const {
        bool found = false;
        for (auto read : step.reads) {
            const Value& value = values_[size_t(number_of(read))];
            if (!value.is_scalar && !value.is_of_row) return false;
            found |= value.is_of_row;
        }
        return found;
    }

    int number_of(FusedStep::Read read) const {
        return read.is_step ? int(request_.operands.size()) + read.index : read.index;
    }

    DType dtype_of(FusedStep::Read read) const {
        return read.is_step ? steps_[size_t(read.index)].dtype : request_.operands[size_t(read.index)].dtype;
    }
    bool is_scalar(FusedStep::Read read) const {
        return !read.is_step && request_.operands[size_t(read.index)].is_scalar;
    }

    /// What the step's own kernel does; without a loop where there is none, or it does not fit.
    Inner inner_of(const FusedStep& step) const {
        const auto found = loops_by_op().find(step.op);
        if (found == loops_by_op().end() || !fits(step)) return {};
        const bool divides = step.op == "floor_divide" || step.op == "remainder";
        if (divides && !is_floating(step.dtype)) return {};  // they may raise
        for (size_t i = step.reads.size() - scalars_of(step.op); i < step.reads.size(); ++i)
            if (!is_scalar(step.reads[i])) return {};
        Request own{step.op, {vector_of(step.dtype, false)}, step.attrs};
        for (auto read : step.reads) own.operands.push_back(vector_of(dtype_of(read), is_scalar(read)));
        const KernelPtr kernel = found->second(own);
        if (!kernel || !kernel->is_elementwise) return {};
        Inner inner = static_cast<const ElementwiseKernel&>(*kernel).inner();
        return 1 + step.reads.size() + inner.constants.size() <= std::size(Instruction{}.at) ? inner : Inner{};
    }

    /// Whether the op takes so many inputs, of these dtypes.
    bool fits(const FusedStep& step) const {
        const size_t count = step.reads.size();
        if (count != inputs_of(step.op)) return false;
        if (step.op == "copy" || step.op == "fill") return true;
        DType wanted = step.dtype;
        size_t first = 0;
        if (is_comparison(step.op)) {
            if (step.dtype != DType::boolean) return false;
            wanted = dtype_of(step.reads[1]);
        } else if (step.op == "where") {
            if (dtype_of(step.reads[0]) != DType::boolean) return false;
            first = 1;
        }
        return std::all_of(step.reads.begin() + long(first), step.reads.end(),
                           [&](FusedStep::Read read) { return dtype_of(read) == wanted; });
    }

    /// Which steps become one with the only step that reads them.
    void find_pairs() {
        const size_t count = steps_.size();
        std::vector<int> uses(count), reader(count, -1);
        for (int64_t result : results_) uses[size_t(result)] += 2;
        for (size_t k = 0; k < count; ++k)
            for (auto read : steps_[k].reads)
                if (read.is_step) ++uses[size_t(read.index)], reader[size_t(read.index)] = int(k);
        absorbed_.assign(count, false);
        first_of_pair_.assign(count, -1);
        for (size_t k = 0; k < count; ++k) {
            for (size_t place = 0; place < steps_[k].reads.size() && first_of_pair_[k] < 0; ++place) {
                const auto read = steps_[k].reads[place];
                if (!read.is_step || uses[size_t(read.index)] != 1 || first_of_pair_[size_t(read.index)] >= 0) continue;
                if (!pair_of(int(k), read.index, nullptr)) continue;
                first_of_pair_[k] = read.index;
                absorbed_[size_t(read.index)] = true;
            }
        }
    }

    /// The loop of steps `first` and `second`, and what it reads.
    Loop pair_of(int second, int first, std::vector<FusedStep::Read>* reads) const {
        const FusedStep &a = steps_[size_t(first)], &b = steps_[size_t(second)];
        if (a.dtype != DType::f32 || b.dtype != DType::f32 || !a.attrs.values.empty() || !b.attrs.values.empty())
            return nullptr;
        if (makes_row(first) || makes_row(second)) return nullptr;
        std::vector<FusedStep::Read> inputs = a.reads;
        int place = 0;
        for (size_t i = 0; i < b.reads.size(); ++i) {
            if (b.reads[i].is_step && b.reads[i].index == first) place = int(i);
            else inputs.push_back(b.reads[i]);
        }
        unsigned broadcast = 0;
        for (size_t i = 0; i < inputs.size(); ++i)
            if (const Value& value = values_[size_t(number_of(inputs[i]))];
                value.is_scalar || value.is_broadcast || value.is_of_row)
                broadcast |= 2u << i;
        if (reads) *reads = inputs;
        static const Pairs pairs = [] {
            Pairs all = arithmetic_pairs();
            all.merge(function_pairs());
            return all;
        }();
        const auto found = pairs.find(a.op + " " + b.op + " " + std::to_string(place));
        return found == pairs.end() ? nullptr : found->second[broadcast];
    }

    bool makes_row(int k) const { return values_[request_.operands.size() + size_t(k)].is_of_row; }

    int new_value(DType dtype, int defined, bool is_of_row = false) {
        made_.push_back({size_of(dtype), defined, defined, NOWHERE, is_of_row});
        return FIRST_VALUE + int(made_.size()) - 1;
    }

    /// Adds an instruction and returns the value it makes.
    int add(Loop loop, DType out, const std::vector<int>& inputs, unsigned broadcast, bool is_of_row = false) {
        Instruction made{loop, 1 + int(inputs.size()), {}, broadcast, is_of_row, nullptr};
        made.at[0] = new_value(out, int(program_.instructions.size()), is_of_row);
        std::copy(inputs.begin(), inputs.end(), made.at + 1);
        program_.instructions.push_back(made);
        return made.at[0];
    }

    Loop copy_loop(DType out, DType x) const {
        Request own{"copy", {vector_of(out, false), vector_of(x, false)}, {}};
        return static_cast<const ElementwiseKernel&>(*loops_by_op().at("copy")(own)).inner().loop;
    }

    int slot(SlotPlan plan) {
        program_.slots.push_back(plan);
        return FIRST_SLOT + int(program_.slots.size()) - 1;
    }

    /// Where a loop finds an input, in memory's form (`as_bits`) or the one that is computed in. of_rows: the loop makes
    /// one element of a row.
    int input(FusedStep::Read read, bool as_bits, bool rounds, bool* is_broadcast, bool of_rows = false) {
        Value& value = values_[size_t(number_of(read))];
        *is_broadcast = true;
        if (value.is_scalar) return slot({read.index, value.dtype, as_bits || !is_half(value.dtype), rounds, {}});
        if (as_bits || !is_half(value.dtype)) {
            *is_broadcast = value.is_of_row ? !of_rows : value.is_broadcast;
            return value.raw;
        }
        *is_broadcast = value.is_of_row && !of_rows;
        if (value.wide == NOWHERE)
            value.wide = add(copy_loop(DType::f32, value.dtype), DType::f32, {value.raw}, value.is_broadcast ? 2 : 0,
                             value.is_of_row);
        return value.wide;
    }

    void emit_fold(int k) {
        const FusedStep& step = steps_[size_t(k)];
        Request own{step.op, {vector_of(step.dtype, false), vector_of(step.dtype, false)}, {}};
        own.operands[0].shape = {1}, own.operands[1].shape = {row_};
        own.attrs.values["dims"].kind = Attrs::Value::integers;
        own.attrs.values["dims"].list = {0};
        const int x = values_[size_t(number_of(step.reads[0]))].raw;
        value_of_step(k).raw = add(nullptr, step.dtype, {x}, 0, true);
        program_.instructions.back().fold = folds_by_op().at(step.op)(own);
        program_.ns += 0.02 * double(size_of(step.dtype));
    }

    void emit(int k) {
        const FusedStep& step = steps_[size_t(k)];
        const bool of_rows = makes_row(k);
        const Inner& inner = inner_[size_t(k)];
        const bool as_bits = inner.flags & BITS, narrows = !as_bits && is_half(step.dtype);
        const DType computed = narrows ? DType::f32 : step.dtype;
        std::vector<int> inputs;
        unsigned broadcast = 0;
        for (auto read : step.reads) {
            bool is_broadcast;
            inputs.push_back(input(read, as_bits, step.dtype == DType::boolean, &is_broadcast, of_rows));
            if (is_broadcast) broadcast |= 1u << inputs.size();
        }
        const DType given = dtype_of(step.reads[0]), first = !as_bits && is_half(given) ? DType::f32 : given;
        if (broadcast == (2u << inputs.size()) - 2 && !(inner.flags & TAKES_BROADCAST)) {
            inputs[0] = add(copy_loop(first, first), first, {inputs[0]}, 2, of_rows);
            broadcast &= ~2u;
        }
        for (double constant : inner.constants) {
            inputs.push_back(slot({NOWHERE, step.dtype, !is_half(step.dtype), false, {.f = constant}}));
            broadcast |= 1u << inputs.size();
        }
        Value& made = value_of_step(k);
        made.raw = add(inner.loop, computed, inputs, broadcast, of_rows);
        if (narrows) made.raw = add(copy_loop(step.dtype, DType::f32), step.dtype, {made.raw}, 0, of_rows);
        if (!of_rows) program_.ns += inner.ns;
    }

    void emit_pair(int second, int first) {
        std::vector<FusedStep::Read> reads;
        const Loop loop = pair_of(second, first, &reads);
        std::vector<int> inputs;
        unsigned broadcast = 0;
        for (auto read : reads) {
            bool is_broadcast;
            inputs.push_back(input(read, false, false, &is_broadcast));
            if (is_broadcast) broadcast |= 1u << inputs.size();
        }
        value_of_step(second).raw = add(loop, DType::f32, inputs, broadcast);
        program_.ns += inner_[size_t(first)].ns + inner_[size_t(second)].ns;
    }

    /// Outputs are written where they belong at once, but for those that may be an input which is read later.
    void place_operands() {
        const int count = int(program_.instructions.size());
        int last_read = -1;
        for (int i = 0; i < count; ++i) {
            const Instruction& one = program_.instructions[size_t(i)];
            for (int k = 1; k < one.count; ++k) {
                if (one.at[k] < OPERANDS) last_read = i;
                else if (one.at[k] >= FIRST_VALUE) made_[size_t(one.at[k] - FIRST_VALUE)].last = i;
            }
        }
        for (int i = 0; i < program_.outputs; ++i) {
            const int value = values_[request_.operands.size() + size_t(results_[size_t(i)])].raw;
            Made& made = made_[size_t(value - FIRST_VALUE)];
            program_.operands[size_t(i)].at = value;
            if (program_.operands[size_t(i)].is_direct && made.at == NOWHERE && made.defined >= last_read) made.at = i;
            made.last = count;
        }
        for (size_t i = size_t(program_.outputs); i < request_.operands.size(); ++i) {
            OperandPlan& operand = program_.operands[i];
            operand.at = values_[i].raw;
            if (operand.at < FIRST_VALUE) continue;
            Made& made = made_[size_t(operand.at - FIRST_VALUE)];
            if (operand.is_kept) made.last = count;
            else if (made.last < 0) operand.at = NOWHERE;
        }
    }

    /// The output of an instruction may get the register of an input that ends there, if its elements are as large.
    bool give_registers() {
        std::array<bool, REGISTERS> busy{};
        auto take = [&](Made& made) {
            if (made.at != NOWHERE) return true;
            const auto free = std::find(busy.begin(), busy.end(), false);
            if (free == busy.end()) return false;
            *free = true;
            made.at = FIRST_REGISTER + int(free - busy.begin());
            program_.registers = std::max(program_.registers, made.at - FIRST_REGISTER + 1);
            program_.register_size = std::max(program_.register_size, made.size);
            return true;
        };
        auto release = [&](const Made& made) {
            if (made.at >= FIRST_REGISTER && made.at < FIRST_SLOT) busy[size_t(made.at - FIRST_REGISTER)] = false;
        };
        for (size_t i = size_t(program_.outputs); i < program_.operands.size(); ++i) {
            const int at = program_.operands[i].at;
            if (at >= FIRST_VALUE && !take(made_[size_t(at - FIRST_VALUE)])) return false;
        }
        for (int i = 0; i < int(program_.instructions.size()); ++i) {
            Instruction& one = program_.instructions[size_t(i)];
            Made& out = made_[size_t(one.at[0] - FIRST_VALUE)];
            for (const bool same_size : {true, false}) {  // first those whose memory the output may get
                for (int k = 1; k < one.count; ++k) {
                    if (one.at[k] < FIRST_VALUE) continue;
                    const Made& read = made_[size_t(one.at[k] - FIRST_VALUE)];
                    if (read.last == i && (read.size == out.size && read.is_of_row == out.is_of_row) == same_size) release(read);
                }
                if (same_size && !take(out)) return false;
            }
            if (out.last == i) release(out);  // nothing reads it
        }
        auto settle = [&](int& at) {
            if (at >= FIRST_VALUE) at = made_[size_t(at - FIRST_VALUE)].at;
        };
        for (Instruction& one : program_.instructions)
            for (int k = 0; k < one.count; ++k) settle(one.at[k]);
        for (OperandPlan& operand : program_.operands) settle(operand.at);
        return true;
    }

    struct Made {
        int64_t size;       // bytes of an element
        int defined, last;  // the instructions that make it and read it last; -1 before the first
        int at;             // its place in the table
        bool is_of_row;
    };

    const Request& request_;
    FusedProgram& program_;
    const int64_t row_;
    std::vector<FusedStep> steps_;
    std::vector<int64_t> results_;
    std::vector<Value> values_;  // operands, then steps
    std::vector<Inner> inner_;
    std::vector<bool> absorbed_;
    std::vector<int> first_of_pair_;
    std::vector<Made> made_;
};

}  // namespace

bool plan_fused(const Request& request, std::vector<OperandPlan> operands, FusedProgram* program, int64_t row) {
    program->operands = std::move(operands);
    return Planner(request, *program, row).plan();
}

void write_slots(const FusedProgram& program, const Scalar* scalars, uint64_t* slots) {
    for (size_t i = 0; i < program.slots.size(); ++i) {
        const SlotPlan& s = program.slots[i];
        write_scalar(&slots[i], s.operand == NOWHERE ? s.value : scalars[s.operand], s.dtype, s.as_bits, s.rounds);
    }
}

}  // namespace norch::elementwise
