// The gradients of group_norm, whose values groupnorm_forward.cu has: sums over each channel of a sample, in float64 and of
// distances from the group's first element, then what they make of each element.
#include <algorithm>

#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/type_groups.cuh"

namespace norch::nn {
namespace {

struct GroupNorm {
    int64_t samples, channels, groups, size;  // size: elements of a channel of a sample
    double eps;
    DType dtype, weight_dtype;
    bool has_packets;
    int log_threads;  // of a channel: a block or a warp

    __host__ __device__ int64_t each() const { return channels / groups; }
};

struct ChannelSums {
    double g, gx, x, xx;

    __device__ void take(const ChannelSums& other) {
        g += other.g, gx += other.gx;
        x += other.x, xx += other.xx;
    }
};

/// What a group of a sample has: of distances from its first element the mean, 1 over the deviation, and the means of the
/// gradients and of their products with what is normalised.
struct GroupMeans {
    double mean, factor, gradient, product;
};

__device__ inline ChannelSums over_warp(ChannelSums s) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        s.take({__shfl_xor_sync(~0u, s.g, step), __shfl_xor_sync(~0u, s.gx, step), __shfl_xor_sync(~0u, s.x, step),
                __shfl_xor_sync(~0u, s.xx, step)});
    return s;
}

__device__ inline double weight_at(const GroupNorm& p, const char* weight, int64_t channel) {
    double out = 1;
    if (weight) with_type<Anything>(p.weight_dtype, [&]<class W>(Tag<W>) {
        out = double(upcast(reinterpret_cast<const W*>(weight)[channel]));
    });
    return out;
}

/// Calls f(i, packets of both) for a thread's elements of a channel.
template <class T, class F>
__device__ inline void each_packet(const GroupNorm& p, const T* grad, const T* x, uint32_t lane, uint32_t threads,
                                   const F& f) {
    constexpr int VEC = PER_16_BYTES<T>;
    if (p.has_packets) {
#pragma unroll 2
        for (int64_t i = lane; i < p.size / VEC; i += threads)
            f(i, reinterpret_cast<const Packet<T, VEC>*>(grad)[i], reinterpret_cast<const Packet<T, VEC>*>(x)[i]);
    } else {
#pragma unroll 4
        for (int64_t i = lane; i < p.size; i += threads)
            f(i, reinterpret_cast<const Packet<T, 1>*>(grad)[i], reinterpret_cast<const Packet<T, 1>*>(x)[i]);
    }
}

template <class Group>
__global__ void __launch_bounds__(THREADS)
    channel_sums(const __grid_constant__ GroupNorm p, const char* grad, const char* x, ChannelSums* sums) {
    const uint32_t threads = 1u << p.log_threads, lane = threadIdx.x & (threads - 1);
    const int64_t channel = int64_t(blockIdx.x) * (THREADS >> p.log_threads) + (threadIdx.x >> p.log_threads);
    if (channel >= p.samples * p.channels) return;  // whole warps, where warps do not meet
    ChannelSums s = {};
    with_type<Group>(p.dtype, [&]<class T>(Tag<T>) {
        const T* const all = reinterpret_cast<const T*>(x);
        const double origin = double(upcast(all[channel / p.each() * p.each() * p.size]));
        each_packet(p, reinterpret_cast<const T*>(grad) + channel * p.size, all + channel * p.size, lane, threads,
                    [&]<int N>(int64_t, const Packet<T, N>& g, const Packet<T, N>& v) {
#pragma unroll
                        for (int j = 0; j < N; ++j) {
                            const double one = double(upcast(g.v[j])), off = double(upcast(v.v[j])) - origin;
                            s.take({one, one * off, off, off * off});
                        }
                    });
    });
    s = over_warp(s);
    if (p.log_threads > 5) {
        __shared__ ChannelSums warps[THREADS / 32];
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
        __syncthreads();
        s = warps[0];
        for (int w = 1; w < THREADS / 32; ++w) s.take(warps[w]);
    }
    if (lane == 0) sums[channel] = s;
}

/// A warp for each group of a sample.
__global__ void __launch_bounds__(THREADS)
    group_means(const __grid_constant__ GroupNorm p, const ChannelSums* sums, const char* weight, GroupMeans* means) {
    const int64_t group = int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
    if (group >= p.samples * p.groups) return;
    ChannelSums s = {};
    for (int64_t c = threadIdx.x % 32; c < p.each(); c += 32) {
        const double w = weight_at(p, weight, group % p.groups * p.each() + c);
        const ChannelSums one = sums[group * p.each() + c];
        s.take({w * one.g, w * one.gx, one.x, one.xx});
    }
    s = over_warp(s);
    const double count = double(p.each() * p.size), mean = s.x / count, variance = s.xx / count - mean * mean;
    const double factor = 1 / ::sqrt((variance < 0 ? 0 : variance) + p.eps);
    if (threadIdx.x % 32 == 0) means[group] = {mean, factor, s.g / count, factor * (s.gx - mean * s.g) / count};
}

template <class Group>
__global__ void __launch_bounds__(THREADS)
    group_norm_input_grad(const __grid_constant__ GroupNorm p, const char* grad, const char* x, const char* weight,
                          const GroupMeans* means, char* out) {
    using C = computed<Group>;
    const uint32_t threads = 1u << p.log_threads, lane = threadIdx.x & (threads - 1);
    const int64_t channel = int64_t(blockIdx.x) * (THREADS >> p.log_threads) + (threadIdx.x >> p.log_threads);
    if (channel >= p.samples * p.channels) return;
    const GroupMeans m = means[channel / p.each()];
    const C of_grad = C(m.factor * weight_at(p, weight, channel % p.channels)), of_x = C(-m.factor * m.factor * m.product);
    const C rest = C(m.factor * (m.mean * m.factor * m.product - m.gradient));
    with_type<Group>(p.dtype, [&]<class T>(Tag<T>) {
        const T* const all = reinterpret_cast<const T*>(x);
        const C origin = C(upcast(all[channel / p.each() * p.each() * p.size]));
        T* const to = reinterpret_cast<T*>(out) + channel * p.size;
        each_packet(p, reinterpret_cast<const T*>(grad) + channel * p.size, all + channel * p.size, lane, threads,
                    [&]<int N>(int64_t i, const Packet<T, N>& g, const Packet<T, N>& v) {
                        Packet<T, N> made;
#pragma unroll
                        for (int j = 0; j < N; ++j)
                            made.v[j] = downcast<T>(computed<T>(of_grad * C(upcast(g.v[j])) +
                                                                (of_x * (C(upcast(v.v[j])) - origin) + rest)));
                        reinterpret_cast<Packet<T, N>*>(to)[i] = made;
                    });
    });
}

/// A warp for each channel.
template <class C>
__global__ void __launch_bounds__(THREADS)
    group_norm_parameter_grads(const __grid_constant__ GroupNorm p, const ChannelSums* sums, const GroupMeans* means,
                               C* weight_grad, C* bias_grad) {
    const int64_t channel = int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
    if (channel >= p.channels) return;
    ChannelSums s = {};
    for (int64_t n = threadIdx.x % 32; n < p.samples; n += 32) {
        const ChannelSums one = sums[n * p.channels + channel];
        const GroupMeans m = means[n * p.groups + channel / p.each()];
        s.take({one.g, m.factor * (one.gx - m.mean * one.g), 0, 0});
    }
    s = over_warp(s);
    if (threadIdx.x % 32) return;
    weight_grad[channel] = C(s.gx);
    bias_grad[channel] = C(s.g);
}

/// The gradients of input, weight and bias, then grad, input and, if `given`, weight. Null where they are not row by row.
KernelPtr group_norm_grad(const Request& request) {
    const auto& operands = request.operands;
    const Operand &out = operands[0], &x = operands[4];
    const bool has_weight = operands.size() > 5;
    for (const Operand& o : operands)
        if (!o.is_contiguous() || o.is_scalar || !is_floating(o.dtype)) return nullptr;
    const DType wide = is_half(x.dtype) ? DType::f32 : x.dtype;
    if (out.dtype != x.dtype || operands[3].dtype != x.dtype || operands[1].dtype != wide || operands[2].dtype != wide ||
        x.ndim() < 2 || !x.numel())
        return nullptr;
    GroupNorm p = {x.shape[0], x.shape[1], request.attrs.integer("num_groups"), 1, request.attrs.number("eps"), x.dtype};
    for (int d = 2; d < x.ndim(); ++d) p.size *= x.shape[size_t(d)];
    p.weight_dtype = has_weight ? operands[5].dtype : x.dtype;
    const int64_t planes = p.samples * p.channels;
    if (planes < 64 || planes > INT32_MAX) return nullptr;  // too few for the blocks, or too many
    p.log_threads = p.size <= 1024 ? 5 : 8;
    const int64_t packet = 16 / size_of(x.dtype);
    return visit_floating_groups(x.dtype, [&]<class Group>(Tag<Group>) -> KernelPtr {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            using C = computed<Group>;
            GroupNorm now = p;
            now.has_packets = p.size % packet == 0 && is_aligned(data[0], 16) && is_aligned(data[3], 16) &&
                              is_aligned(data[4], 16);
            const char* weight = has_weight ? data[5] : nullptr;
            const Scratch<ChannelSums> sums(planes);
            const Scratch<GroupMeans> means(p.samples * p.groups);
            const auto blocks = unsigned(ceil_div(planes, THREADS >> p.log_threads));
            const auto warps = [](int64_t n) { return unsigned(ceil_div(n, THREADS / 32)); };
            launch_kernel("group_norm's sums", channel_sums<Group>, blocks, THREADS, now, data[3], data[4], sums.data());
            launch_kernel("group_norm's means", group_means, warps(p.samples * p.groups), THREADS, now, sums.data(), weight,
                          means.data());
            launch_kernel("group_norm's gradient", group_norm_input_grad<Group>, blocks, THREADS, now, data[3], data[4],
                          weight, means.data(), data[0]);
            launch_kernel("group_norm's parameters", group_norm_parameter_grads<C>, warps(p.channels), THREADS, now,
                          sums.data(), means.data(), reinterpret_cast<C*>(data[1]), reinterpret_cast<C*>(data[2]));
        });
    });
}

}  // namespace

KernelPtr group_norm(const Request& request);  // groupnorm_forward.cu

void add_group_norm(Registry& registry) {
    registry["group_norm"] = group_norm;
    registry["group_norm_grad"] = group_norm_grad;
}

}  // namespace norch::nn
