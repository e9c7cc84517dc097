// fused: elementwise programs. One kernel interprets them; large ones are compiled where NVRTC is installed.
#include <algorithm>

#include "common/fused_steps.h"
#include "elementwise/fused_kernel.cuh"
#include "runtime/families.h"
#include "runtime/nvrtc.h"

namespace norch::elementwise {
namespace fused {
namespace {

bool is_known(DType dtype) { return dtype == DType::f32 || is_half(dtype) || dtype == DType::boolean; }

/// The op whose code does what a step does, to bools as 0 and 1 too; empty where there is none.
std::string name_of(const FusedStep& step, bool reads_bools) {
    const std::string& op = step.op;
    if (op == "copy") return step.dtype == DType::boolean ? "to_bool" : "copy";
    if (op == "gelu" || op == "gelu_grad") {
        const bool is_exact = !step.attrs.has("approximate") || step.attrs.text("approximate") == "none";
        return is_exact ? op : op == "gelu" ? "gelu_tanh" : "gelu_tanh_grad";
    }
    if (step.dtype == DType::boolean && reads_bools) {
        if (op == "add" || op == "bitwise_or" || op == "maximum") return "maximum";
        if (op == "mul" || op == "bitwise_and" || op == "minimum") return "minimum";
        if (op == "bitwise_xor") return "ne";
        if (op == "neg" || op == "abs" || op == "sign" || op == "floor" || op == "ceil" || op == "round" || op == "trunc")
            return "copy";
        return op == "bitwise_not" || op == "where" || (op.size() == 2 && find_code(op, false).arity == 2) ? op : "";
    }
    return op == "bitwise_not" ? "" : op;
}

class Fused final : public Kernel {
public:
    /// Null where there is no such kernel.
    static KernelPtr make(const Request& request) {
        if (KernelPtr alone = widening(request)) return alone;
        auto kernel = std::unique_ptr<Fused>(new Fused);
        if (!kernel->plan_operands(request) || !kernel->plan_steps(request)) return nullptr;
        return kernel;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        Program p = program_;
        for (int i = 0; i < scalars_; ++i) {
            const Scalar& s = scalars[scalar_[i].operand];
            p.scalar[i] = scalar_[i].is_floating ? float(s.f) : float(s.i);
        }
        for (const Piece<TENSORS>& piece : pieces_) {
            Dims layout = piece.layout;
            for (int t = 0; t < p.tensors; ++t) {
                p.data[t] = data[tensor_[t]] + piece.start[t];
                p.is_broadcast[t] = t >= p.outputs && layout.ndim > 0 && layout.stride[t][0] == 0;
                p.is_repeated[t] = false;
                for (int d = 1; d < layout.ndim; ++d) p.is_repeated[t] |= layout.stride[t][d] == 0;
            }
            if (layout.numel >= COMPILED && pieces_.size() == 1 && is_worth_compiling(layout)) {
                layout = run_compiled(p, layout);
                if (!layout.numel) return;
            }
            const uint32_t left = layout.numel % K;
            p.has_packets = allows_packets_of(K, p, layout) && !(left && layout.numel < FEW);
            if (p.has_packets && left) {
                launch(p, layout, layout.numel - left);
                pass(p, layout, layout.numel - left);
                p.has_packets = false;
            }
            launch(p, layout, layout.numel);
        }
    }

private:
    static constexpr uint32_t FEW = 1 << 16;
    static constexpr uint32_t COMPILED = 1 << 20;  // elements: a compiler takes some 50 ms
    static constexpr int OFTEN = 8;

    /// Whether packets of `k` elements may be accessed; where some elements are left, the layout has one dim.
    static bool allows_packets_of(int k, const Program& p, const Dims& layout) {
        if (layout.ndim == 0 || (layout.ndim > 1 && layout.size[0].divisor % uint32_t(k))) return false;
        for (int t = 0; t < p.tensors; ++t) {
            if (p.is_broadcast[t]) continue;
            const int64_t alignment = std::min<int64_t>(k * p.itemsize[t], 16);
            if (layout.stride[t][0] != p.itemsize[t] || !is_aligned(p.data[t], size_t(alignment))) return false;
            for (int d = 1; d < layout.ndim; ++d)
                if (layout.stride[t][d] % alignment) return false;
        }
        return true;
    }

