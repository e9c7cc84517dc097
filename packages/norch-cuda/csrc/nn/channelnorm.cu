// batch_norm over (batch, channels, inner), and its gradient: the statistics of each channel, then its elements.
//
// A few large channels are split among blocks: one launch for the parts' statistics, and one that puts those together
// and writes. Otherwise a block does both for a channel, whose elements it finds in the cache the second time.
#include "nn/channelnorm.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {

/// Adds N numbers, whose own mean and deviation are found first (T. Chan, G. Golub and R. LeVeque, "Updating formulae
/// and a pairwise algorithm for computing sample variances", 1979).
template <bool GRAD, int N, class C>
__device__ inline void add(Moments<C>& m, const C (&x)[N], const C (&g)[N]) {
    C mean = 0, square = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) mean += x[i];
    mean *= C(1) / N;
#pragma unroll
    for (int i = 0; i < N; ++i) square += (x[i] - mean) * (x[i] - mean);
    const C total = m.count + N, step = (mean - m.mean) * (C(N) / total), gap = mean - m.mean;
    m.square += square + gap * step * m.count;
    m.mean += step;
    m.count = total;
    if constexpr (GRAD) {
        m.product -= m.grad * step;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            m.product += g[i] * (x[i] - m.mean);
            m.grad += g[i];
        }
    }
}

/// What all threads of a block have found, for each of them.
template <bool GRAD, class C>
__device__ inline Moments<double> together(const Moments<C>& m) {
    double sums[2] = {double(m.count), double(m.count) * double(m.mean)};
    reduce_block<Sum>(sums);
    Moments<double> out;
    out.count = sums[0];
    out.mean = sums[1] / sums[0];
    const double gap = double(m.mean) - out.mean;
    double rest[3] = {m.count > 0 ? double(m.square) + gap * gap * double(m.count) : 0, double(m.grad),
                      m.count > 0 ? double(m.product) + gap * double(m.grad) : 0};
    reduce_block<Sum>(rest);
    out.square = rest[0];
    out.grad = rest[1];
    out.product = rest[2];
    return out;
}

/// The elements of a channel by packets.
template <class T, int VEC>
struct Elements {
    const Channels& a;
    int64_t channel;

    __device__ int64_t offset(uint32_t packet) const {
        const uint32_t row = a.inner.quotient(packet), at = packet - row * a.inner.divisor;
        return ((int64_t(row) * a.channels + channel) * a.inner.divisor + at) * VEC;
    }
};

template <class T, int VEC, bool GRAD>
__device__ Moments<double> moments_of(const Channels& a, int64_t channel, uint32_t begin, uint32_t end) {
    using C = computed<T>;
    constexpr int UNROLL = VEC == 1 ? 8 : VEC == 8 ? 2 : 4;
    const Elements<T, VEC> elements{a, channel};
    Moments<C> m;
    for (uint32_t p = begin + threadIdx.x; p < end; p += UNROLL * blockDim.x) {
        C x[UNROLL][VEC], g[UNROLL][VEC] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (p + u * blockDim.x >= end) break;
            const int64_t at = elements.offset(p + u * blockDim.x);
            load_values<T, VEC>(x[u], reinterpret_cast<const T*>(a.in) + at);
            if (GRAD) load_values<T, VEC>(g[u], reinterpret_cast<const T*>(a.grad) + at);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (p + u * blockDim.x < end) add<GRAD>(m, x[u], g[u]);
    }
    return together<GRAD>(m);
}

/// The moments of a channel from those of its parts.
template <bool GRAD>
__device__ Moments<double> moments_of_parts(const double* parts) {
    Moments<double> m;
    if (threadIdx.x < gridDim.y) {
        const double* part = parts + threadIdx.x * 5;
        m = {part[0], part[1], part[2], part[3], part[4]};
    }
    return together<GRAD>(m);
}

