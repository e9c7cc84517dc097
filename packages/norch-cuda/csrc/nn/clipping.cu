// total_norm, of all gradients of a model, and scale, of all of them, in a launch for as many tensors as 4 KB of arguments
// describe: what clips gradients.
#include "runtime/allocator.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace clipping {

constexpr int MAX_TENSORS = 200, PACKETS = 4;

/// Tensors, and which of a launch's blocks are whose: `first_block[i]` is the first one of tensor i.
struct Gradients {
    char* data[MAX_TENSORS];
    int64_t size[MAX_TENSORS];
    uint32_t first_block[MAX_TENSORS];
    int32_t count;
};
static_assert(sizeof(Gradients) <= 4060);

template <class T>
constexpr int PER_BLOCK = THREADS * PER_16_BYTES<T> * PACKETS;

/// What a block has of its tensor.
template <class T>
struct Part {
    T* x;
    int count;
    bool is_whole;  // in packets

    __device__ explicit Part(const Gradients& all) {
        int i = 0, end = all.count;
        while (end - i > 1) {
            const int middle = (i + end) / 2;
            if (all.first_block[middle] <= blockIdx.x) i = middle;
            else end = middle;
        }
        const int64_t begin = int64_t(blockIdx.x - all.first_block[i]) * PER_BLOCK<T>, left = all.size[i] - begin;
        x = reinterpret_cast<T*>(all.data[i]) + begin;
        count = int(left < PER_BLOCK<T> ? left : PER_BLOCK<T>);
        is_whole = left >= PER_BLOCK<T> && reinterpret_cast<uintptr_t>(x) % 16 == 0;
    }
};

/// The sum of what the threads of a block have, in its first thread.
__device__ inline double block_sum(double sum) {
    __shared__ double warps[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    for (int w = 1; w < THREADS / 32; ++w) sum += warps[w];
    return sum;
}

template <class T>
__global__ void __launch_bounds__(THREADS) add_squares(const __grid_constant__ Gradients all, double* parts) {
    constexpr int VEC = PER_16_BYTES<T>;
    const Part<T> part(all);
    double sum = 0;
    if (part.is_whole) {
        Packet<T, VEC> packets[PACKETS];
#pragma unroll
        for (int u = 0; u < PACKETS; ++u)
            packets[u] = reinterpret_cast<const Packet<T, VEC>*>(part.x)[u * THREADS + threadIdx.x];
#pragma unroll
        for (int u = 0; u < PACKETS; ++u)
#pragma unroll
            for (int k = 0; k < VEC; ++k) {
                const double x = double(upcast(packets[u].v[k]));
                sum += x * x;
            }
    } else {
        for (int k = threadIdx.x; k < part.count; k += THREADS) {
            const double x = double(upcast(part.x[k]));
            sum += x * x;
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class C>
__global__ void __launch_bounds__(THREADS) root_of_sum(const double* parts, int64_t count, C* out) {
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < count; i += THREADS) sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = C(sqrt(sum));
}

template <class T>
__global__ void __launch_bounds__(THREADS) scale_all(const __grid_constant__ Gradients all, const computed<T>* given) {
    constexpr int VEC = PER_16_BYTES<T>;
    const computed<T> factor = *given;
    if (factor == computed<T>(1)) return;  // what is short enough stays as it is
    const Part<T> part(all);
    if (part.is_whole) {
        Packet<T, VEC> packets[PACKETS];
        auto* at = reinterpret_cast<Packet<T, VEC>*>(part.x) + threadIdx.x;
#pragma unroll
        for (int u = 0; u < PACKETS; ++u) packets[u] = at[u * THREADS];
#pragma unroll
        for (int u = 0; u < PACKETS; ++u) {
#pragma unroll
            for (int k = 0; k < VEC; ++k) packets[u].v[k] = downcast<T>(upcast(packets[u].v[k]) * factor);
            at[u * THREADS] = packets[u];
        }
    } else {
        for (int k = threadIdx.x; k < part.count; k += THREADS) part.x[k] = downcast<T>(upcast(part.x[k]) * factor);
    }
}

/// Calls launch(group, blocks, first) for groups of tensors; `first` blocks were there before.
template <class T, class Launch>
void for_groups(const std::vector<int64_t>& sizes, char* const* data, const Launch& launch) {
    int64_t first = 0;
    for (size_t at = 0; at < sizes.size();) {
        Gradients all = {};
        int64_t blocks = 0;
        for (; at < sizes.size() && all.count < MAX_TENSORS; ++at) {
            if (!sizes[at]) continue;
            const int64_t wanted = ceil_div(sizes[at], int64_t(PER_BLOCK<T>));
            if (all.count && blocks + wanted > INT32_MAX) break;
            const int i = all.count++;
            all.data[i] = data[at], all.size[i] = sizes[at], all.first_block[i] = uint32_t(blocks);
            blocks += wanted;
        }
        if (all.count) launch(all, blocks, first);
        first += blocks;
    }
}

std::vector<int64_t> sizes_of(const Request& request, size_t first, size_t count) {
    std::vector<int64_t> out;
    for (size_t i = first; i < first + count; ++i) out.push_back(request.operands[i].numel());
    return out;
}

bool are_flat(const Request& request, size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
        const Operand& o = request.operands[i];
        if (o.is_scalar || o.dtype != request.operands[first].dtype || !o.is_contiguous()) return false;
    }
    return is_floating(request.operands[first].dtype);
}

template <class T>
KernelPtr make_total_norm(const std::vector<int64_t>& sizes) {
    int64_t total = 0;
    for (int64_t size : sizes) total += ceil_div(size, int64_t(PER_BLOCK<T>));
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const Scratch<double> parts(std::max<int64_t>(total, 1));
        for_groups<T>(sizes, data + 1, [&](const Gradients& all, int64_t blocks, int64_t first) {
            launch_kernel("a norm of tensors", add_squares<T>, unsigned(blocks), THREADS, all, parts.data() + first);
        });
        using C = computed<T>;
        launch_kernel("a norm of tensors' second stage", root_of_sum<C>, 1, THREADS, parts.data(), total,
                      reinterpret_cast<C*>(data[0]));
    });
}

