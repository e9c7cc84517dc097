// Steps of optimisers: one pass over all parameters of a group, in one launch for as many as 4 KB of arguments describe
// (88 of Adam's).
#include "common/optimizer_rules.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {

/// Parameters of one launch: as many as its arguments hold or, for the commonest steps, few where there are no more: less
/// to send, but twice the code.
constexpr int SMALL_GROUP = 16, BYTES = 4096;
template <int LISTS>
constexpr int LARGE_GROUP = (BYTES - 196) / (8 * LISTS + 12);

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
                for (int k = 0; k < L; ++k) x[k] = upcast(packets[k][u].v[i]);
                step_element<PRESENT>(rule, x);
#pragma unroll
                for (int k = 0; k < L - 1; ++k) packets[k][u].v[i] = downcast<T>(x[k]);
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
            for (int k = 0; k < L; ++k) x[k] = upcast(data[k][i]);
            step_element<PRESENT>(rule, x);
#pragma unroll
            for (int k = 0; k < L - 1; ++k) data[k][i] = downcast<T>(x[k]);
        }
    }
}

/// The launches of a step.
template <class T, unsigned PRESENT, bool IS_COMMON>
class Steps {
public:
    Steps(const Request& request, int64_t count) : count_(count) {
        Part part;
        int64_t blocks = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t size = request.operands[i].numel(), wanted = ceil_div(size, PER_BLOCK<T>);
            if (!size) continue;
            if (part.group.count == LARGE_GROUP<L> || (part.group.count && blocks + wanted > INT32_MAX)) {
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
            if constexpr (IS_COMMON) {
                if (part.group.count <= SMALL_GROUP) {
                    launch_part<SMALL_GROUP>(part, data, rule);
                    continue;
                }
            }
            launch_part<LARGE_GROUP<L>>(part, data, rule);
        }
    }

private:
    static constexpr int L = LISTS<PRESENT>;

    struct Part {
        Group<L, LARGE_GROUP<L>> group = {};
        int64_t tensor[LARGE_GROUP<L>] = {};
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
        launch_kernel("a step of an optimiser", step_kernel<T, Rule, PRESENT, MAX>, part.blocks, THREADS, group, rule);
    }

    int64_t count_;
    std::vector<Part> parts_;
};

struct Make {
    template <template <class> class Rule, unsigned PRESENT, bool IS_COMMON = false>
    static KernelPtr step(const Request& request) {
        constexpr int lists = LISTS<PRESENT>;
        const int64_t count = request.attrs.integer("count");
        if (!suits_step(request, count, lists, Rule<float>::SCALARS)) return nullptr;
        const StepFlags flags(request.attrs);
        return visit_floating_device(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
            Steps<T, PRESENT, IS_COMMON> steps(request, count);
            return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
                steps.launch(data, Rule<computed<T>>(flags, scalars + count * lists));
            });
        });
    }
};

}  // namespace

void add_optimizers(Registry& registry) { add_optimizer_steps<Make>(registry); }

}  // namespace norch::nn
