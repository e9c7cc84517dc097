// batch_norm over many rows of channels that lie side by side, and its gradient: the moments of parts of the rows, then
// those of all of them, then the elements, each a launch. A thread has the same few channels all the way.
#include "nn/channelnorm.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

constexpr int64_t LEAST = int64_t(1) << 17;  // elements, below which launches cost more than they bring
constexpr int UNROLL = 4;                    // rows that a thread has under way
// Channels of a block that puts parts together, its threads for each, and the parts that a thread takes at most.
constexpr int GROUP = 8, SLICES = 64, EACH = 8, PARTS_LIMIT = SLICES * EACH;

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
    int longer, last;       // so many parts have one run more; the part that has the last run
    float rows, run, lack;  // of a part, of a run; what the last run lacks: whole numbers
    float *moments, *factors;
    uint8_t* passes;  // a byte for each packet: which gradients relu lets through
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

/// The rows of a part: those of its runs but for what the last of all lacks.
__device__ inline float rows_of_part(const Rows& a, int part) {
    return a.rows + (part < a.longer ? a.run : 0.0f) - (part == a.last ? a.lack : 0.0f);
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

/// The gradients before relu, and which of them it let through.
template <int VEC>
__device__ inline uint8_t rectify(float (&g)[VEC], const float (&seen)[VEC]) {
    uint8_t passes = 0;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        if (seen[j] <= 0) g[j] = 0;
        else passes |= uint8_t(1 << j);
    }
    return passes;
}