template <class T, int VEC, bool GRAD>
__device__ void write_channel(const Channels& a, int64_t channel, uint32_t begin, uint32_t end,
                              const Moments<double>& m) {
    using C = computed<T>;
    constexpr int UNROLL = VEC == 1 ? 8 : VEC == 8 ? 2 : 4;
    const Factors<T, GRAD> of(a, channel, m);
    if (blockIdx.y == 0 && threadIdx.x == 0) write_statistics<C, GRAD>(a, channel, m);
    const Elements<T, VEC> elements{a, channel};
    for (uint32_t p = begin + threadIdx.x; p < end; p += UNROLL * blockDim.x) {
        C x[UNROLL][VEC], g[UNROLL][VEC] = {};
        int64_t at[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (p + u * blockDim.x >= end) break;
            at[u] = elements.offset(p + u * blockDim.x);
            load_values<T, VEC>(x[u], reinterpret_cast<const T*>(a.in) + at[u]);
            if (GRAD) load_values<T, VEC>(g[u], reinterpret_cast<const T*>(a.grad) + at[u]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (p + u * blockDim.x >= end) break;
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[u][j] = of(x[u][j], g[u][j]);
            store_values<T, VEC>(reinterpret_cast<T*>(a.out) + at[u], x[u]);
        }
    }
}

template <class T, int VEC, bool GRAD>
__global__ void __launch_bounds__(THREADS) channel_kernel(const __grid_constant__ Channels a) {
    const int64_t channel = blockIdx.x;
    const uint32_t begin = blockIdx.y * a.each, end = min(begin + a.each, a.packets);
    double* parts = a.parts ? a.parts + channel * gridDim.y * 5 : nullptr;
    Moments<double> m = a.is_last ? moments_of_parts<GRAD>(parts) : moments_of<T, VEC, GRAD>(a, channel, begin, end);
    if (!a.parts || a.is_last) return write_channel<T, VEC, GRAD>(a, channel, begin, end, m);
    if (threadIdx.x == 0) {
        const double found[5] = {m.count, m.mean, m.square, m.grad, m.product};
        for (int i = 0; i < 5; ++i) parts[blockIdx.y * 5 + i] = found[i];
    }
}

// --- Channels side by side ------------------------------------------------------------------------------------------

constexpr int TALL = THREADS / WARP;  // threads that share a channel of (batch, channels); a block has 32 channels

template <bool GRAD, class C>
__device__ inline Moments<double> column_together(const Moments<C>& m) {
    __shared__ double shared[5][TALL][WARP];
    __syncthreads();
    const double found[5] = {double(m.count), double(m.mean), double(m.square), double(m.grad), double(m.product)};
#pragma unroll
    for (int i = 0; i < 5; ++i) shared[i][threadIdx.y][threadIdx.x] = found[i];
    __syncthreads();
    Moments<double> out;
    for (int k = 0; k < TALL; ++k) {
        const double count = shared[0][k][threadIdx.x];
        out.count += count;
        out.mean += count > 0 ? count * shared[1][k][threadIdx.x] : 0;
    }
    out.mean /= out.count;
    for (int k = 0; k < TALL; ++k) {
        const double count = shared[0][k][threadIdx.x], gap = shared[1][k][threadIdx.x] - out.mean;
        if (count == 0) continue;
        out.square += shared[2][k][threadIdx.x] + gap * gap * count;
        out.grad += shared[3][k][threadIdx.x];
        out.product += shared[4][k][threadIdx.x] + gap * shared[3][k][threadIdx.x];
    }
    return out;
}

/// What the launch before has found of a channel's parts.
template <bool GRAD>
__device__ Moments<double> column_parts(const double* parts) {
    Moments<double> m;
    for (int k = threadIdx.y; k < int(gridDim.y); k += TALL) {
        const double* part = parts + k * 5;
        merge(m, Moments<double>{part[0], part[1], part[2], part[3], part[4]});
    }
    return column_together<GRAD>(m);
}

/// The same for (batch, channels): `each` is the rows of a part.
template <class T, bool GRAD>
__global__ void __launch_bounds__(THREADS) column_kernel(const __grid_constant__ Channels a) {
    using C = computed<T>;
    constexpr int UNROLL = 8;
    const int64_t channel = int64_t(blockIdx.x) * WARP + threadIdx.x;
    const bool is_channel = channel < a.channels;
    const int64_t begin = int64_t(blockIdx.y) * a.each, end = is_channel ? min(begin + a.each, a.count) : begin;
    const T *in = reinterpret_cast<const T*>(a.in) + channel, *grad = reinterpret_cast<const T*>(a.grad) + channel;
    double* parts = a.parts ? a.parts + channel * gridDim.y * 5 : nullptr;
    Moments<double> m;
    if (a.is_last) {
        m = column_parts<GRAD>(is_channel ? parts : a.parts);
    } else {
        Moments<C> own;
        int64_t row = begin + threadIdx.y;
        for (; row + (UNROLL - 1) * TALL < end; row += UNROLL * TALL) {
            C x[UNROLL], g[UNROLL] = {};
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                x[u] = C(upcast(in[(row + u * TALL) * a.channels]));
                if (GRAD) g[u] = C(upcast(grad[(row + u * TALL) * a.channels]));
            }
            add<GRAD>(own, x, g);
        }
        for (; row < end; row += TALL) {
            const C x[1] = {C(upcast(in[row * a.channels]))};
            const C g[1] = {GRAD ? C(upcast(grad[row * a.channels])) : C(0)};
            add<GRAD>(own, x, g);
        }
        m = column_together<GRAD>(own);
    }
    if (!is_channel) return;
    if (a.parts && !a.is_last) {
        if (threadIdx.y) return;
        const double found[5] = {m.count, m.mean, m.square, m.grad, m.product};
        for (int i = 0; i < 5; ++i) parts[blockIdx.y * 5 + i] = found[i];
        return;
    }
    if (blockIdx.y == 0 && threadIdx.y == 0) write_statistics<C, GRAD>(a, channel, m);
    const Factors<T, GRAD> of(a, channel, m);
    T* out = reinterpret_cast<T*>(a.out) + channel;
#pragma unroll 8
    for (int64_t row = begin + threadIdx.y; row < end; row += TALL)
        out[row * a.channels] = downcast<T>(
            of(C(upcast(in[row * a.channels])), GRAD ? C(upcast(grad[row * a.channels])) : C(0)));
}