KernelPtr total_norm(const Request& request) {
    const size_t count = request.operands.size() - 1;
    if (request.operands.size() < 2 || !are_flat(request, 1, count + 1)) return nullptr;
    const auto sizes = sizes_of(request, 1, count);
    return visit_floating_device(request.operands[1].dtype,
                                 [&]<class T>(Tag<T>) -> KernelPtr { return make_total_norm<T>(sizes); });
}

template <class T>
KernelPtr make_scale(const std::vector<int64_t>& sizes) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const auto* factor = reinterpret_cast<const computed<T>*>(data[sizes.size()]);
        for_groups<T>(sizes, data, [&](const Gradients& all, int64_t blocks, int64_t) {
            launch_kernel("tensors scaled", scale_all<T>, unsigned(blocks), THREADS, all, factor);
        });
    });
}

KernelPtr scale(const Request& request) {
    const size_t count = request.operands.size() - 1;
    if (request.operands.size() < 2 || !are_flat(request, 0, count)) return nullptr;
    const Operand &first = request.operands[0], &factor = request.operands.back();
    const DType wide = first.dtype == DType::f64 ? DType::f64 : DType::f32;
    if (factor.is_scalar || factor.dtype != wide || factor.numel() != 1) return nullptr;
    const auto sizes = sizes_of(request, 0, count);
    return visit_floating_device(first.dtype, [&]<class T>(Tag<T>) -> KernelPtr { return make_scale<T>(sizes); });
}

}  // namespace clipping
}  // namespace

void add_clipping(Registry& registry) {
    registry["total_norm"] = clipping::total_norm;
    registry["scale"] = clipping::scale;
}

}  // namespace norch::nn
