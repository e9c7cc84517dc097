// The kernels behind sum, prod, amax, amin, any, all. Partial results are of fixed parts and combined in a fixed order.
#pragma once

#include <limits>

#include "runtime/device.cuh"

namespace norch::reduction {

/// The least log, at most `most`, of which 2**log is at least n.
inline int log2_up(int64_t n, int most) {
    int log = 0;
    while (log < most && (int64_t(1) << log) < n) ++log;
    return log;
}

enum class Fold { sum, prod, max, min };

/// What elements of T are folded in: narrow integers in 32 bits, modulo which all folds are the same.
template <class T>
struct FoldType {
    using type = std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4, int32_t, computed<T>>;
};
template <class T>
using folded = typename FoldType<T>::type;

template <class A>
__device__ inline A combine(Fold fold, A a, A b) {
    switch (fold) {
        case Fold::sum: return Add::apply(a, b);
        case Fold::prod: return Mul::apply(a, b);
        case Fold::max: return Maximum::apply(a, b);
        default: return Minimum::apply(a, b);
    }
}

/// total[j] takes in x[0..U)[j], which are folded in a tree first.
template <class Op, class A, int U, int N>
__device__ inline void take_as(A (&total)[N], A (&x)[U][N]) {
#pragma unroll
    for (int half = U / 2; half > 0; half /= 2)
#pragma unroll
        for (int u = 0; u < half; ++u)
#pragma unroll
            for (int j = 0; j < N; ++j) x[u][j] = Op::apply(x[u][j], x[u + half][j]);
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] = Op::apply(total[j], x[0][j]);
}

template <class A, int U, int N>
__device__ inline void take(Fold fold, A (&total)[N], A (&x)[U][N]) {
    switch (fold) {
        case Fold::sum: return take_as<Add>(total, x);
        case Fold::prod: return take_as<Mul>(total, x);
        case Fold::max: return take_as<Maximum>(total, x);
        default: return take_as<Minimum>(total, x);
    }
}

/// Folds the packets i, i + step, ... below `end`. `at(i)` is where packet i lies.
template <class T, int VEC, class A, class At>
__device__ inline void fold_packets(Fold fold, A identity, A (&total)[VEC], uint32_t i, uint32_t step, uint32_t end,
                                    const At& at) {
    constexpr int U = VEC > 8 ? 2 : 4;
    for (; i < end; i += U * step) {
        Packet<T, VEC> packets[U];
        const bool is_whole = i + (U - 1) * step < end;
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (is_whole || i + u * step < end) packets[u] = *reinterpret_cast<const Packet<T, VEC>*>(at(i + u * step));
        A x[U][VEC];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const bool is_there = is_whole || i + u * step < end;
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[u][j] = is_there ? A(upcast(packets[u].v[j])) : identity;
        }
        take(fold, total, x);
    }
}

/// Folds the elements i, i + step, ... below `end`, eight at a time; returns the first of those that are left.
template <class T, class A>
__device__ inline uint32_t fold_strided(Fold fold, A (&total)[1], const char* x, int64_t stride, uint32_t i,
                                        uint32_t step, uint32_t end) {
    constexpr int U = 8;
    const int64_t apart = step * stride;
    x += i * stride;
    for (; i + (U - 1) * step < end; i += U * step, x += U * apart) {
        A y[U][1];
#pragma unroll
        for (int u = 0; u < U; ++u) y[u][0] = A(upcast(*reinterpret_cast<const T*>(x + u * apart)));
        take(fold, total, y);
    }
    return i;
}

/// Where results go: to the output, or as a part of them to `parts`, which has `outputs` of them in a row.
template <class T>
struct Target {
    char* out;
    folded<T>* parts;

    __device__ void store(int64_t offset, int64_t part, folded<T> value) const {
        if (parts) parts[part] = value;
        else *reinterpret_cast<T*>(out + offset) = downcast<T>(computed<T>(value));
    }
};