// --- Launches -------------------------------------------------------------------------------------------------------

/// By one launch, or where channels are in parts by two.
void launch_parts(Channels& a, void (*kernel)(Channels), int64_t blocks, int64_t parts, dim3 threads) {
    const Scratch<double> scratch(parts > 1 ? parts * a.channels * 5 : 1);
    const dim3 grid{unsigned(blocks), unsigned(parts)};
    if (parts > 1) {
        a.parts = scratch.data();
        launch_kernel("batch_norm", kernel, grid, threads, a);
        a.is_last = true;
    }
    launch_kernel("batch_norm", kernel, grid, threads, a);
}

template <class T, bool GRAD>
void launch_columns(Channels& a) {
    const int64_t blocks = ceil_div(a.channels, WARP), most = ceil_div(a.count, 16 * TALL);
    const int64_t parts = std::min<int64_t>({ceil_div(int64_t(multiprocessors()) * 8, blocks), most, 1024});
    a.each = uint32_t(ceil_div(a.count, parts));
    launch_parts(a, column_kernel<T, GRAD>, blocks, ceil_div(a.count, a.each), dim3{WARP, TALL});
}

constexpr int MAX_PARTS = 128;              // of a channel; fewer than threads of a block
constexpr int64_t MIN_PART = 8 * THREADS;  // packets

template <class T, int VEC, bool GRAD>
void launch(Channels& a, int64_t inner) {
    a.packets = uint32_t(a.count / VEC);
    a.inner = FastDivide(uint32_t(inner / VEC));
    int64_t parts = ceil_div(int64_t(multiprocessors()) * 8, a.channels);
    parts = std::max<int64_t>(1, std::min<int64_t>({parts, MAX_PARTS, a.packets / MIN_PART}));
    a.each = uint32_t(ceil_div(a.packets, parts));
    launch_parts(a, channel_kernel<T, VEC, GRAD>, a.channels, ceil_div(a.packets, a.each), THREADS);
}

