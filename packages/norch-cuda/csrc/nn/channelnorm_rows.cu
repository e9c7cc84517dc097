// batch_norm over many rows of channels that lie side by side, and its gradient: the moments of parts of the rows, then
// those of all of them, then the elements, each a launch. A thread has the same few channels all the way.
#include "nn/channelnorm.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

constexpr int64_t LEAST = int64_t(1) << 17;  // elements, below which launches cost more than they bring
constexpr int UNROLL = 4;                    // rows that a thread has under way
constexpr int GROUP = 8, SLICES = THREADS / GROUP;  // channels of a block that puts parts together, and its threads for each

/// Blocks that a multiprocessor has at once.
template <bool GRAD>
constexpr int TOGETHER = GRAD ? 2 : 3;

/// Values of a part, each for all channels.
template <bool GRAD>
constexpr int VALUES = GRAD ? 4 : 2;

struct Rows {
    Channels of;
    int across;    // packets of a block side by side
    int tall;      // and rows below each other
    int64_t runs;  // of UNROLL * tall rows
    int parts;     // blocks that the runs of the first launch are dealt out to
    float *moments, *factors;
};

/// Where a thread works.
template <int VEC>
struct Station {
    int x, y;
    int64_t channel;
    bool is_busy;

    __device__ explicit Station(const Rows& a) {
        y = threadIdx.x / a.across, x = threadIdx.x - y * a.across;
        channel = (int64_t(blockIdx.x) * a.across + x) * VEC;
        is_busy = y < a.tall && channel < a.of.channels;
    }
};

/// The rows of a part: its runs but for what the last of all lacks.
__device__ inline int64_t rows_of_part(const Rows& a, int part) {
    const int64_t run = int64_t(UNROLL) * a.tall, own = (a.runs - part + a.parts - 1) / a.parts;
    const bool has_last = (a.runs - 1) % a.parts == part;
    return own * run - (has_last ? a.runs * run - a.of.count : 0);
}

/// Adds N rows to the moments of VEC channels, which have one count.
template <bool GRAD, int N, int VEC>
__device__ inline void add_rows(Moments<float> (&m)[VEC], const float (&x)[N][VEC], const float (&g)[N][VEC]) {
    const float count = m[0].count, total = count + N, share = N / total;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        float mean = 0, square = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) mean += x[i][j];
        mean *= 1.0f / N;
#pragma unroll
        for (int i = 0; i < N; ++i) square += (x[i][j] - mean) * (x[i][j] - mean);
        const float gap = mean - m[j].mean, step = gap * share;
        m[j].square += square + gap * step * count;
        m[j].mean += step;
        m[j].count = total;
        if constexpr (GRAD) {
            m[j].product -= m[j].grad * step;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                m[j].product += g[i][j] * (x[i][j] - m[j].mean);
                m[j].grad += g[i][j];
            }
        }
    }
}

