// What kernels of cross_entropy share, classes being a row or planes of images.
#pragma once

#include "nn/target_counts.cuh"

namespace norch::nn {
/// exp(x) for what is rounded to 16 bits: within 2^-21, or 0 where that is below the smallest normal number.
__device__ inline float short_exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}
template <class T>
__device__ inline computed<T> exp_of(computed<T> x) {
    if constexpr (sizeof(T) == 2) return short_exp(x);
    else return std::exp(x);
}

/// The largest number seen and the sum of exponentials of what exceeds it by (Milakov and Gimelshein, 2018).
template <class T>
struct RowSum {
    using C = computed<T>;
    C largest = negative_infinity<C>(), sum = C(0);

    template <int N>
    __device__ void add(const C (&x)[N]) {
        C next = largest;
#pragma unroll
        for (int j = 0; j < N; ++j) next = Largest::apply(next, x[j]);
        move_to(next);
        const C base = largest == negative_infinity<C>() ? C(0) : largest;
#pragma unroll
        for (int j = 0; j < N; ++j) sum += exp_of<T>(x[j] - base);
    }
    __device__ void move_to(C next) {
        if (next != largest) sum *= exp_of<T>(largest - next);
        largest = next;
    }
};

/// cross_entropy_rows and its gradient of (n, classes, ...) with more dims; null for very many classes.
KernelPtr cross_entropy_planes(const Request& request);
KernelPtr cross_entropy_planes_grad(const Request& request);

}  // namespace norch::nn