    /// What is compiled for several dims serves these sizes alone: only where they come again and again, or a graph does.
    bool is_worth_compiling(const Dims& layout) const {
        return layout.ndim <= 1 || launch_notes || is_recorded(launch_stream()) || ++runs_ >= OFTEN;
    }

    /// Goes past the first elements, of a layout of one dim.
    static void pass(Program& p, Dims& layout, uint32_t elements) {
        for (int t = 0; t < p.tensors; ++t) p.data[t] += elements * layout.stride[t][0];
        layout.numel -= elements;
    }

    /// Runs the program's own kernel, if there is one, on all packets; what is left of the layout.
    Dims run_compiled(Program& p, Dims layout) const {
        int k = 4;
        for (int t = 0; t < p.tensors; ++t)
            if (p.itemsize[t] < 4) k = 8;
        if (!allows_packets_of(k, p, layout)) return layout;
        const int device = launch_stream().device;
        if (compiled_for_ != device) {
            compiled_ = runtime_kernel(source_of(p, layout, k), "fused_kernel", device);
            compiled_for_ = device;
        }
        if (!compiled_) return layout;
        Arguments arguments = {};
        std::copy_n(p.data, TENSORS, arguments.data);
        std::copy_n(p.scalar, SCALARS, arguments.scalar);
        arguments.count = layout.numel - layout.numel % uint32_t(k);
        const Grid grid{unsigned(ceil_div(arguments.count, THREADS * k)), THREADS, 0};
        const void* pointers[] = {&arguments};
        const size_t sizes[] = {sizeof arguments};
        launch_compiled("a compiled fused program", compiled_, grid, pointers, sizes, 1);
        pass(p, layout, arguments.count);
        return layout;
    }

    void launch(const Program& p, Dims layout, uint32_t elements) const {
        layout.numel = elements;
        const auto blocks = unsigned(ceil_div(layout.numel, THREADS * K));
        if (has_long_) launch_prepared<true>(blocks, p, layout);
        else launch_prepared<false>(blocks, p, layout);
    }

    template <bool HAS_LONG>
    void launch_prepared(unsigned blocks, const Program& p, const Dims& layout) const {
        static bool is_prepared[64];
        const int device = launch_stream().device;
        if (device >= 64 || !is_prepared[device]) {
            check(cudaFuncSetAttribute(fused_kernel<HAS_LONG>, cudaFuncAttributeMaxDynamicSharedMemorySize, MAX_SHARED),
                  "a fused program");
            if (device < 64) is_prepared[device] = true;
        }
        launch_kernel("a fused program", fused_kernel<HAS_LONG>, {blocks, THREADS, shared_bytes_}, p, layout);
    }

    bool plan_operands(const Request& request) {
        std::vector<Operand> tensors;
        const auto& operands = request.operands;
        program_.outputs = int(request.attrs.integers("results").size());
        if (operands.size() < size_t(program_.outputs) || !program_.outputs)
            throw std::invalid_argument("a fused program has as many outputs as results, and one at least");
        source_.resize(operands.size());
        for (size_t i = 0; i < operands.size(); ++i) {
            const Operand& operand = operands[i];
            if (operand.is_scalar) {
                if (scalars_ == SCALARS || int(i) < program_.outputs) return false;
                source_[i] = {Source::scalar, uint8_t(scalars_)};
                scalar_[scalars_++] = {int(i), is_floating(operand.dtype)};
                continue;
            }
            if (operand.shape != operands[0].shape)
                throw std::invalid_argument("the operands of a fused program have different shapes");
            const size_t t = tensors.size();
            if (t == TENSORS || !is_known(operand.dtype)) return false;
            source_[i] = {Source::tensor, uint8_t(t)};
            tensor_[t] = int(i);
            program_.dtype[t] = operand.dtype;
            program_.itemsize[t] = uint8_t(size_of(operand.dtype));
            if (int(i) >= program_.outputs) {
                program_.shared[t] = shared_bytes_;
                shared_bytes_ += THREADS * K * program_.itemsize[t];
            }
            tensors.push_back(operand);
        }
        program_.tensors = int(tensors.size());
        program_.values = shared_bytes_;
        Loops loops = collapse(tensors);
        loops.strides.resize(TENSORS, std::vector<int64_t>(loops.shape.size(), 0));
        pieces_ = cut<TENSORS>(loops);
        return true;
    }