/// Each output is the fold of `reduced`, in `chunks` parts of `chunk`.
struct Reduction {
    Layout<2> kept;     // the outputs: in x, in out
    Layout<1> reduced;  // of x
    uint32_t chunk, chunks;
    Fold fold;
    bool is_line;       // `reduced` is contiguous and counts elements even where x is read in packets
};

/// Reduces along contiguous memory: 2**log_group threads for each output. Where `r.is_line`, rows may start
/// anywhere; otherwise `r.reduced` counts packets, and these are aligned.
template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) row_kernel(const __grid_constant__ Reduction r, int log_group, const char* x,
                                                      Target<T> target, folded<T> identity) {
    using A = folded<T>;
    const uint32_t group = 1u << log_group, lane = threadIdx.x & (group - 1);
    const uint32_t task = blockIdx.x * (THREADS >> log_group) + (threadIdx.x >> log_group);
    const uint32_t output = r.chunks == 1 ? task : task / r.chunks, chunk = task - output * r.chunks;
    const bool is_active = output < r.kept.numel;
    int64_t offset[2] = {};
    A total[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) total[j] = identity;
    if (is_active) {
        r.kept.offsets(output, offset);
        const char* row = x + offset[0];
        const uint32_t begin = chunk * r.chunk, end = min(begin + r.chunk, r.reduced.numel);
        if (r.is_line) {
            row += int64_t(begin) * sizeof(T);
            const uint32_t n = end - begin, past = uint32_t(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
            const uint32_t head = min(n, past ? VEC - past : 0), packets = (n - head) / VEC;
            const T* elements = reinterpret_cast<const T*>(row);
            for (uint32_t i = lane; i < head; i += group)
                total[0] = combine(r.fold, total[0], A(upcast(elements[i])));
            for (uint32_t i = head + packets * VEC + lane; i < n; i += group)
                total[0] = combine(r.fold, total[0], A(upcast(elements[i])));
            fold_packets<T, VEC>(r.fold, identity, total, lane, group, packets, [&](uint32_t i) {
                return reinterpret_cast<const char*>(elements + head) + int64_t(i) * 16;
            });
        } else {
            fold_packets<T, VEC>(r.fold, identity, total, begin + lane, group, end, [&](uint32_t i) {
                int64_t at[1];
                r.reduced.offsets(i, at);
                return row + at[0];
            });
        }
    }
    A value = total[0];
#pragma unroll
    for (int j = 1; j < VEC; ++j) value = combine(r.fold, value, total[j]);
    for (uint32_t step = min(group, 32u) / 2; step > 0; step /= 2)
        value = combine(r.fold, value, __shfl_xor_sync(~0u, value, step));
    if (group > 32) {
        __shared__ A warps[THREADS / 32];
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
        __syncthreads();
        value = warps[threadIdx.x % (THREADS / 32)];
        for (uint32_t step = THREADS / 64; step > 0; step /= 2)
            value = combine(r.fold, value, __shfl_xor_sync(~0u, value, step));
    }
    if (is_active && lane == 0) target.store(offset[1], int64_t(chunk) * r.kept.numel + output, value);
}

/// How the threads of a block share a reduction: 2**log_across of them lie along the outputs, the others along what is
/// reduced; neighbours along the outputs, or `is_along_reduced`.
struct Arrangement {
    int log_across;
    bool is_along_reduced;
};

/// Reduces VEC neighbouring outputs at once; with VEC == 1 any layout. `r.kept` counts packets.
template <class In, class T, int VEC>
__global__ void __launch_bounds__(THREADS, VEC > 4 ? 1 : 4)  // with 4, packets of 8 would spill
    column_kernel(const __grid_constant__ Reduction r, const Arrangement threads, int64_t out_stride, const char* x,
                  Target<T> target, folded<T> identity) {
    using A = folded<T>;
    __shared__ A shared[VEC][THREADS];
    const uint32_t across = 1u << threads.log_across, along = THREADS >> threads.log_across;
    const uint32_t column = threads.is_along_reduced ? threadIdx.x / along : threadIdx.x & (across - 1);
    const uint32_t row = threads.is_along_reduced ? threadIdx.x & (along - 1) : threadIdx.x >> threads.log_across;
    const uint32_t blocks = (r.kept.numel + across - 1) >> threads.log_across;
    const uint32_t chunk = blockIdx.x / blocks, output = ((blockIdx.x - chunk * blocks) << threads.log_across) + column;
    const bool is_active = output < r.kept.numel;
    int64_t offset[2] = {};
    A total[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) total[j] = identity;
    if (is_active) {
        r.kept.offsets(output, offset);
        const uint32_t begin = chunk * r.chunk, end = min(begin + r.chunk, r.reduced.numel);
        uint32_t first = begin + row;
        if constexpr (VEC == 1) {
            if (r.reduced.ndim == 1)  // with so little to load at a time, index arithmetic would be the limit
                first = fold_strided<In>(r.fold, total, x + offset[0], r.reduced.stride[0][0], first, along, end);
        }
        fold_packets<In, VEC>(r.fold, identity, total, first, along, end, [&](uint32_t i) {
            int64_t at[1];
            r.reduced.offsets(i, at);
            return x + offset[0] + at[0];
        });
    }
    const uint32_t at = row * across + column;
#pragma unroll
    for (int j = 0; j < VEC; ++j) shared[j][at] = total[j];
    for (uint32_t step = along / 2; step > 0; step /= 2) {
        __syncthreads();
        if (row < step)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                total[j] = combine(r.fold, total[j], shared[j][at + step * across]);
                shared[j][at] = total[j];
            }
    }
    if (is_active && row == 0)
#pragma unroll
        for (int j = 0; j < VEC; ++j)
            target.store(offset[1] + j * out_stride, (int64_t(chunk) * r.kept.numel + output) * VEC + j, total[j]);
}

