// batch_norm over many rows of channels that lie side by side, and its gradient: the moments of parts of the rows, then
// those of all of them, then the elements, each a launch. A thread has the same few channels all the way.
#include "nn/channelnorm.cuh"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

constexpr int64_t LEAST = int64_t(1) << 17;  // elements, below which launches cost more than they bring
constexpr int SLICES = 32, GROUP = 8;        // that the parts are put together by, and channels of a block of those

/// Values of a part, each for all channels.
template <bool GRAD>
constexpr int VALUES = GRAD ? 4 : 2;

struct Rows {
    Channels of;
    int across;   // packets of a block side by side
    int64_t each; // rows of a block
    int parts;
    void *moments, *factors;
};

/// Where a thread works.
template <int VEC>
struct Station {
    int x, y, tall;
    int64_t channel, begin, end;
    bool is_busy;

    __device__ explicit Station(const Rows& a) {
        y = threadIdx.x / a.across, x = threadIdx.x - y * a.across, tall = THREADS / a.across;
        channel = (int64_t(blockIdx.x) * a.across + x) * VEC;
        is_busy = y < tall && channel < a.of.channels;
        begin = int64_t(blockIdx.y) * a.each;
        end = min(begin + a.each, a.of.count);
    }
};

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
__global__ void __launch_bounds__(THREADS, 2) moments_kernel(const __grid_constant__ Rows a) {
    constexpr int UNROLL = 4;
    const Station<VEC> at(a);
    Moments<float> m[VEC];
    if (at.is_busy) {
        const T* in = reinterpret_cast<const T*>(a.of.in) + at.channel;
        const T* grad = reinterpret_cast<const T*>(a.of.grad) + at.channel;
        const int64_t step = int64_t(at.tall) * a.of.channels;
        int64_t row = at.begin + at.y;
        for (; row + (UNROLL - 1) * at.tall < at.end; row += UNROLL * at.tall) {
            float x[UNROLL][VEC], g[UNROLL][VEC] = {};
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                load_values<T, VEC>(x[u], in + row * a.of.channels + u * step);
                if constexpr (GRAD) load_values<T, VEC>(g[u], grad + row * a.of.channels + u * step);
            }
            add_rows<GRAD>(m, x, g);
        }
        for (; row < at.end; row += at.tall) {
            float x[1][VEC], g[1][VEC] = {};
            load_values<T, VEC>(x[0], in + row * a.of.channels);
            if constexpr (GRAD) load_values<T, VEC>(g[0], grad + row * a.of.channels);
            add_rows<GRAD>(m, x, g);
        }
    }
    // By halves, of which the upper one's moments are handed to the lower.
    __shared__ float handed[1 + VALUES<GRAD>][VEC][THREADS / 2];
    for (int left = at.tall; left > 1;) {
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
    float* out = static_cast<float*>(a.moments) + int64_t(blockIdx.y) * VALUES<GRAD> * a.of.channels + at.channel;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        out[j] = m[j].mean, out[a.of.channels + j] = m[j].square;
        if constexpr (GRAD) out[2 * a.of.channels + j] = m[j].grad, out[3 * a.of.channels + j] = m[j].product;
    }
}

