// Complex numbers, and Fourier transforms of a few of them in registers: butterflies of 2, 4, 8, 16 and small odd numbers.
#pragma once

#include "runtime/device.cuh"

namespace norch::spectral {

template <class T>
struct alignas(2 * sizeof(T)) Number {
    T re, im;
};
template <class T>
__device__ inline Number<T> operator+(Number<T> a, Number<T> b) {
    return {a.re + b.re, a.im + b.im};
}
template <class T>
__device__ inline Number<T> operator-(Number<T> a, Number<T> b) {
    return {a.re - b.re, a.im - b.im};
}
template <class T>
__device__ inline Number<T> operator*(Number<T> a, Number<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T>
__device__ inline Number<T> times_minus_i(Number<T> a) {
    return {a.im, -a.re};
}

/// Multiplies x[i] by root(i), which is root(1) to the power of i.
template <int R, class T, class F>
__device__ inline void turn_all(Number<T> (&x)[R], const F& root) {
    if constexpr (R == 16) {  // of six that are read, and products of two of them
        const Number<T> low[4] = {{T(1), T(0)}, root(1), root(2), root(3)};
#pragma unroll
        for (int a = 0; a < 4; ++a) {
            const Number<T> high = a ? root(4 * a) : low[0];
#pragma unroll
            for (int b = 0; b < 4; ++b) {
                if (!a && !b) continue;
                x[4 * a + b] = x[4 * a + b] * (!a ? low[b] : !b ? high : high * low[b]);
            }
        }
    } else {
#pragma unroll
        for (int i = 1; i < R; ++i) x[i] = x[i] * root(i);
    }
}

template <class T>
__device__ inline void butterfly(Number<T> (&x)[2]) {
    const Number<T> a = x[0], b = x[1];
    x[0] = a + b, x[1] = a - b;
}

template <class T>
__device__ inline void four(Number<T>& a, Number<T>& b, Number<T>& c, Number<T>& d) {
    const Number<T> ac = a + c, bd = b + d, minus = a - c, turned = times_minus_i(b - d);
    a = ac + bd, b = minus + turned, c = ac - bd, d = minus - turned;
}
template <class T>
__device__ inline void butterfly(Number<T> (&x)[4]) {
    four(x[0], x[1], x[2], x[3]);
}

template <class T>
__device__ inline void butterfly(Number<T> (&x)[8]) {
    const T half = T(0.70710678118654752440);  // the root of one half
    four(x[0], x[2], x[4], x[6]);
    four(x[1], x[3], x[5], x[7]);
    const Number<T> odd[4] = {x[1],
                              {half * (x[3].re + x[3].im), half * (x[3].im - x[3].re)},
                              times_minus_i(x[5]),
                              {half * (x[7].im - x[7].re), -half * (x[7].re + x[7].im)}};
    const Number<T> even[4] = {x[0], x[2], x[4], x[6]};
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = even[k] + odd[k], x[k + 4] = even[k] - odd[k];
}

template <class T>
__device__ inline void butterfly(Number<T> (&x)[16]) {
    const T c = T(0.92387953251128675613), s = T(0.38268343236508977173), half = T(0.70710678118654752440);
#pragma unroll
    for (int b = 0; b < 4; ++b) four(x[b], x[4 + b], x[8 + b], x[12 + b]);
    // x[4 * k + b] by exp(-2 pi i k b / 16)
    const Number<T> w1 = {c, -s}, w2 = {half, -half}, w3 = {s, -c};
    x[5] = x[5] * w1, x[6] = x[6] * w2, x[7] = x[7] * w3;
    x[9] = x[9] * w2, x[10] = times_minus_i(x[10]), x[11] = x[11] * Number<T>{-half, -half};
    x[13] = x[13] * w3, x[14] = x[14] * Number<T>{-half, -half}, x[15] = x[15] * Number<T>{-c, s};
    Number<T> y[16];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        four(x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3]);
#pragma unroll
        for (int b = 0; b < 4; ++b) y[k + 4 * b] = x[4 * k + b];
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = y[i];
}

/// The cosine and the sine of `at` 2 pi / R, for 2 * at < R.
template <int R>
__device__ constexpr double cosine(int at) {
    constexpr double of3[] = {1, -0.5}, of5[] = {1, 0.30901699437494742410, -0.80901699437494742410},
                     of7[] = {1, 0.62348980185873353053, -0.22252093395631440429, -0.90096886790241912624};
    return R == 3 ? of3[at] : R == 5 ? of5[at] : of7[at];
}
template <int R>
__device__ constexpr double sine(int at) {
    constexpr double of3[] = {0, 0.86602540378443864676}, of5[] = {0, 0.95105651629515357212, 0.58778525229247312917},
                     of7[] = {0, 0.78183148246802980871, 0.97492791218182360702, 0.43388373911755812048};
    return R == 3 ? of3[at] : R == 5 ? of5[at] : of7[at];
}

/// Of an odd number: results k and R - k are sums and differences of the same two.
template <class T, int R>
__device__ inline void butterfly(Number<T> (&x)[R]) {
    constexpr int HALF = R / 2;
    Number<T> sum[HALF], difference[HALF], first = x[0];
#pragma unroll
    for (int j = 0; j < HALF; ++j) {
        sum[j] = x[j + 1] + x[R - 1 - j], difference[j] = x[j + 1] - x[R - 1 - j];
        first = first + sum[j];
    }
#pragma unroll
    for (int k = 1; k <= HALF; ++k) {
        Number<T> even = x[0], odd = {T(0), T(0)};
#pragma unroll
        for (int j = 1; j <= HALF; ++j) {
            const int angle = j * k % R, at = angle <= HALF ? angle : R - angle;
            const T c = T(cosine<R>(at)), s = T(angle <= HALF ? sine<R>(at) : -sine<R>(at));
            even.re += c * sum[j - 1].re, even.im += c * sum[j - 1].im;
            odd.re += s * difference[j - 1].re, odd.im += s * difference[j - 1].im;
        }
        const Number<T> turned = times_minus_i(odd);
        x[k] = even + turned, x[R - k] = even - turned;
    }
    x[0] = first;
}

}  // namespace norch::spectral
