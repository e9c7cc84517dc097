// A Fourier transform in shared memory, of some rows a block. A pass reads what a thread has of butterflies into registers and
// writes them back in the order that the next one reads (N. Govindaraju et al., "High performance discrete Fourier transforms
// on graphics processors", 2008). Rows of real numbers go through it by twos, as real and imaginary parts.
#pragma once

#include "common/layout.h"
#include "spectral/butterflies.cuh"

namespace norch::spectral {

constexpr int MAX_PASSES = 12, MAX_ROWS = 64;
template <class T>
constexpr int BLOCKS = sizeof(T) == 4 ? 4 : 2;  // at a time, of a multiprocessor

/// Memory of a row's numbers, whose parts lie `part` bytes apart, and which themselves lie `along`. Of the numbers of a
/// whole transform a row has every `step`-th, from the row's own remainder on.
struct Side {
    int64_t part;
    int along;
    int numbers;      // of the whole that there are; others are 0, or not wanted
    int step, count;  // of the row's
    FastDivide by;    // what goes side by side: numbers of a row or, across, rows
    bool is_real;
    bool is_doubled;  // numbers but those of 0 and n / 2 count twice
    bool is_across;   // whether rows lie closer together than the numbers of one
};

struct Pass {
    int radix, span;
    FastDivide apart, by_span;
};

struct Transform {
    Layout<2> rows;  // of the result and of the input
    Side out, in;
    int n, whole;  // points of a row, and of the transform that it may be a part of
    int pitch;     // of rows in shared memory
    int together, passes;
    Pass pass[MAX_PASSES];
    FastDivide remainders;
    bool is_forward, is_packed;
    bool turns;  // results by exp(-2 pi i k r / whole), where r is the row's remainder

