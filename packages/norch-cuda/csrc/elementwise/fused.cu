// fused: an elementwise program that one kernel interprets. A thread computes K elements at once: its operands and the
// results that later steps read lie in shared memory, where each thread has its own place, the last result in registers.
// Large programs are compiled where NVRTC is installed.
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <cstring>

#include "common/fused_steps.h"
#include "elementwise/elementwise.cuh"
#include "elementwise/fused_program.cuh"
#include "runtime/families.h"
#include "runtime/nvrtc.h"

namespace norch::elementwise {
namespace fused {
namespace {

constexpr int K = 8, VALUES = 12;
constexpr uint32_t VALUE_BYTES = THREADS * K * sizeof(float), MAX_SHARED = 96 << 10;

/// A dtype that is computed in float32.
template <class F>
__device__ inline void with_dtype(DType dtype, const F& f) {
    if (dtype == DType::f32) f(Tag<float>{});
    else if (dtype == DType::boolean) f(Tag<uint8_t>{});
    else with_type<Halves>(dtype, f);
}

__device__ inline int64_t offset_of(const Dims& layout, int tensor, uint32_t i) {
    if (layout.ndim <= 1) return int64_t(i) * layout.stride[tensor][0];
    int64_t out = 0;
#pragma unroll
    for (int d = 0; d < MAX_DIMS; ++d) {
        if (d == layout.ndim) break;
        const uint32_t rest = d + 1 == layout.ndim ? 0 : layout.size[d].quotient(i);
        out += int64_t(i - rest * layout.size[d].divisor) * layout.stride[tensor][d];
        i = rest;
    }
    return out;
}

/// Where a thread's packet of a tensor or value lies in shared memory: 16 bytes of each thread, then 16 of each again.
template <class T>
__device__ inline T* packet_at(char* shared, int element) {
    constexpr int BYTES = K * sizeof(T) < 16 ? K * sizeof(T) : 16, PER = BYTES / sizeof(T);
    return reinterpret_cast<T*>(shared + (element / PER * THREADS + threadIdx.x) * BYTES) + element % PER;
}

/// Starts to move an input's elements to shared memory.
__device__ inline void fetch(const Program& p, const Dims& layout, int t, uint32_t first, char* shared) {
    const char* data = p.data[t];
    if (p.has_packets && !p.is_broadcast[t]) {
        data += offset_of(layout, t, first);
        if (p.itemsize[t] == 4) {
            __pipeline_memcpy_async(packet_at<float>(shared, 0), data, 16);
            __pipeline_memcpy_async(packet_at<float>(shared, 4), data + 16, 16);
        } else if (p.itemsize[t] == 2) {
            __pipeline_memcpy_async(packet_at<uint16_t>(shared, 0), data, 16);
        } else {
            __pipeline_memcpy_async(packet_at<uint8_t>(shared, 0), data, 8);
        }
        return;
    }
    auto move = [&]<class T>(Tag<T>) {
        if (p.has_packets) {
            *packet_at<T>(shared, 0) = *reinterpret_cast<const T*>(data + offset_of(layout, t, first));
            return;
        }
#pragma unroll
        for (int j = 0; j < K; ++j) {
            const uint32_t i = first + j * THREADS;
            if (i < layout.numel) *packet_at<T>(shared, j) = *reinterpret_cast<const T*>(data + offset_of(layout, t, i));
        }
    };
    if (p.itemsize[t] == 4) move(Tag<uint32_t>{});
    else if (p.itemsize[t] == 2) move(Tag<uint16_t>{});
    else move(Tag<uint8_t>{});
}

__device__ inline void read_value(float (&x)[K], char* shared) {
#pragma unroll
    for (int j = 0; j < K; j += 4) {
        const float4 v = *reinterpret_cast<const float4*>(packet_at<float>(shared, j));
        x[j] = v.x, x[j + 1] = v.y, x[j + 2] = v.z, x[j + 3] = v.w;
    }
}

__device__ inline void read_tensor(float (&x)[K], const Program& p, int t, char* shared) {
    with_dtype(p.dtype[t], [&]<class T>(Tag<T>) {
        constexpr int PER = std::min(K, PER_16_BYTES<T>);
        if (p.has_packets && p.is_broadcast[t]) {
            const float value = float(upcast(*packet_at<T>(shared, 0)));
#pragma unroll
            for (int j = 0; j < K; ++j) x[j] = value;
            return;
        }
#pragma unroll
        for (int j = 0; j < K; j += PER) {
            const auto packet = *reinterpret_cast<const Packet<T, PER>*>(packet_at<T>(shared, j));
#pragma unroll
            for (int i = 0; i < PER; ++i) x[j + i] = float(upcast(packet.v[i]));
        }
    });
}

__device__ inline void read(float (&x)[K], const Source& from, const Program& p, const float (&last)[K], char* shared) {
    if (from.kind == Source::last) {
#pragma unroll
        for (int j = 0; j < K; ++j) x[j] = last[j];
    } else if (from.kind == Source::tensor) {
        read_tensor(x, p, from.index, shared + p.shared[from.index]);
    } else if (from.kind == Source::value) {
        read_value(x, shared + p.values + from.index * VALUE_BYTES);
    } else {
        const float value = p.scalar[from.index];
#pragma unroll
        for (int j = 0; j < K; ++j) x[j] = value;
    }
}

__device__ inline void write(const float (&y)[K], const Program& p, const Dims& layout, int t, uint32_t first) {
    with_dtype(p.dtype[t], [&]<class T>(Tag<T>) {
        if (p.has_packets) {
            constexpr int PER = std::min(K, PER_16_BYTES<T>);
            char* out = p.data[t] + offset_of(layout, t, first);
#pragma unroll
            for (int j = 0; j < K; j += PER) {
                Packet<T, PER> packet;
#pragma unroll
                for (int i = 0; i < PER; ++i) packet.v[i] = downcast<T>(computed<T>(y[j + i]));
                *reinterpret_cast<Packet<T, PER>*>(out + j * sizeof(T)) = packet;
            }
            return;
        }
#pragma unroll
        for (int j = 0; j < K; ++j) {
            const uint32_t i = first + j * THREADS;
            if (i < layout.numel)
                *reinterpret_cast<T*>(p.data[t] + offset_of(layout, t, i)) = downcast<T>(computed<T>(y[j]));
        }
    });
}

template <bool HAS_LONG>
__global__ void __launch_bounds__(THREADS, HAS_LONG ? 2 : 4)
    fused_kernel(const __grid_constant__ Program p, const __grid_constant__ Dims layout) {
    extern __shared__ __align__(16) char shared[];
    const uint32_t block = blockIdx.x * (THREADS * K), first = block + (p.has_packets ? threadIdx.x * K : threadIdx.x);
    if (first >= layout.numel) return;
#pragma unroll 1
    for (int t = p.outputs; t < p.tensors; ++t) fetch(p, layout, t, first, shared + p.shared[t]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    float y[K] = {};
#pragma unroll 1
    for (int s = 0; s < p.count; ++s) {
        const Instruction& one = p.steps[s];
        float a[K], b[K] = {}, c[K] = {};
        read(a, one.x[0], p, y, shared);
        if (one.arity > 1) read(b, one.x[1], p, y, shared);
        if (one.arity > 2) read(c, one.x[2], p, y, shared);
        step<HAS_LONG>(one.code, y, one.k, a, b, c);
        if (one.dtype == DType::f16 || one.dtype == DType::bf16) {
            with_type<Halves>(one.dtype, [&]<class T>(Tag<T>) {
#pragma unroll
                for (int j = 0; j < K; ++j) y[j] = upcast(downcast<T>(y[j]));
            });
        }
        if (one.to != NONE) {
#pragma unroll
            for (int j = 0; j < K; j += 4)
                *reinterpret_cast<float4*>(packet_at<float>(shared + p.values + one.to * VALUE_BYTES, j)) =
                    make_float4(y[j], y[j + 1], y[j + 2], y[j + 3]);
        }
        if (one.out != NONE) write(y, p, layout, one.out, first);
    }
}

// --- Programs --------------------------------------------------------------------------------------------------------

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
            }
            if (layout.numel >= COMPILED && pieces_.size() == 1) {
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
    mutable int compiled_for_ = -1;
};

}  // namespace
}  // namespace fused

void add_fused(Registry& registry) { registry["fused"] = fused::Fused::make; }

}  // namespace norch::elementwise