/// Puts the parts of GROUP channels together and writes what their elements are made with.
template <class T, bool GRAD>
__global__ void __launch_bounds__(THREADS) factors_kernel(const __grid_constant__ Rows a) {
    const int slice = threadIdx.x / GROUP, own = threadIdx.x % GROUP;
    const int64_t channel = int64_t(blockIdx.x) * GROUP + own, channels = a.of.channels;
    Moments<double> m;
    if (channel < channels) {
        for (int part = slice; part < a.parts; part += SLICES) {
            const float* from = static_cast<const float*>(a.moments) + int64_t(part) * VALUES<GRAD> * channels + channel;
            Moments<double> other{double(min(a.each, a.of.count - part * a.each)), from[0], from[channels]};
            if constexpr (GRAD) other.grad = from[2 * channels], other.product = from[3 * channels];
            merge(m, other);
        }
    }
    __shared__ double all[5][SLICES][GROUP];
    for (int half = SLICES / 2; half; half /= 2) {  // the upper half of those left hand theirs to the lower
        if (slice >= half && slice < 2 * half) {
            all[0][slice][own] = m.count, all[1][slice][own] = m.mean, all[2][slice][own] = m.square;
            all[3][slice][own] = m.grad, all[4][slice][own] = m.product;
        }
        __syncthreads();
        if (slice < half) {
            const int from = slice + half;
            merge(m, {all[0][from][own], all[1][from][own], all[2][from][own], all[3][from][own], all[4][from][own]});
        }
        __syncthreads();
    }
    if (slice || channel >= channels) return;
    const Factors<T, GRAD> of(a.of, channel, m);
    float* to = static_cast<float*>(a.factors) + channel;
    to[0] = of.mean, to[channels] = of.scale, to[2 * channels] = of.shift, to[3 * channels] = of.slope;
    write_statistics<float, GRAD>(a.of, channel, m);
}

template <class T, int VEC, bool GRAD>
__global__ void __launch_bounds__(THREADS, 3) elements_kernel(const __grid_constant__ Rows a) {
    constexpr int UNROLL = GRAD && VEC == 8 ? 2 : 4;  // as registers allow
    const Station<VEC> at(a);
    if (!at.is_busy) return;
    float mean[VEC], scale[VEC], shift[VEC], slope[VEC];
    const float* from = static_cast<const float*>(a.factors) + at.channel;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        mean[j] = from[j], scale[j] = from[a.of.channels + j], shift[j] = from[2 * a.of.channels + j];
        slope[j] = GRAD ? from[3 * a.of.channels + j] : 0;
    }
    const T *in = reinterpret_cast<const T*>(a.of.in), *grad = reinterpret_cast<const T*>(a.of.grad);
    T* out = reinterpret_cast<T*>(a.of.out);
    for (int64_t row = at.begin + at.y; row < at.end; row += UNROLL * at.tall) {
        float x[UNROLL][VEC], g[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int64_t place = (row + u * at.tall) * a.of.channels + at.channel;
            if (row + u * at.tall >= at.end) break;
            load_values<T, VEC>(x[u], in + place);
            if constexpr (GRAD) load_values<T, VEC>(g[u], grad + place);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (row + u * at.tall >= at.end) break;
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                x[u][j] = GRAD ? (g[u][j] - shift[j] - (x[u][j] - mean[j]) * slope[j]) * scale[j]
                               : (x[u][j] - mean[j]) * scale[j] + shift[j];
            store_values<T, VEC>(out + (row + u * at.tall) * a.of.channels + at.channel, x[u]);
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
        const int64_t tall = THREADS / a.across, blocks = ceil_div(packets, a.across);
        auto split = [&](int64_t for_each_multiprocessor) {  // rows among blocks, at least a few for each thread
            const int64_t wanted = ceil_div(int64_t(multiprocessors()) * for_each_multiprocessor, blocks);
            const int64_t most = ceil_div(of.count, 4 * tall);
            a.each = ceil_div(of.count, std::max<int64_t>(1, std::min<int64_t>({wanted, most, 1024})));
            a.parts = int(ceil_div(of.count, a.each));
            return dim3{unsigned(blocks), unsigned(a.parts)};
        };
        const dim3 grid = split(2);
        const Scratch<float> moments(size_t(a.parts) * VALUES<GRAD> * of.channels), factors(4 * size_t(of.channels));
        a.moments = moments.data();
        a.factors = factors.data();
        launch_kernel("batch_norm", moments_kernel<T, VEC, GRAD>, grid, dim3{THREADS}, a);
        launch_kernel("batch_norm", factors_kernel<T, GRAD>, dim3{unsigned(ceil_div(of.channels, GROUP))}, dim3{THREADS}, a);
        const dim3 whole = split(8);
        launch_kernel("batch_norm", elements_kernel<T, VEC, GRAD>, whole, dim3{THREADS}, a);
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
