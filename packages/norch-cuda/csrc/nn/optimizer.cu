// Steps of optimisers: one pass over all parameters of a group, in one launch for as many as 4 KB of arguments describe
// (88 of Adam's).
#include "common/optimizer_rules.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {

/// The lists of a step: parameters, the states whose bit is set in PRESENT, gradients.
template <unsigned PRESENT>
constexpr int LISTS = 2 + (PRESENT & 1) + (PRESENT >> 1 & 1) + (PRESENT >> 2 & 1);

/// Parameters of one launch: as many as its arguments hold or, for the commonest steps, few where there are no more: less
/// to send, but twice the code.
constexpr int FEW = 16, BYTES = 4096;
template <int LISTS>
constexpr int MANY = (BYTES - 196) / (8 * LISTS + 12);

/// Some parameters, and which of a launch's blocks are whose: `first_block[i]` is the first one of parameter i.
template <int LISTS, int MAX>
struct Group {
    char* data[LISTS][MAX];
    int64_t size[MAX];
    uint32_t first_block[MAX];
    int32_t count;
};

template <class T>
constexpr int UNROLL = sizeof(T) == 4 ? 2 : 1;
template <class T>
constexpr int PER_BLOCK = THREADS * PER_16_BYTES<T> * UNROLL<T>;

template <int LISTS, int MAX>
__device__ inline int parameter_of(const Group<LISTS, MAX>& group, uint32_t block) {
    int low = 0, high = group.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (group.first_block[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

/// A step of one element: x holds it of each list.
template <unsigned PRESENT, class Rule, class C>
__device__ inline void step_element(const Rule& rule, C (&x)[LISTS<PRESENT>]) {
    constexpr int first = 1, second = first + (PRESENT & 1), third = second + (PRESENT >> 1 & 1);
    C none[3] = {};
    rule.template apply<PRESENT>(x[0], PRESENT & 1 ? x[first] : none[0], PRESENT & 2 ? x[second] : none[1],
                                 PRESENT & 4 ? x[third] : none[2], x[LISTS<PRESENT> - 1]);
}

template <class T, class Rule, unsigned PRESENT, int MAX>
__global__ void __launch_bounds__(THREADS)
    step_kernel(const __grid_constant__ Group<LISTS<PRESENT>, MAX> group, const Rule rule) {
    using C = computed<T>;
    constexpr int VEC = PER_16_BYTES<T>, U = UNROLL<T>, L = LISTS<PRESENT>;
    const int parameter = parameter_of(group, blockIdx.x);
    const int64_t begin = int64_t(blockIdx.x - group.first_block[parameter]) * PER_BLOCK<T>;
    const int64_t left = group.size[parameter] - begin;
    T* data[L];
    bool is_aligned = true;
#pragma unroll
    for (int k = 0; k < L; ++k) {
        data[k] = reinterpret_cast<T*>(group.data[k][parameter]) + begin;
        is_aligned &= reinterpret_cast<uintptr_t>(data[k]) % 16 == 0;
    }
    C x[L];
    if (is_aligned && left >= PER_BLOCK<T>) {
        Packet<T, VEC> packets[L][U];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int k = 0; k < L; ++k)
                packets[k][u] = reinterpret_cast<const Packet<T, VEC>*>(data[k])[u * THREADS + threadIdx.x];
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
#pragma unroll
                for (int k = 0; k < L; ++k) x[k] = widen(packets[k][u].v[i]);
                step_element<PRESENT>(rule, x);
#pragma unroll
                for (int k = 0; k < L - 1; ++k) packets[k][u].v[i] = narrow<T>(x[k]);
            }
#pragma unroll
            for (int k = 0; k < L - 1; ++k)
                reinterpret_cast<Packet<T, VEC>*>(data[k])[u * THREADS + threadIdx.x] = packets[k][u];
        }
    } else {
        const int count = int(left < PER_BLOCK<T> ? left : PER_BLOCK<T>);
#pragma unroll 2
        for (int i = threadIdx.x; i < count; i += THREADS) {
#pragma unroll
            for (int k = 0; k < L; ++k) x[k] = widen(data[k][i]);
            step_element<PRESENT>(rule, x);
#pragma unroll
            for (int k = 0; k < L - 1; ++k) data[k][i] = narrow<T>(x[k]);
        }
    }
}