    /// Whether numbers are read and written as they are, but for the scale.
    bool is_plain() const { return in.step == 1 && out.step == 1 && !in.is_doubled && !out.is_doubled && !window_step; }
    double scale;
    int64_t window_step;  // of weights of the real numbers; no window: 0 and a null pointer
    bool windows_input;
};

/// Where number i of a row, or of the roots, in shared memory lies: strides of powers of two would be of one bank.
__host__ __device__ constexpr int padded(int i) { return i + (i >> 4); }

__device__ inline void sine_and_cosine(float half_turns, float* sine, float* cosine) { sincospif(half_turns, sine, cosine); }
__device__ inline void sine_and_cosine(double half_turns, double* sine, double* cosine) { sincospi(half_turns, sine, cosine); }

/// exp(-2 pi i k / n), by an angle of at most an eighth of a turn.
template <class T>
__device__ inline Number<T> root_of_one(int k, int n) {
    const int quarters = int(rintf(4.0f * float(k) / float(n)));
    T sine, cosine;
    sine_and_cosine(T(4 * k - quarters * n) / T(2 * n), &sine, &cosine);
    const Number<T> root = {cosine, -sine};
    switch (quarters & 3) {
        case 0: return root;
        case 1: return {root.im, -root.re};
        case 2: return {-root.re, -root.im};
        default: return {-root.im, root.re};
    }
}

/// What the block's threads do with one pass: butterflies of `R` numbers, as many a thread as 16 numbers are of.
/// REGULAR: they are multiples of 16 apart, before and after, or side by side after.
template <class T, int R, bool REGULAR>
__device__ inline void butterflies(const Transform& p, const Pass& pass, const Number<T>* roots, Number<T>* data, int rows) {
    constexpr int MOST = (16 + R - 1) / R;
    const auto along = [](int from, int i, int step) {
        return REGULAR ? padded(from) + i * padded(step) : padded(from + i * step);
    };
    const int apart = p.n / R, turn = apart / pass.span, total = rows * apart;
    Number<T> x[MOST][R] = {};  // set, or they would seem to be needed from the pass before on, and have registers all along
    int to[MOST] = {}, begin[MOST] = {};
#pragma unroll
    for (int u = 0; u < MOST; ++u) {
        const int e = u * blockDim.x + threadIdx.x;
        if (e < total) {
            const int row = int(pass.apart.quotient(e)), t = e - row * apart;
            const int k = t - int(pass.by_span.quotient(t)) * pass.span;
#pragma unroll
            for (int i = 0; i < R; ++i) x[u][i] = data[row * p.pitch + along(t, i, apart)];
            to[u] = (t - k) * R + k, begin[u] = row * p.pitch;
            if (k) turn_all<R>(x[u], [&](int i) { return roots[padded(i * k * turn)]; });
            butterfly(x[u]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < MOST; ++u)
        if (u * int(blockDim.x) + int(threadIdx.x) < total) {
#pragma unroll
            for (int i = 0; i < R; ++i) data[begin[u] + along(to[u], i, pass.span)] = x[u][i];
        }
}

template <class T, int R>
__device__ inline void pass_over(const Transform& p, const Pass& pass, const Number<T>* roots, Number<T>* data, int rows) {
    if constexpr ((R & (R - 1)) == 0) {
        const bool is_regular = p.n / R % 16 == 0 && (pass.span % 16 == 0 || (R == 16 && pass.span == 1));
        if (is_regular) return butterflies<T, R, true>(p, pass, roots, data, rows);
    }
    butterflies<T, R, false>(p, pass, roots, data, rows);
}

/// The same for a large radix: a sum at a time, which wait in local memory.
template <class T>
__device__ inline void pass_of_prime(const Transform& p, const Pass& pass, const Number<T>* roots, Number<T>* data, int rows) {
    const int radix = pass.radix, apart = p.n / radix, turn = apart / pass.span, total = rows * p.n;
    Number<T> sums[16];
#pragma unroll 1
    for (int u = 0, e = threadIdx.x; e < total; ++u, e += blockDim.x) {
        const int row = e / p.n, o = e - row * p.n, k = o % pass.span, q = o / pass.span % radix;
        const int from = o / (pass.span * radix) * pass.span + k, step = (k * turn + q * apart) % p.n;
        const Number<T>* const own = data + row * p.pitch;
        Number<T> sum = own[padded(from)];
        for (int i = 1, at = step; i < radix; ++i) {
            sum = sum + own[padded(from + i * apart)] * roots[padded(at)];
            at += step;
            if (at >= p.n) at -= p.n;
        }
        sums[u] = sum;
    }
    __syncthreads();
#pragma unroll 1
    for (int u = 0, e = threadIdx.x; e < total; ++u, e += blockDim.x)
        data[e / p.n * p.pitch + padded(e % p.n)] = sums[u];
}

/// A row of the block's: where its result and its input begin, and its remainder.
struct Row {
    int64_t out, in;
    int remainder;
};

/// Calls body(row, j, first(row, j)) for the numbers of a block's rows on this side, neighbours for neighbours in memory, and
/// first BATCH times before as many of body, so that what it waits for comes at once.
template <int BATCH, class First, class F>
__device__ inline void each_number(const Side& side, int rows, const First& first, const F& body) {
    const int total = side.count * (side.is_across ? int(side.by.divisor) : rows);
    const auto at = [&](int e, const auto& call) {
        const int quotient = int(side.by.quotient(e)), rest = e - quotient * int(side.by.divisor);
        const int row = side.is_across ? rest : quotient, j = side.is_across ? quotient : rest;
        if (e < total && row < rows) call(row, j);
    };
    for (int e = threadIdx.x; e < total; e += BATCH * THREADS) {
        decltype(first(0, 0)) found[BATCH] = {};
#pragma unroll
        for (int u = 0; u < BATCH; ++u) at(e + u * THREADS, [&](int row, int j) { found[u] = first(row, j); });
#pragma unroll
        for (int u = 0; u < BATCH; ++u) at(e + u * THREADS, [&](int row, int j) { body(row, j, found[u]); });
    }
}

template <class T>
__device__ inline T weight(const Transform& p, const char* window, int at) {
    return *reinterpret_cast<const T*>(window + at * p.window_step);
}

__device__ inline bool counts_twice(const Transform& p, const Side& side, int at) {
    return side.is_doubled && at > 0 && 2 * at != p.whole;
}

/// Number j of a row of the input; what is not forward is, of conjugates.
template <class T, bool PLAIN>
__device__ inline Number<T> read(const Transform& p, const Row& row, const char* in, const char* window, int j) {
    Number<T> value = {T(0), T(0)};
    const int at = PLAIN ? j : j * p.in.step + (p.in.step > 1 ? row.remainder : 0);
    if (at < p.in.numbers) {
        in += row.in + int64_t(j) * p.in.along;
        value.re = __ldg(reinterpret_cast<const T*>(in));
        if (!p.in.is_real) value.im = __ldg(reinterpret_cast<const T*>(in + p.in.part));
        if (!p.is_forward) value.im = -value.im;
        if (!PLAIN && p.windows_input) value.re *= weight<T>(p, window, at);
        if (!PLAIN && counts_twice(p, p.in, at)) value = value + value;
    }
    return value;
}

/// Number k of a row of the result.
template <class T, bool PLAIN>
__device__ inline void write(const Transform& p, const Row& row, char* out, const char* window, int k, Number<T> value) {
    const int at = PLAIN ? k : k * p.out.step + (p.out.step > 1 ? row.remainder : 0);
    if (at >= p.out.numbers) return;
    T factor = T(p.scale);
    if constexpr (!PLAIN) {
        if (p.turns) value = value * root_of_one<T>(k * row.remainder, p.whole);
        if (counts_twice(p, p.out, at)) factor *= T(2);
        if (window && !p.windows_input) factor *= weight<T>(p, window, at);
    }
    out += row.out + int64_t(k) * p.out.along;
    *reinterpret_cast<T*>(out) = value.re * factor;
    if (!p.out.is_real) *reinterpret_cast<T*>(out + p.out.part) = (p.is_forward ? value.im : -value.im) * factor;
}

/// The input of a block's rows, two of them as the parts of complex numbers if they are packed.
template <class T, bool PLAIN>
__device__ inline void read_rows(const Transform& p, const Row* rows, int count, int lanes, const char* in, const char* window,
                                 Number<T>* data) {
    const int n = p.n;
    const auto read_of = [&](int row, int j) {
        return row < count ? read<T, PLAIN>(p, rows[row], in, window, j) : Number<T>{T(0), T(0)};
    };
    if (!p.is_packed || p.in.is_real) {
        each_number<sizeof(T) == 4 ? 8 : 4>(
            p.in, lanes,
            [&](int lane, int j) {
                Number<T> x = read_of(p.is_packed ? 2 * lane : lane, j);
                if (p.is_packed) x.im = read_of(2 * lane + 1, j).re;
                return x;
            },
            [&](int lane, int j, Number<T> x) { data[lane * p.pitch + padded(j)] = x; });
        return;
    }
    // Halves of numbers, whose conjugates are at the other end.
    struct Two {
        Number<T> a, b;
    };
    each_number<4>(
        p.in, lanes, [&](int lane, int j) { return Two{read_of(2 * lane, j), read_of(2 * lane + 1, j)}; },
        [&](int lane, int j, Two two) {
            const int other = j ? n - j : 0;
            const Number<T> a = two.a, b = two.b, c = read_of(2 * lane, other), d = read_of(2 * lane + 1, other);
            const Number<T> x = {T(0.5) * (a.re + c.re), T(0.5) * (a.im - c.im)};
            const Number<T> y = {T(0.5) * (b.re + d.re), T(0.5) * (b.im - d.im)};
            data[lane * p.pitch + padded(j)] = {x.re - y.im, x.im + y.re};
            data[lane * p.pitch + padded(other)] = {x.re + y.im, y.re - x.im};
        });
}

template <class T, bool PLAIN>
__device__ inline void write_rows(const Transform& p, const Row* rows, int count, int lanes, char* out, const char* window,
                                  const Number<T>* data) {
    const int n = p.n;
    each_number<1>(p.out, lanes, [](int, int) { return 0; }, [&](int lane, int k, int) {
        const Number<T> value = data[lane * p.pitch + padded(k)];
        if (!p.is_packed) return write<T, PLAIN>(p, rows[lane], out, window, k, value);
        Number<T> first = value, second = {value.im, T(0)};
        if (p.in.is_real) {
            const Number<T> other = data[lane * p.pitch + padded(k ? n - k : 0)];
            first = {T(0.5) * (value.re + other.re), T(0.5) * (value.im - other.im)};
            second = {T(0.5) * (value.im + other.im), T(0.5) * (other.re - value.re)};
        }
        write<T, PLAIN>(p, rows[2 * lane], out, window, k, first);
        if (2 * lane + 1 < count) write<T, PLAIN>(p, rows[2 * lane + 1], out, window, k, second);
    });
}

template <class T, bool PLAIN>
__global__ void __launch_bounds__(THREADS, BLOCKS<T>)
    dft_kernel(const __grid_constant__ Transform p, char* out, const char* in, const char* window) {
    extern __shared__ double shared[];
    __shared__ Row rows[2 * MAX_ROWS];
    Number<T>* const roots = reinterpret_cast<Number<T>*>(shared);
    Number<T>* const data = roots + padded(p.n);
    // Each is a product of two, of every sixteenth and of the first.
    Number<T>* const parts = data;
    for (int i = threadIdx.x; i < 16 + p.n / 16 + 1; i += blockDim.x)
        parts[i] = root_of_one<T>(i < 16 ? i : 16 * (i - 16) % p.n, p.n);
    __syncthreads();
    for (int k = threadIdx.x; k < p.n; k += blockDim.x) roots[padded(k)] = parts[16 + k / 16] * parts[k % 16];
    const uint32_t at_once = uint32_t(p.is_packed ? 2 * p.together : p.together);
    for (uint32_t first = blockIdx.x * at_once; first < p.rows.numel; first += gridDim.x * at_once) {
        const int count = int(min(at_once, p.rows.numel - first)), lanes = p.is_packed ? (count + 1) / 2 : count;
        __syncthreads();
        if (int(threadIdx.x) < count) {
            const uint32_t row = first + threadIdx.x;
            int64_t starts[2];
            p.rows.offsets(row, starts);
            rows[threadIdx.x] = {starts[0], starts[1], int(row - p.remainders.quotient(row) * p.remainders.divisor)};
        }
        __syncthreads();
        read_rows<T, PLAIN>(p, rows, count, lanes, in, window, data);
        for (int i = 0; i < p.passes; ++i) {
            __syncthreads();
            const Pass& pass = p.pass[i];
            switch (pass.radix) {
                case 2: pass_over<T, 2>(p, pass, roots, data, lanes); break;
                case 3: pass_over<T, 3>(p, pass, roots, data, lanes); break;
                case 4: pass_over<T, 4>(p, pass, roots, data, lanes); break;
                case 5: pass_over<T, 5>(p, pass, roots, data, lanes); break;
                case 7: pass_over<T, 7>(p, pass, roots, data, lanes); break;
                case 8: pass_over<T, 8>(p, pass, roots, data, lanes); break;
                case 16: pass_over<T, 16>(p, pass, roots, data, lanes); break;
                default: pass_of_prime(p, pass, roots, data, lanes);
            }
        }
        __syncthreads();
        write_rows<T, PLAIN>(p, rows, count, lanes, out, window, data);
    }
}

}  // namespace norch::spectral