/// relu, or its gradient, of rows that are laid out as `out` is when it has no gaps.
KernelPtr relu_of(const Operand& out, bool is_grad) {
    const Operand dense{out.dtype, out.shape, {out.shape[1], 1}};
    Registry activations;
    elementwise::add_activations(activations);
    const char* op = is_grad ? "relu_grad" : "relu";
    return activations.at(op)(Request{op, std::vector<Operand>(is_grad ? 3 : 2, dense), {}});
}

/// Three outputs; GRAD: grad, input, weight where it is given; else: input, weight and bias where they are given.
/// RELU: of rows, with the relu behind it, whose result is given before GRAD's input.
template <bool GRAD, bool RELU>
KernelPtr batch_norm(const Request& request) {
    const Operand& out = request.operands[0];
    if (!fits(request, out) || !out.numel()) return nullptr;
    if (RELU && (out.ndim() != 2 || !are_channel_rows(size_t(size_of(out.dtype)), out.shape[1], out.shape[0]))) return nullptr;
    const auto& given = request.attrs.integers("given");
    const int seen = GRAD && RELU ? 4 : 0;
    const bool is_weighted = given[GRAD ? (RELU ? 3 : 2) : 1];
    const int input = GRAD ? (RELU ? 5 : 4) : 3, weight = is_weighted ? input + 1 : 0;
    const int bias = !GRAD && given[2] ? input + 1 + int(is_weighted) : 0;
    Channels fixed = {};
    fixed.channels = out.shape[1];
    fixed.count = out.numel() / fixed.channels;
    fixed.eps = request.attrs.number("eps");
    if (fixed.count >= int64_t(1) << 30) return nullptr;
    const int64_t inner = fixed.count / out.shape[0];
    std::vector<DType> wanted(request.operands.size(), out.dtype);
    wanted[1] = wanted[2] = computed_dtype(out.dtype);
    for (int i : {weight, bias})
        if (i) wanted[size_t(i)] = parameter_dtype(request.operands[size_t(i)], out);
    fixed.weight.is_upcast = wanted[size_t(weight)] != out.dtype;
    fixed.bias.is_upcast = wanted[size_t(bias)] != out.dtype;
    fixed.is_rectified = RELU && !GRAD;
    const std::shared_ptr<const Kernel> relu = RELU ? relu_of(out, GRAD) : nullptr;
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            Channels a = fixed;
            a.out = data[0];
            a.first = data[1];
            a.second = data[2];
            a.grad = GRAD ? data[3] : nullptr;
            a.in = data[input];
            a.seen = seen ? data[seen] : nullptr;
            a.weight.data = weight ? data[weight] : nullptr;
            a.bias.data = bias ? data[bias] : nullptr;
            if (inner == 1 && launch_channel_rows<T, GRAD>(a)) return;
            if constexpr (RELU) {  // at odd addresses
                const Scratch<> before(GRAD ? size_t(a.count * a.channels) * sizeof(T) : 1);
                char* const backward[] = {before.data(), data[3], data[seen]};
                if (GRAD) relu->run(backward, nullptr), a.grad = before.data();
                launch_columns<T, GRAD>(a);
                char* const forward[] = {a.out, a.out};
                if (!GRAD) relu->run(forward, nullptr);
                return;
            }
            if (inner == 1) launch_columns<T, GRAD>(a);
            else if (rows_have_packets<T>(inner, {a.out, a.grad, a.in})) launch<T, PER_16_BYTES<T>, GRAD>(a, inner);
            else launch<T, 1, GRAD>(a, inner);
        });
    });
    return Staged::make(request, 3, wanted, std::move(body));
}

}  // namespace

void add_channel_normalization(Registry& registry) {
    registry["batch_norm"] = batch_norm<false, false>;
    registry["batch_norm_grad"] = batch_norm<true, false>;
    registry["batch_norm_relu"] = batch_norm<false, true>;
    registry["batch_norm_relu_grad"] = batch_norm<true, true>;
}

}  // namespace norch::nn