/// The launches of a step.
template <class T, unsigned PRESENT, bool HAS_FEW>
class Steps {
public:
    Steps(const Request& request, int64_t count) : count_(count) {
        Part part;
        int64_t blocks = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t size = request.operands[i].numel(), wanted = ceil_div(size, PER_BLOCK<T>);
            if (!size) continue;
            if (part.group.count == MANY<L> || (part.group.count && blocks + wanted > INT32_MAX)) {
                parts_.push_back(part);
                part = {};
                blocks = 0;
            }
            const int32_t at = part.group.count++;
            part.tensor[at] = i;
            part.group.size[at] = size;
            part.group.first_block[at] = uint32_t(blocks);
            part.blocks = uint32_t(blocks += wanted);
        }
        if (part.group.count) parts_.push_back(part);
    }

    template <class Rule>
    void launch(char* const* data, const Rule& rule) const {
        for (const Part& part : parts_) {
            if constexpr (HAS_FEW) {
                if (part.group.count <= FEW) {
                    launch_part<FEW>(part, data, rule);
                    continue;
                }
            }
            launch_part<MANY<L>>(part, data, rule);
        }
    }

private:
    static constexpr int L = LISTS<PRESENT>;

    struct Part {
        Group<L, MANY<L>> group = {};
        int64_t tensor[MANY<L>] = {};
        uint32_t blocks = 0;
    };

    template <int MAX, class Rule>
    void launch_part(const Part& part, char* const* data, const Rule& rule) const {
        static_assert(sizeof(Group<L, MAX>) + sizeof(Rule) <= BYTES);
        Group<L, MAX> group;
        group.count = part.group.count;
        for (int i = 0; i < group.count; ++i) {
            group.size[i] = part.group.size[i];
            group.first_block[i] = part.group.first_block[i];
            for (int k = 0; k < L; ++k) group.data[k][i] = data[k * count_ + part.tensor[i]];
        }
        step_kernel<T, Rule, PRESENT, MAX><<<part.blocks, THREADS, 0, stream_handle()>>>(group, rule);
        check_launch("a step of an optimiser");
    }

    int64_t count_;
    std::vector<Part> parts_;
};

/// Whether the operands are as a step needs them: `lists` lists of `count` contiguous tensors, then scalars.
bool suits(const Request& request, int64_t count, int64_t lists, int64_t scalars) {
    const auto& operands = request.operands;
    if (count < 1 || int64_t(operands.size()) != count * lists + scalars) return false;
    for (int64_t i = 0; i < int64_t(operands.size()); ++i) {
        const Operand& o = operands[i];
        if (o.is_scalar != (i >= count * lists)) return false;
        if (o.is_scalar ? !is_floating(o.dtype)
                        : o.dtype != operands[0].dtype || !o.is_contiguous() ||
                              o.numel() != operands[i % count].numel())
            return false;
    }
    return is_floating(operands[0].dtype);
}

template <template <class> class Rule, unsigned PRESENT, bool HAS_FEW = false>
KernelPtr step(const Request& request) {
    constexpr int lists = LISTS<PRESENT>;
    const int64_t count = request.attrs.integer("count");
    if (!suits(request, count, lists, Rule<float>::SCALARS)) return nullptr;
    const StepFlags flags(request.attrs);
    return visit_floating_device(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        Steps<T, PRESENT, HAS_FEW> steps(request, count);
        return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
            steps.launch(data, Rule<computed<T>>(flags, scalars + count * lists));
        });
    });
}

KernelPtr sgd_step(const Request& request) {
    return with_sgd_states(request.attrs,
                           [&](auto states) { return step<SgdRule, decltype(states)::value, true>(request); });
}

KernelPtr adam_step(const Request& request) {
    return with_adam_states(request.attrs,
                            [&](auto states) { return step<AdamRule, decltype(states)::value, true>(request); });
}

KernelPtr rmsprop_step(const Request& request) {
    return with_rmsprop_states(request.attrs,
                               [&](auto states) { return step<RmspropRule, decltype(states)::value>(request); });
}

}  // namespace

void add_optimizers(Registry& registry) {
    registry["sgd_step"] = sgd_step;
    registry["asgd_step"] = step<AsgdRule, 1>;
    registry["rprop_step"] = step<RpropRule, 3>;
    registry["lion_step"] = step<LionRule, 1>;
    registry["adam_step"] = adam_step;
    registry["nadam_step"] = step<NadamRule, 3>;
    registry["radam_step"] = step<RadamRule, 3>;
    registry["adamax_step"] = step<AdamaxRule, 3>;
    registry["adagrad_step"] = step<AdagradRule, 1>;
    registry["adadelta_step"] = step<AdadeltaRule, 3>;
    registry["rmsprop_step"] = rmsprop_step;
}

}  // namespace norch::nn
