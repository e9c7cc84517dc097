// The kernels of softmax and its gradient along rows: in registers where a row fits, else in passes over it.
#pragma once

#include "nn/losses.cuh"

namespace norch::nn {

/// Which of the rows' results make the loss of cross_entropy, if that is what is computed.
struct Pick {
    bool wanted, is_reduced;
    Targets targets;
    char* losses;  // one for each row where they are not reduced
    LossSum sum;
};

struct SoftmaxRows {
    char* out;
    const char* in;
    int64_t rows, n;
    int lanes;
    bool is_log;
    Pick pick;
};

/// What one thread of each row adds to the losses.
template <class T>
struct Picked {
    using C = computed<T>;
    double sum = 0, counted = 0;
    int64_t index = -1;
    C score = 0;

    /// Before the row's sums are known, so that these loads need not be waited for after them.
    __device__ void find(const Pick& pick, int64_t row, const T* in) {
        index = pick.targets(row);
        if (index >= 0) score = C(upcast(in[index]));
    }
    __device__ void add(const Pick& pick, int64_t row, C largest, C log_sum) {
        // As the gradient will see it: rounded to what is stored.
        const C loss = index < 0 ? C(0) : -C(upcast(downcast<T>((score - largest) - log_sum)));
        if (!pick.is_reduced) reinterpret_cast<T*>(pick.losses)[row] = downcast<T>(loss);
        sum += double(loss);
        counted += index >= 0;
    }
};

template <class T, int VEC, int K, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? MAX_THREADS : ROW_THREADS) softmax_kernel(
    const __grid_constant__ SoftmaxRows a) {
    using C = computed<T>;
    constexpr int E = VEC * K;
    const RowPlace<BLOCK> at(a.lanes);
    const int n = int(a.n);
    Picked<T> picked;
    for (int64_t first = int64_t(blockIdx.x) * at.groups; first < a.rows; first += int64_t(gridDim.x) * at.groups) {
        const int64_t row = first + at.group;
        const bool is_row = BLOCK || row < a.rows;
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        const int width = is_row ? n : 0;
        C x[E];
        load_row<T, VEC, K>(x, in, width, at.lanes, at.lane, negative_infinity<C>());
        if (a.pick.wanted && at.lane == 0 && is_row) picked.find(a.pick, row, in);
        C largest = negative_infinity<C>();
#pragma unroll
        for (int i = 0; i < E; ++i) largest = Largest::apply(largest, x[i]);
        largest = reduce_row<BLOCK, Largest>(largest, at.lanes);
        C sum = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if ((k * at.lanes + at.lane) * VEC < width) {
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    C& value = x[k * VEC + j];
                    value -= largest;
                    const C e = std::exp(value);
                    sum += e;
                    if (!a.is_log) value = e;
                }
            }
        }
        sum = reduce_row<BLOCK, Sum>(sum, at.lanes);
        const C last = a.is_log ? std::log(sum) : C(1) / sum;
#pragma unroll
        for (int i = 0; i < E; ++i) x[i] = a.is_log ? x[i] - last : x[i] * last;
        store_row<T, VEC, K>(reinterpret_cast<T*>(a.out) + row * a.n, x, width, at.lanes, at.lane);
        if (a.pick.wanted && at.lane == 0 && is_row) picked.add(a.pick, row, largest, last);
    }
    if (a.pick.wanted && a.pick.is_reduced) finish_loss<T>(a.pick.sum, picked.sum, picked.counted);
}

/// The largest and the sum of exponentials of what has been seen, which is brought to the largest as that grows
/// (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018).
template <class C>
struct Online {
    C largest = negative_infinity<C>(), sum = C(0);

    template <int N>
    __device__ void add(const C (&x)[N]) {
        C next = largest;
#pragma unroll
        for (int j = 0; j < N; ++j) next = Largest::apply(next, x[j]);
        move_to(next);
        const C base = origin();
#pragma unroll
        for (int j = 0; j < N; ++j) sum += std::exp(x[j] - base);
    }
    __device__ void move_to(C next) {
        if (next != largest) sum *= std::exp(largest - next);
        largest = next;
    }
    /// What to subtract: minus infinities alone would give NaN, where there may be larger numbers yet.
    __device__ C origin() const { return largest == negative_infinity<C>() ? C(0) : largest; }
};

