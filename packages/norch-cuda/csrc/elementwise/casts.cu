// casts: float32 tensors to 16 bits, as many of them in a launch as 4 KB of arguments describe. The weights of a network
// are cast at each step under autocast, many of them smaller than what a launch costs.
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

constexpr int MOST = 140, UNROLL = 2;

/// Tensors, and which of a launch's blocks are whose: `first_block[i]` is the first one of tensor i.
struct Casts {
    char* to[MOST];
    const char* from[MOST];
    int64_t size[MOST];
    uint32_t first_block[MOST];
    int32_t count;
};
static_assert(sizeof(Casts) <= 4096);

template <class T>
constexpr int PER_BLOCK = THREADS * PER_16_BYTES<T> * UNROLL;

template <class T>
__global__ void __launch_bounds__(THREADS) casts_kernel(const __grid_constant__ Casts all) {
    constexpr int VEC = PER_16_BYTES<T>;
    int i = 0, end = all.count;
    while (end - i > 1) {
        const int middle = (i + end) / 2;
        if (all.first_block[middle] <= blockIdx.x) i = middle;
        else end = middle;
    }
    const int64_t begin = int64_t(blockIdx.x - all.first_block[i]) * PER_BLOCK<T>, left = all.size[i] - begin;
    T* to = reinterpret_cast<T*>(all.to[i]) + begin;
    const float* from = reinterpret_cast<const float*>(all.from[i]) + begin;
    if (left >= PER_BLOCK<T> && (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0) {
        Packet<float, 4> in[UNROLL][VEC / 4];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int k = 0; k < VEC / 4; ++k)
                in[u][k] = reinterpret_cast<const Packet<float, 4>*>(from)[(u * THREADS + threadIdx.x) * (VEC / 4) + k];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            Packet<T, VEC> out;
#pragma unroll
            for (int k = 0; k < VEC; ++k) out.v[k] = downcast<T>(in[u][k / 4].v[k % 4]);
            reinterpret_cast<Packet<T, VEC>*>(to)[u * THREADS + threadIdx.x] = out;
        }
        return;
    }
    const int count = int(left < PER_BLOCK<T> ? left : PER_BLOCK<T>);
    for (int k = threadIdx.x; k < count; k += THREADS) to[k] = downcast<T>(from[k]);
}

/// `count` results of one dtype, then what they are of. All lie without gaps, each result as what it is of.
KernelPtr casts(const Request& request) {
    const int64_t count = request.attrs.integer("count");
    const DType dtype = request.operands[0].dtype;
    if (!is_half(dtype) || int64_t(request.operands.size()) != 2 * count) return nullptr;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < count; ++i) {
        const Operand &to = request.operands[size_t(i)], &from = request.operands[size_t(count + i)];
        if (to.dtype != dtype || from.dtype != DType::f32 || to.strides != from.strides) return nullptr;
        sizes.push_back(to.numel());
    }
    auto make = [&]<class T>(Tag<T>) {
        return make_kernel(0, [sizes](char* const* data, const Scalar*) {
            const size_t count = sizes.size();
            for (size_t at = 0; at < count;) {
                Casts all = {};
                int64_t blocks = 0;
                for (; at < count && all.count < MOST; ++at) {
                    if (!sizes[at]) continue;
                    const int i = all.count++;
                    all.to[i] = data[at], all.from[i] = data[count + at];
                    all.size[i] = sizes[at], all.first_block[i] = uint32_t(blocks);
                    blocks += ceil_div(sizes[at], int64_t(PER_BLOCK<T>));
                }
                if (all.count) launch_kernel("casts", casts_kernel<T>, unsigned(blocks), THREADS, all);
            }
        });
    };
    return dtype == DType::f16 ? make(Tag<__half>{}) : make(Tag<__nv_bfloat16>{});
}

}  // namespace

void add_casts(Registry& registry) { registry["casts"] = casts; }

}  // namespace norch::elementwise