constexpr int SUM_WARPS = 16;

/// Sums of columns of 16-bit floats: a block has 32 packets of a chunk of rows, each warp every 16th row. More is under way
/// at once than in `column_kernel`. `parts` has a row for each chunk.
template <class T>
__global__ void __launch_bounds__(SUM_WARPS * 32, 2)
    column_sum_kernel(const char* x, int64_t stride, uint32_t rows, uint32_t packets, uint32_t chunk, float* parts) {
    constexpr int VEC = PER_16_BYTES<T>, U = 8;
    __shared__ float shared[SUM_WARPS][VEC * 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, packet = blockIdx.x * 32 + lane;
    const uint32_t begin = blockIdx.y * chunk, end = min(begin + chunk, rows);
    float total[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) total[j] = -0.f;
    if (packet < packets) {
        auto add = [&]<int N>(std::integral_constant<int, N>, uint32_t row) {
            Packet<T, VEC> found[N];
#pragma unroll
            for (int u = 0; u < N; ++u)
                found[u] = *reinterpret_cast<const Packet<T, VEC>*>(x + int64_t(row + u * SUM_WARPS) * stride + packet * 16);
#pragma unroll
            for (int u = 0; u < N; ++u)
#pragma unroll
                for (int j = 0; j < VEC; ++j) total[j] += upcast(found[u].v[j]);
        };
        uint32_t row = begin + warp;
        for (; row + (U - 1) * SUM_WARPS < end; row += U * SUM_WARPS) add(std::integral_constant<int, U>{}, row);
        for (; row < end; row += SUM_WARPS) add(std::integral_constant<int, 1>{}, row);
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) shared[warp][j * 32 + lane] = total[j];
    __syncthreads();
    const uint32_t column = (blockIdx.x * 32 + lane) * VEC + warp;
    if (warp >= VEC || packet >= packets) return;
    float sum = shared[0][threadIdx.x];
#pragma unroll
    for (int w = 1; w < SUM_WARPS; ++w) sum += shared[w][threadIdx.x];
    parts[int64_t(blockIdx.y) * packets * VEC + column] = sum;
}

}  // namespace norch::reduction