template <class T, int VEC, bool GRAD, bool RELU>
__global__ void __launch_bounds__(THREADS, TOGETHER<GRAD>) moments_kernel(const __grid_constant__ Rows a) {
    const Station<VEC> at(a);
    Moments<float> m[VEC];
    if (at.is_busy) {
        const T* in = reinterpret_cast<const T*>(a.of.in) + at.channel;
        const T* grad = reinterpret_cast<const T*>(a.of.grad) + at.channel;
        const T* seen = reinterpret_cast<const T*>(a.of.seen) + at.channel;
        uint8_t* passes = a.passes + at.channel / VEC;
        const int64_t step = int64_t(a.tall) * a.of.channels;
        for (int64_t run = blockIdx.y; run < a.runs; run += a.parts) {
            const int64_t row = run * UNROLL * a.tall + at.y, place = row * a.of.channels;
            if (row + (UNROLL - 1) * a.tall < a.of.count) {
                float x[UNROLL][VEC], g[UNROLL][VEC] = {}, y[UNROLL][VEC];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    load_values<T, VEC>(x[u], in + place + u * step);
                    if constexpr (GRAD) load_values<T, VEC>(g[u], grad + place + u * step);
                    if constexpr (RELU) load_values<T, VEC>(y[u], seen + place + u * step);
                }
                if constexpr (RELU) {
#pragma unroll
                    for (int u = 0; u < UNROLL; ++u) passes[(place + u * step) / VEC] = rectify(g[u], y[u]);
                }
                add_rows<GRAD>(m, x, g);
                continue;
            }
            for (int u = 0; u < UNROLL && row + u * a.tall < a.of.count; ++u) {
                float x[1][VEC], g[1][VEC] = {};
                load_values<T, VEC>(x[0], in + place + u * step);
                if constexpr (GRAD) load_values<T, VEC>(g[0], grad + place + u * step);
                if constexpr (RELU) {
                    float y[VEC];
                    load_values<T, VEC>(y, seen + place + u * step);
                    passes[(place + u * step) / VEC] = rectify(g[0], y);
                }
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
    constexpr int WARPS = GROUP * SLICES / WARP;
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
__global__ void __launch_bounds__(GROUP * SLICES) factors_kernel(const __grid_constant__ Rows a) {
    const int slice = threadIdx.x / GROUP;
    const int64_t channels = a.of.channels, channel = int64_t(blockIdx.x) * GROUP + threadIdx.x % GROUP;
    const bool is_channel = channel < channels;
    const float* from = a.moments + (is_channel ? channel : 0);
    float values[EACH][VALUES<GRAD>] = {};
#pragma unroll
    for (int k = 0; k < EACH; ++k) {  // all at once: they come from far
        const int64_t part = slice + k * SLICES;
        if (part >= a.parts) break;
#pragma unroll
        for (int v = 0; v < VALUES<GRAD>; ++v) values[k][v] = from[(part * VALUES<GRAD> + v) * channels];
    }
    double sum[1] = {};
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        if (slice + k * SLICES >= a.parts) break;
        sum[0] += double(rows_of_part(a, slice + k * SLICES)) * double(values[k][0]);
    }
    sum_slices(sum);
    Moments<double> m;
    m.count = double(a.of.count);
    m.mean = sum[0] / m.count;
    double rest[3] = {};
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        if (slice + k * SLICES >= a.parts) break;
        const double gap = double(values[k][0]) - m.mean;
        rest[0] += double(values[k][1]) + gap * gap * double(rows_of_part(a, slice + k * SLICES));
        if constexpr (GRAD) {
            rest[1] += double(values[k][2]);
            rest[2] += double(values[k][3]) + gap * double(values[k][2]);
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
template <class T, int VEC, bool GRAD, bool RELU>
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
        uint8_t passes[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int64_t row = first + u * a.tall, place = row * a.of.channels + at.channel;
            if (row >= a.of.count) break;
            load_values<T, VEC>(x[u], in + place);
            if constexpr (GRAD) load_values<T, VEC>(g[u], grad + place);
            if constexpr (GRAD && RELU) passes[u] = a.passes[place / VEC];
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int64_t row = first + u * a.tall;
            if (row >= a.of.count) break;
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                if constexpr (GRAD && RELU)
                    if (!(passes[u] >> j & 1)) g[u][j] = 0;
                x[u][j] = GRAD ? (g[u][j] - shift[j] - (x[u][j] - mean[j]) * slope[j]) * scale[j]
                               : (x[u][j] - mean[j]) * scale[j] + shift[j];
                if constexpr (RELU && !GRAD) x[u][j] = x[u][j] <= 0 ? 0.0f : x[u][j];
            }
            store_values<T, VEC>(out + row * a.of.channels + at.channel, x[u]);
        }
    }
}

template <class T, int VEC, bool GRAD, bool RELU>
void launch_rows(Rows& a, int64_t packets) {
    const int64_t blocks = ceil_div(packets, a.across);
    a.parts = int(std::min<int64_t>({ceil_div(multiprocessors() * TOGETHER<GRAD>, blocks), a.runs, PARTS_LIMIT}));
    const int64_t run = int64_t(UNROLL) * a.tall;
    a.longer = int(a.runs % a.parts), a.last = int((a.runs - 1) % a.parts);
    a.rows = float(a.runs / a.parts * run), a.run = float(run), a.lack = float(a.runs * run - a.of.count);
    const Scratch<float> moments(size_t(a.parts) * VALUES<GRAD> * a.of.channels), factors(4 * size_t(a.of.channels));
    const Scratch<uint8_t> passes(GRAD && RELU ? size_t(packets * a.of.count) : 1);
    a.moments = moments.data(), a.factors = factors.data(), a.passes = passes.data();
    const dim3 grid{unsigned(blocks), unsigned(a.parts)}, groups{unsigned(ceil_div(a.of.channels, GROUP))};
    launch_kernel("batch_norm", moments_kernel<T, VEC, GRAD, GRAD && RELU>, grid, dim3{THREADS}, a);
    launch_kernel("batch_norm", factors_kernel<T, GRAD>, groups, dim3{GROUP * SLICES}, a);
    launch_kernel("batch_norm", elements_kernel<T, VEC, GRAD, RELU>, grid, dim3{THREADS}, a);
}

}  // namespace

template <class T, bool GRAD>
bool launch_channel_rows(const Channels& of) {
    if constexpr (sizeof(computed<T>) == sizeof(float)) {
        constexpr int VEC = PER_16_BYTES<T>;
        if (!are_channel_rows(sizeof(T), of.channels, of.count)) return false;
        for (const char* data : {static_cast<const char*>(of.out), of.in, of.grad, of.seen})
            if (!is_aligned(data, 16)) return false;
        Rows a = {};
        a.of = of;
        const int64_t packets = of.channels / VEC;
        a.across = int(std::min<int64_t>(packets, WARP));
        a.tall = THREADS / a.across;
        a.runs = ceil_div(of.count, int64_t(UNROLL) * a.tall);
        if (GRAD ? of.seen != nullptr : of.is_rectified) launch_rows<T, VEC, GRAD, true>(a, packets);
        else launch_rows<T, VEC, GRAD, false>(a, packets);
        return true;
    }
    return false;
}

bool are_channel_rows(size_t itemsize, int64_t channels, int64_t count) {
    return itemsize <= sizeof(float) && channels % int64_t(16 / itemsize) == 0 && channels * count >= LEAST;
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