template <class T, int VEC>
__global__ void __launch_bounds__(MAX_THREADS) softmax_loop_kernel(const __grid_constant__ SoftmaxRows a) {
    using C = computed<T>;
    constexpr int UNROLL = VEC == 1 ? 8 : 4;
    const int64_t step = int64_t(blockDim.x) * VEC, start = int64_t(threadIdx.x) * VEC;
    Picked<T> picked;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        if (a.pick.wanted && threadIdx.x == 0) picked.find(a.pick, row, in);
        const Ends<T, VEC> ends(in, a.n);
        const int64_t single = ends.index(threadIdx.x), n = ends.packed;
        Online<C> found;
        if (single >= 0) {
            const C x[1] = {C(upcast(in[single]))};
            found.add(x);
        }
        const T* packed_in = in + ends.head;
        T* packed_out = out + ends.head;
        int64_t i = start;
        for (; i + (UNROLL - 1) * step < n; i += UNROLL * step) {
            C x[UNROLL * VEC];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) load_values<T, VEC>(x + u * VEC, packed_in + i + u * step);
            found.add(x);
        }
        for (; i < n; i += step) {
            C x[VEC];
            load_values<T, VEC>(x, packed_in + i);
            found.add(x);
        }
        const C largest = reduce_row<true, Largest>(found.largest, 0);
        found.move_to(largest);
        const C sum = reduce_row<true, Sum>(found.sum, 0);
        const C last = a.is_log ? std::log(sum) : C(1) / sum;
        // Backwards: what was read last is the likeliest to be in a cache still.
        const int64_t packets = n > start ? (n - start + step - 1) / step : 0;
#pragma unroll UNROLL
        for (int64_t k = packets - 1; k >= 0; --k) {
            C x[VEC];
            load_values<T, VEC>(x, packed_in + start + k * step);
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                x[j] -= largest;
                x[j] = a.is_log ? x[j] - last : std::exp(x[j]) * last;
            }
            stream_values<T, VEC>(packed_out + start + k * step, x);
        }
        if (single >= 0) {
            const C x = C(upcast(in[single])) - largest;
            out[single] = downcast<T>(a.is_log ? x - last : std::exp(x) * last);
        }
        if (a.pick.wanted && threadIdx.x == 0) picked.add(a.pick, row, largest, last);
    }
    if (a.pick.wanted && a.pick.is_reduced) finish_loss<T>(a.pick.sum, picked.sum, picked.counted);
}

/// The gradient of the result and the result.
struct GradRows {
    char* out;
    const char *grad, *y;
    int64_t rows, n;
    int lanes;
    bool is_log;
};

template <class C>
__device__ inline C share_of(bool is_log, C g, C y) {
    return is_log ? g : g * y;
}
template <class C>
__device__ inline C gradient_of(bool is_log, C g, C y, C sum) {
    return is_log ? g - std::exp(y) * sum : (g - sum) * y;
}

template <class T, int VEC, int K, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? MAX_THREADS : ROW_THREADS) softmax_grad_kernel(const GradRows a) {
    using C = computed<T>;
    constexpr int E = VEC * K;
    const RowPlace<BLOCK> at(a.lanes);
    for (int64_t first = int64_t(blockIdx.x) * at.groups; first < a.rows; first += int64_t(gridDim.x) * at.groups) {
        const int64_t row = first + at.group, start = row * a.n;
        const int width = BLOCK || row < a.rows ? int(a.n) : 0;
        C g[E], y[E], sum = 0;
        load_row<T, VEC, K>(g, reinterpret_cast<const T*>(a.grad) + start, width, at.lanes, at.lane, C(0));
        load_row<T, VEC, K>(y, reinterpret_cast<const T*>(a.y) + start, width, at.lanes, at.lane, C(0));
#pragma unroll
        for (int i = 0; i < E; ++i) sum += share_of(a.is_log, g[i], y[i]);
        sum = reduce_row<BLOCK, Sum>(sum, at.lanes);
#pragma unroll
        for (int i = 0; i < E; ++i) g[i] = gradient_of(a.is_log, g[i], y[i], sum);
        store_row<T, VEC, K>(reinterpret_cast<T*>(a.out) + start, g, width, at.lanes, at.lane);
    }
}

template <class T, int VEC>
__global__ void __launch_bounds__(MAX_THREADS) softmax_grad_loop_kernel(const GradRows a) {
    using C = computed<T>;
    const int64_t step = int64_t(blockDim.x) * VEC, start = int64_t(threadIdx.x) * VEC;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* grad = reinterpret_cast<const T*>(a.grad) + row * a.n;
        const T* y = reinterpret_cast<const T*>(a.y) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        C sum = 0;
#pragma unroll 4
        for (int64_t i = start; i < a.n; i += step) {
            C gs[VEC], ys[VEC];
            load_values<T, VEC>(gs, grad + i);
            load_values<T, VEC>(ys, y + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += share_of(a.is_log, gs[j], ys[j]);
        }
        sum = reduce_row<true, Sum>(sum, 0);
#pragma unroll 4
        for (int64_t i = start; i < a.n; i += step) {
            C gs[VEC], ys[VEC];
            load_values<T, VEC>(gs, grad + i);
            load_values<T, VEC>(ys, y + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) gs[j] = gradient_of(a.is_log, gs[j], ys[j], sum);
            stream_values<T, VEC>(out + i, gs);
        }
    }
}

}  // namespace norch::nn