template <class T, int VEC, bool GRAD>
__global__ void __launch_bounds__(THREADS, TOGETHER<GRAD>) moments_kernel(const __grid_constant__ Rows a) {
    const Station<VEC> at(a);
    Moments<float> m[VEC];
    if (at.is_busy) {
        const T* in = reinterpret_cast<const T*>(a.of.in) + at.channel;
        const T* grad = reinterpret_cast<const T*>(a.of.grad) + at.channel;
        const int64_t step = int64_t(a.tall) * a.of.channels;
        for (int64_t run = blockIdx.y; run < a.runs; run += a.parts) {
            const int64_t row = run * UNROLL * a.tall + at.y, place = row * a.of.channels;
            if (row + (UNROLL - 1) * a.tall < a.of.count) {
                float x[UNROLL][VEC], g[UNROLL][VEC] = {};
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    load_values<T, VEC>(x[u], in + place + u * step);
                    if constexpr (GRAD) load_values<T, VEC>(g[u], grad + place + u * step);
                }
                add_rows<GRAD>(m, x, g);
                continue;
            }
            for (int u = 0; u < UNROLL && row + u * a.tall < a.of.count; ++u) {
                float x[1][VEC], g[1][VEC] = {};
                load_values<T, VEC>(x[0], in + place + u * step);
                if constexpr (GRAD) load_values<T, VEC>(g[0], grad + place + u * step);
                add_rows<GRAD>(m, x, g);
            }
        }
    }
    // By halves, of which the upper one's moments are handed to the lower.
    __shared__ float handed[1 + VALUES<GRAD>][VEC][THREADS / 2];
    for (int left = a.tall; left > 1;) {
        const int half = (left + 1) / 2, place = (at.y - half) * a.across + at.x;
        if (at.is_busy && at.y >= half && at.y < left) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                handed[0][j][place] = m[j].count, handed[1][j][place] = m[j].mean, handed[2][j][place] = m[j].square;
                if constexpr (GRAD) handed[3][j][place] = m[j].grad, handed[4][j][place] = m[j].product;
            }
        }
        __syncthreads();
        if (at.is_busy && at.y < left - half) {
            const int from = at.y * a.across + at.x;
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                Moments<float> other{handed[0][j][from], handed[1][j][from], handed[2][j][from]};
                if constexpr (GRAD) other.grad = handed[3][j][from], other.product = handed[4][j][from];
                merge(m[j], other);
            }
        }
        __syncthreads();
        left = half;
    }
    if (!at.is_busy || at.y) return;
    float* out = a.moments + int64_t(blockIdx.y) * VALUES<GRAD> * a.of.channels + at.channel;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        out[j] = m[j].mean, out[a.of.channels + j] = m[j].square;
        if constexpr (GRAD) out[2 * a.of.channels + j] = m[j].grad, out[3 * a.of.channels + j] = m[j].product;
    }
}

/// What all threads of a channel have together, of N numbers.
template <int N>
__device__ inline void sum_slices(double (&v)[N]) {
    constexpr int WARPS = THREADS / WARP;
    __shared__ double sums[N][WARPS][GROUP];
    const int own = threadIdx.x % GROUP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        for (int o = GROUP; o < WARP; o *= 2) v[i] += __shfl_xor_sync(EVERY_LANE, v[i], o);
        if (threadIdx.x % WARP < GROUP) sums[i][warp][own] = v[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
        v[i] = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) v[i] += sums[i][w][own];
    }
}

/// Puts the parts of GROUP channels together and writes what their elements are made with.
template <class T, bool GRAD>
__global__ void __launch_bounds__(THREADS) factors_kernel(const __grid_constant__ Rows a) {
    const int slice = threadIdx.x / GROUP;
    const int64_t channels = a.of.channels, channel = int64_t(blockIdx.x) * GROUP + threadIdx.x % GROUP;
    const bool is_channel = channel < channels;
    const float* from = a.moments + (is_channel ? channel : 0);
    const int64_t step = VALUES<GRAD> * channels;
    double sum[1] = {};
#pragma unroll 4
    for (int part = slice; part < a.parts; part += SLICES)
        sum[0] += double(rows_of_part(a, part)) * double(from[part * step]);
    sum_slices(sum);
    Moments<double> m;
    m.count = double(a.of.count);
    m.mean = sum[0] / m.count;
    double rest[3] = {};
#pragma unroll 4
    for (int part = slice; part < a.parts; part += SLICES) {
        const float* values = from + part * step;
        const double gap = double(values[0]) - m.mean;
        rest[0] += double(values[channels]) + gap * gap * double(rows_of_part(a, part));
        if constexpr (GRAD) {
            rest[1] += double(values[2 * channels]);
            rest[2] += double(values[3 * channels]) + gap * double(values[2 * channels]);
        }
    }
    sum_slices(rest);
    if (slice || !is_channel) return;
    m.square = rest[0], m.grad = rest[1], m.product = rest[2];
    const Factors<T, GRAD> of(a.of, channel, m);
    float* to = a.factors + channel;
    to[0] = of.mean, to[channels] = of.scale, to[2 * channels] = of.shift, to[3 * channels] = of.slope;
    write_statistics<float, GRAD>(a.of, channel, m);
}

