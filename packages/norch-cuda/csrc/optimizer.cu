// Steps of optimisers: one pass over all parameters of a group, in one launch for up to 88 of them.
#include <cmath>

#include "device.cuh"
#include "families.h"

namespace norch {
namespace {

constexpr int LISTS = 4;                 // parameters, two states (null where there is none), gradients
constexpr int FEW = 16, MANY = 88;       // parameters of one launch: what 4 KB of arguments hold
enum { PARAMETER, FIRST, SECOND, GRADIENT };

/// The hyperparameters of a step, derived from its scalars.
template <class C>
struct Sgd {
    C lr, decay, momentum, fresh;
    bool has_momentum, is_nesterov, is_maximizing, decays;

    __device__ void operator()(C& p, C& b, C&, C g) const {
        C d = is_maximizing ? -g : g;
        if (decays) d += decay * p;
        if (has_momentum) {
            b = momentum * b + fresh * d;
            d = is_nesterov ? d + momentum * b : b;
        }
        p -= lr * d;
    }
};

/// `lr` and `root` hold the factors that undo the bias of the averages.
template <class C>
struct Adam {
    C lr, decay, kept, beta1, fresh1, beta2, fresh2, eps, root;
    bool is_decoupled, is_maximizing, decays;

    __device__ void operator()(C& p, C& m, C& v, C g) const {
        C d = is_maximizing ? -g : g;
        if (decays && is_decoupled) p *= kept;
        if (decays && !is_decoupled) d += decay * p;
        m = beta1 * m + fresh1 * d;
        v = beta2 * v + fresh2 * d * d;
        p -= lr * m / (std::sqrt(v) * root + eps);
    }
};

/// Some parameters, and which of a launch's blocks are whose: `first_block[i]` is the first one of parameter i.
template <int MAX>
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

template <int MAX>
__device__ inline int parameter_of(const Group<MAX>& group, uint32_t block) {
    int low = 0, high = group.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (group.first_block[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

template <class T, class Rule, int MAX>
__global__ void __launch_bounds__(THREADS) step_kernel(const __grid_constant__ Group<MAX> group, const Rule rule) {
    using C = computed<T>;
    constexpr int VEC = PER_16_BYTES<T>, U = UNROLL<T>;
    const int parameter = parameter_of(group, blockIdx.x);
    const int64_t begin = int64_t(blockIdx.x - group.first_block[parameter]) * PER_BLOCK<T>;
    const int64_t left = group.size[parameter] - begin;
    T* data[LISTS];
    bool is_aligned = true;
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        data[k] = reinterpret_cast<T*>(group.data[k][parameter]);
        is_aligned &= reinterpret_cast<uintptr_t>(data[k]) % 16 == 0;
        if (data[k]) data[k] += begin;
    }
    if (is_aligned && left >= PER_BLOCK<T>) {
        Packet<T, VEC> x[LISTS][U] = {};
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int k = 0; k < LISTS; ++k)
                if (data[k]) x[k][u] = reinterpret_cast<const Packet<T, VEC>*>(data[k])[u * THREADS + threadIdx.x];
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                C p = widen(x[PARAMETER][u].v[i]), m = widen(x[FIRST][u].v[i]), v = widen(x[SECOND][u].v[i]);
                rule(p, m, v, widen(x[GRADIENT][u].v[i]));
                x[PARAMETER][u].v[i] = narrow<T>(p);
                x[FIRST][u].v[i] = narrow<T>(m);
                x[SECOND][u].v[i] = narrow<T>(v);
            }
#pragma unroll
            for (int k = 0; k < GRADIENT; ++k)
                if (data[k]) reinterpret_cast<Packet<T, VEC>*>(data[k])[u * THREADS + threadIdx.x] = x[k][u];
        }
    } else {
        const int count = int(left < PER_BLOCK<T> ? left : PER_BLOCK<T>);
#pragma unroll 2
        for (int i = threadIdx.x; i < count; i += THREADS) {
            C p = widen(data[PARAMETER][i]), m = data[FIRST] ? widen(data[FIRST][i]) : C(0);
            C v = data[SECOND] ? widen(data[SECOND][i]) : C(0);
            rule(p, m, v, widen(data[GRADIENT][i]));
            data[PARAMETER][i] = narrow<T>(p);
            if (data[FIRST]) data[FIRST][i] = narrow<T>(m);
            if (data[SECOND]) data[SECOND][i] = narrow<T>(v);
        }
    }
}

/// The launches of a step. `place[k]` is which list of the operands is list k of the groups, or -1.
template <class T>
class Steps {
public:
    Steps(const Request& request, int64_t count, const int (&place)[LISTS]) : count_(count) {
        std::copy(place, place + LISTS, place_);
        Part part;
        int64_t blocks = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t size = request.operands[i].numel(), wanted = ceil_div(size, PER_BLOCK<T>);
            if (!size) continue;
            if (part.group.count == MANY || (part.group.count && blocks + wanted > INT32_MAX)) {
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
            if (part.group.count <= FEW)
                launch_part<FEW>(part, data, rule);
            else
                launch_part<MANY>(part, data, rule);
        }
    }

private:
    struct Part {
        Group<MANY> group = {};
        int64_t tensor[MANY] = {};
        uint32_t blocks = 0;
    };

