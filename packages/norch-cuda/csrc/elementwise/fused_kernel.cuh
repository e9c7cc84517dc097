// The kernel that interprets fused programs. A thread computes K elements at once: its operands and the results that later
// steps read lie in shared memory, where each thread has its own place, the last result in registers.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "elementwise/fused_program.cuh"
#include "runtime/type_groups.cuh"

namespace norch::elementwise::fused {

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
        if (p.is_repeated[t]) {  // 16 bytes at once would pass L1, and all multiprocessors ask L2 for the same lines
            auto move = [&]<class T>(Tag<T>) {
                constexpr int PER = 8 / int(sizeof(T));
#pragma unroll
                for (int j = 0; j < K; j += PER)
                    __pipeline_memcpy_async(packet_at<T>(shared, j), data + j * sizeof(T), 8);
            };
            if (p.itemsize[t] == 4) move(Tag<uint32_t>{});
            else if (p.itemsize[t] == 2) move(Tag<uint16_t>{});
            else move(Tag<uint8_t>{});
        } else if (p.itemsize[t] == 4) {
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

}  // namespace norch::elementwise::fused