/// The last rows come first: they are still in the cache.
template <class T, int VEC, bool GRAD>
__global__ void __launch_bounds__(THREADS, TOGETHER<GRAD>) elements_kernel(const __grid_constant__ Rows a) {
    const Station<VEC> at(a);
    if (!at.is_busy) return;
    float mean[VEC], scale[VEC], shift[VEC], slope[VEC];
    const float* from = a.factors + at.channel;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        mean[j] = from[j], scale[j] = from[a.of.channels + j], shift[j] = from[2 * a.of.channels + j];
        slope[j] = GRAD ? from[3 * a.of.channels + j] : 0;
    }
    const T *in = reinterpret_cast<const T*>(a.of.in), *grad = reinterpret_cast<const T*>(a.of.grad);
    T* out = reinterpret_cast<T*>(a.of.out);
    for (int64_t back = blockIdx.y; back < a.runs; back += gridDim.y) {
        const int64_t first = (a.runs - 1 - back) * UNROLL * a.tall + at.y;
        float x[UNROLL][VEC], g[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int64_t row = first + u * a.tall, place = row * a.of.channels + at.channel;
            if (row >= a.of.count) break;
            load_values<T, VEC>(x[u], in + place);
            if constexpr (GRAD) load_values<T, VEC>(g[u], grad + place);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int64_t row = first + u * a.tall;
            if (row >= a.of.count) break;
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                x[u][j] = GRAD ? (g[u][j] - shift[j] - (x[u][j] - mean[j]) * slope[j]) * scale[j]
                               : (x[u][j] - mean[j]) * scale[j] + shift[j];
            store_values<T, VEC>(out + row * a.of.channels + at.channel, x[u]);
        }
    }
}

}  // namespace

template <class T, bool GRAD>
bool launch_channel_rows(const Channels& of) {
    if constexpr (sizeof(computed<T>) == sizeof(float)) {
        constexpr int VEC = PER_16_BYTES<T>;
        for (const void* data : {static_cast<const void*>(of.out), static_cast<const void*>(of.in),
                                 static_cast<const void*>(of.grad)})
            if (!is_aligned(data, 16)) return false;
        if (of.channels % VEC || of.channels * of.count < LEAST) return false;
        Rows a = {};
        a.of = of;
        const int64_t packets = of.channels / VEC;
        a.across = int(std::min<int64_t>(packets, WARP));
        a.tall = THREADS / a.across;
        a.runs = ceil_div(of.count, int64_t(UNROLL) * a.tall);
        const int64_t blocks = ceil_div(packets, a.across);
        a.parts = int(std::min<int64_t>({ceil_div(multiprocessors() * TOGETHER<GRAD>, blocks), a.runs, 1024}));
        const Scratch<float> moments(size_t(a.parts) * VALUES<GRAD> * of.channels), factors(4 * size_t(of.channels));
        a.moments = moments.data();
        a.factors = factors.data();
        const dim3 grid{unsigned(blocks), unsigned(a.parts)};
        launch_kernel("batch_norm", moments_kernel<T, VEC, GRAD>, grid, dim3{THREADS}, a);
        launch_kernel("batch_norm", factors_kernel<T, GRAD>, dim3{unsigned(ceil_div(of.channels, GROUP))}, dim3{THREADS}, a);
        launch_kernel("batch_norm", elements_kernel<T, VEC, GRAD>, grid, dim3{THREADS}, a);
        return true;
    }
    return false;
}

template bool launch_channel_rows<double, false>(const Channels&);
template bool launch_channel_rows<double, true>(const Channels&);
template bool launch_channel_rows<float, false>(const Channels&);
template bool launch_channel_rows<float, true>(const Channels&);
template bool launch_channel_rows<__half, false>(const Channels&);
template bool launch_channel_rows<__half, true>(const Channels&);
template bool launch_channel_rows<__nv_bfloat16, false>(const Channels&);
template bool launch_channel_rows<__nv_bfloat16, true>(const Channels&);

}  // namespace norch::nn