    template <int MAX, class Rule>
    void launch_part(const Part& part, char* const* data, const Rule& rule) const {
        Group<MAX> group;
        group.count = part.group.count;
        for (int i = 0; i < group.count; ++i) {
            group.size[i] = part.group.size[i];
            group.first_block[i] = part.group.first_block[i];
            for (int k = 0; k < LISTS; ++k)
                group.data[k][i] = place_[k] < 0 ? nullptr : data[place_[k] * count_ + part.tensor[i]];
        }
        step_kernel<T, Rule, MAX><<<part.blocks, THREADS, 0, stream_handle()>>>(group, rule);
        check_launch("a step of an optimiser");
    }

    int64_t count_;
    int place_[LISTS];
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

KernelPtr sgd_step(const Request& request) {
    const int64_t count = request.attrs.integer("count");
    const bool momentum = request.attrs.flag("momentum"), nesterov = request.attrs.flag("nesterov");
    const bool maximize = request.attrs.flag("maximize");
    const int lists = momentum ? 3 : 2;
    if (!suits(request, count, lists, 4)) return nullptr;
    return visit_floating_device(request.operands[0].dtype, [&](auto tag) -> KernelPtr {
        using T = typename decltype(tag)::type;
        using C = computed<T>;
        Steps<T> steps(request, count, {0, momentum ? 1 : -1, -1, lists - 1});
        return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
            const Scalar* s = scalars + count * lists;
            steps.launch(data, Sgd<C>{C(s[0].f), C(s[1].f), C(s[2].f), C(1 - s[3].f), momentum, nesterov, maximize,
                                      s[1].f != 0});
        });
    });
}

KernelPtr adam_step(const Request& request) {
    const int64_t count = request.attrs.integer("count");
    const bool decoupled = request.attrs.flag("decoupled"), maximize = request.attrs.flag("maximize");
    if (!suits(request, count, 4, 7)) return nullptr;
    return visit_floating_device(request.operands[0].dtype, [&](auto tag) -> KernelPtr {
        using T = typename decltype(tag)::type;
        using C = computed<T>;
        Steps<T> steps(request, count, {0, 1, 2, 3});
        return make_kernel(0, [=](char* const* data, const Scalar* scalars) {
            const Scalar* s = scalars + count * 4;
            const double lr = s[0].f, decay = s[1].f, beta1 = s[2].f, beta2 = s[3].f;
            steps.launch(data, Adam<C>{C(lr / s[5].f), C(decay), C(1 - lr * decay), C(beta1), C(1 - beta1), C(beta2),
                                       C(1 - beta2), C(s[4].f), C(1 / std::sqrt(s[6].f)), decoupled, maximize,
                                       decay != 0});
        });
    });
}

}  // namespace

void add_optimizers(Registry& registry) {
    registry["sgd_step"] = sgd_step;
    registry["adam_step"] = adam_step;
}

}  // namespace norch
