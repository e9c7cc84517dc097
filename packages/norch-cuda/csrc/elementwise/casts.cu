// casts: float32 tensors to 16 bits or back, as many of them in a launch as 4 KB of arguments describe. The weights of a
// network are cast at each step under autocast, and their gradients; many are smaller than what a launch costs.
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

constexpr int MAX_TENSORS = 140, UNROLL = 2;

/// Tensors, and which of a launch's blocks are whose: `first_block[i]` is the first one of tensor i.
struct Casts {
    char* to[MAX_TENSORS];
    const char* from[MAX_TENSORS];
    int64_t size[MAX_TENSORS];
    uint32_t first_block[MAX_TENSORS];
    int32_t count;
};
static_assert(sizeof(Casts) <= 4096);

constexpr int VEC = 8, PER_BLOCK = THREADS * VEC * UNROLL;  // elements

template <class T>
constexpr int PACKET = PER_16_BYTES<T> < VEC ? PER_16_BYTES<T> : VEC;

template <class To, class From>
__global__ void __launch_bounds__(THREADS) casts_kernel(const __grid_constant__ Casts all) {
    int i = 0, end = all.count;
    while (end - i > 1) {
        const int middle = (i + end) / 2;
        if (all.first_block[middle] <= blockIdx.x) i = middle;
        else end = middle;
    }
    const int64_t begin = int64_t(blockIdx.x - all.first_block[i]) * PER_BLOCK, left = all.size[i] - begin;
    To* to = reinterpret_cast<To*>(all.to[i]) + begin;
    const From* from = reinterpret_cast<const From*>(all.from[i]) + begin;
    if (left >= PER_BLOCK && (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0) {
        constexpr int IN = PACKET<From>, OUT = PACKET<To>;
        Packet<From, IN> in[UNROLL][VEC / IN];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int k = 0; k < VEC / IN; ++k)
                in[u][k] = reinterpret_cast<const Packet<From, IN>*>(from)[(u * THREADS + threadIdx.x) * (VEC / IN) + k];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int k = 0; k < VEC / OUT; ++k) {
                Packet<To, OUT> out;
#pragma unroll
                for (int e = 0; e < OUT; ++e) {
                    const int at = k * OUT + e;
                    out.v[e] = downcast<To>(upcast(in[u][at / IN].v[at % IN]));
                }
                reinterpret_cast<Packet<To, OUT>*>(to)[(u * THREADS + threadIdx.x) * (VEC / OUT) + k] = out;
            }
        return;
    }
    const int count = int(left < PER_BLOCK ? left : PER_BLOCK);
    for (int k = threadIdx.x; k < count; k += THREADS) to[k] = downcast<To>(upcast(from[k]));
}

template <class To, class From>
KernelPtr make_casts(const std::vector<int64_t>& sizes) {
    return make_kernel(0, [sizes](char* const* data, const Scalar*) {
        const size_t count = sizes.size();
        for (size_t at = 0; at < count;) {
            Casts all = {};
            int64_t blocks = 0;
            for (; at < count && all.count < MAX_TENSORS; ++at) {
                if (!sizes[at]) continue;
                const int i = all.count++;
                all.to[i] = data[at], all.from[i] = data[count + at];
                all.size[i] = sizes[at], all.first_block[i] = uint32_t(blocks);
                blocks += ceil_div(sizes[at], int64_t(PER_BLOCK));
            }
            if (all.count) launch_kernel("casts", casts_kernel<To, From>, unsigned(blocks), THREADS, all);
        }
    });
}

/// `count` results of one dtype, then what they are of. All lie without gaps, each result as what it is of.
KernelPtr casts(const Request& request) {
    const int64_t count = request.attrs.integer("count");
    if (int64_t(request.operands.size()) != 2 * count) return nullptr;
    const DType result = request.operands[0].dtype, source = request.operands[size_t(count)].dtype;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < count; ++i) {
        const Operand &to = request.operands[size_t(i)], &from = request.operands[size_t(count + i)];
        if (to.dtype != result || from.dtype != source || to.strides != from.strides) return nullptr;
        sizes.push_back(to.numel());
    }
    auto make = [&]<class Half>(Tag<Half>) -> KernelPtr {
        if (source == DType::f32) return make_casts<Half, float>(sizes);
        return result == DType::f32 ? make_casts<float, Half>(sizes) : nullptr;
    };
    const DType half = is_half(result) ? result : source;
    if (!is_half(half)) return nullptr;
    return half == DType::f16 ? make(Tag<__half>{}) : make(Tag<__nv_bfloat16>{});
}

}  // namespace

void add_casts(Registry& registry) { registry["casts"] = casts; }

}  // namespace norch::elementwise