    bool plan_steps(const Request& request) {
        const std::vector<FusedStep> steps = fused_steps(request);
        const auto& results = request.attrs.integers("results");
        const int count = int(steps.size());
        if (count > STEPS) return false;
        program_.count = count;
        std::vector<int> last_use(size_t(count), -1), value(size_t(count), NONE);
        for (int s = 0; s < count; ++s)
            for (const FusedStep::Read& read : steps[size_t(s)].reads)
                if (read.is_step) last_use[size_t(read.index)] = s;
        std::vector<int> owner(VALUES, -1);  // the step whose result a value is
        size_t most = 0;
        for (int s = 0; s < count; ++s) {
            const FusedStep& from = steps[size_t(s)];
            Instruction& to = program_.steps[s];
            bool reads_bools = true;
            for (const FusedStep::Read& read : from.reads) {
                const DType dtype =
                    read.is_step ? steps[size_t(read.index)].dtype : request.operands[size_t(read.index)].dtype;
                const bool is_scalar = !read.is_step && request.operands[size_t(read.index)].is_scalar;
                reads_bools &= dtype == DType::boolean;
                if (!is_known(dtype) && !is_scalar) return false;
            }
            const Found found = find_code(name_of(from, reads_bools), is_half(from.dtype));
            if (!is_known(from.dtype) || !found.arity || from.reads.size() != size_t(found.arity)) return false;
            has_long_ |= found.code > first_long;
            to = {found.code, uint8_t(found.arity), NONE, NONE, from.dtype, {}, {}};
            for (size_t i = 0; i < from.reads.size(); ++i) {
                const FusedStep::Read& read = from.reads[i];
                if (!read.is_step) {
                    if (read.index < program_.outputs) return false;
                    to.x[i] = source_[size_t(read.index)];
                } else if (read.index == s - 1) {
                    to.x[i] = {Source::last, 0};
                } else {
                    to.x[i] = {Source::value, uint8_t(value[size_t(read.index)])};
                }
            }
            Request own{from.op, {}, from.attrs};
            const std::vector<double> constants = activation_constants(own);
            for (size_t i = 0; i < constants.size(); ++i) to.k[i] = float(constants[i]);
            if (last_use[size_t(s)] > s + 1) {  // what nothing reads after this step makes room
                const auto free = std::find_if(owner.begin(), owner.end(),
                                               [&](int step) { return step < 0 || last_use[size_t(step)] <= s; });
                if (free == owner.end()) return false;
                *free = s;
                to.to = uint8_t(free - owner.begin());
                value[size_t(s)] = to.to;
                most = std::max(most, size_t(to.to) + 1);
            }
        }
        for (size_t i = 0; i < results.size(); ++i) {
            if (results[i] < 0 || results[i] >= count) throw std::invalid_argument("a fused program has no such result");
            Instruction& made = program_.steps[results[i]];
            if (made.out != NONE || made.dtype != request.operands[i].dtype) return false;
            made.out = uint8_t(i);
        }
        shared_bytes_ += uint32_t(most) * VALUE_BYTES;
        return shared_bytes_ <= MAX_SHARED;
    }

    Program program_ = {};
    std::vector<Piece<TENSORS>> pieces_;
    std::vector<Source> source_;  // of each operand
    int tensor_[TENSORS] = {};    // which operands
    struct {
        int operand;
        bool is_floating;
    } scalar_[SCALARS] = {};
    int scalars_ = 0;
    uint32_t shared_bytes_ = 0;
    bool has_long_ = false;
    mutable const void* compiled_ = nullptr;  // under the GIL, as is all that launches
    mutable int compiled_for_ = -1, runs_ = 0;
};

}  // namespace
}  // namespace fused

void add_fused(Registry& registry) { registry["fused"] = fused::Fused::make; }

}  // namespace norch::elementwise
