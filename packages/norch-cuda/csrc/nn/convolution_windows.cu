// Convolution's own kernels: images to windows and back, sums of partial results, and convolution by few channels.
#include <algorithm>

#include "nn/convolution.h"
#include "runtime/device.cuh"

namespace norch::nn {

Convolution::Convolution(const Operand& image, const Operand& result, const std::vector<int64_t>& weight,
                         const Attrs& attrs)
    : n(image.shape[0]), c(image.shape[1]), h(image.shape[2]), w(image.shape[3]), o(weight[0]), kh(weight[2]),
      kw(weight[3]), rows(result.shape[2]), columns(result.shape[3]), groups(attrs.integer("groups")) {
    const auto &stride = attrs.integers("stride"), &dilation = attrs.integers("dilation");
    const auto& pads = attrs.integers("pads");
    step_y = stride[0], step_x = stride[1], gap_y = dilation[0], gap_x = dilation[1], top = pads[0], left = pads[2];
}

bool Convolution::is_usual() const {
    constexpr int64_t LIMIT = int64_t(1) << 28;
    auto small = [](int64_t a, int64_t b) {
        return std::abs(a) < LIMIT && std::abs(b) < LIMIT && std::abs(a * b) < LIMIT;
    };
    return small(h, w) && small(rows, columns) && small(kh, kw) && small(c * kh * kw, rows * columns) &&
           small(c, h * w) && small(step_y, rows) && small(step_x, columns) && small(gap_y, kh) && small(gap_x, kw) &&
           small(top, 1) && small(left, 1) && small(n, places());
}

namespace {

/// A convolution as threads see it; strides of the image in elements.
struct Grid {
    FastDivide across, down, channels, by_step_y, by_step_x;
    uint32_t count;
    int h, w, kh, kw, rows, columns, step_y, step_x, gap_y, gap_x, top, left;
    int64_t n_stride, c_stride, row_stride, column_stride;
};

/// For threads of `images` * channels * down * across elements.
Grid grid_of(const Convolution& c, int64_t images, int64_t channels, int64_t down, int64_t across) {
    Grid g = {};
    g.across = FastDivide(uint32_t(across)), g.down = FastDivide(uint32_t(down));
    g.channels = FastDivide(uint32_t(channels));
    g.by_step_y = FastDivide(uint32_t(c.step_y)), g.by_step_x = FastDivide(uint32_t(c.step_x));
    g.count = uint32_t(images * channels * down * across);
    g.h = int(c.h), g.w = int(c.w), g.kh = int(c.kh), g.kw = int(c.kw);
    g.rows = int(c.rows), g.columns = int(c.columns);
    g.step_y = int(c.step_y), g.step_x = int(c.step_x), g.gap_y = int(c.gap_y), g.gap_x = int(c.gap_x);
    g.top = int(c.top), g.left = int(c.left);
    return g;
}

void set_strides(Grid& g, const Operand& image) {
    g.n_stride = image.strides[0], g.c_stride = image.strides[1];
    g.row_stride = image.strides[2], g.column_stride = image.strides[3];
}

struct Place {
    int n, c, y, x;
};

__device__ Place place_of(const Grid& g, uint32_t i) {
    const uint32_t line = g.across.quotient(i), plane = g.down.quotient(line), n = g.channels.quotient(plane);
    return {int(n), int(plane - n * g.channels.divisor), int(line - plane * g.down.divisor),
            int(i - line * g.across.divisor)};
}

/// A thread for each window of each channel.
template <class T>
__global__ void __launch_bounds__(THREADS) im2col_kernel(const __grid_constant__ Grid g, const Columns to, T* out,
                                                          const T* data) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= g.count) return;
    const Place at = place_of(g, i);
    const int top = at.y * g.step_y - g.top, left = at.x * g.step_x - g.left;
    data += at.n * g.n_stride + at.c * g.c_stride;
    out += at.n * to.image_step + int64_t(at.c) * g.kh * g.kw * to.row_step + at.y * g.columns + at.x;
    for (int a = 0; a < g.kh; ++a) {
        const int y = top + a * g.gap_y;
        const bool is_row = unsigned(y) < unsigned(g.h);
#pragma unroll 4
        for (int b = 0; b < g.kw; ++b, out += to.row_step) {
            const int x = left + b * g.gap_x;
            *out = is_row && unsigned(x) < unsigned(g.w) ? data[y * g.row_stride + x * g.column_stride] : T(0);
        }
    }
}

/// A thread for each element of the images: the sum of what the windows have of it.
template <class T>
__global__ void __launch_bounds__(THREADS) col2im_kernel(const __grid_constant__ Grid g, const Columns from, T* out,
                                                              const T* columns) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= g.count) return;
    const Place at = place_of(g, i);
    columns += at.n * from.image_step + int64_t(at.c) * g.kh * g.kw * from.row_step;
    computed<T> sum = 0;
    for (int a = 0; a < g.kh; ++a) {
        const int y = at.y + g.top - a * g.gap_y;
        if (y < 0) break;
        const int row = int(g.by_step_y.quotient(uint32_t(y)));
        if (row >= g.rows || row * g.step_y != y) continue;
#pragma unroll 4
        for (int b = 0; b < g.kw; ++b) {
            const int x = at.x + g.left - b * g.gap_x;
            const int column = x < 0 ? g.columns : int(g.by_step_x.quotient(uint32_t(x)));
            if (column < g.columns && column * g.step_x == x)
                sum += upcast(columns[(a * g.kw + b) * from.row_step + row * g.columns + column]);
        }
    }
    out[i] = downcast<T>(sum);
}

/// 32 elements for each block; its 8 warps share the parts among them.
template <class T>
__global__ void __launch_bounds__(THREADS) sum_kernel(T* out, const T* parts, int64_t count, int64_t numel) {
    using C = computed<T>;
    __shared__ C sums[THREADS / 32][32];
    const int64_t i = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    C sum = 0;
    if (i < numel) {
#pragma unroll 8
        for (int64_t part = warp; part < count; part += THREADS / 32) sum += upcast(parts[part * numel + i]);
    }
    sums[warp][threadIdx.x % 32] = sum;
    __syncthreads();
    if (warp || i >= numel) return;
    for (int k = 1; k < THREADS / 32; ++k) sum += sums[k][threadIdx.x];
    out[i] = downcast<T>(sum);
}

// --- Direct ---------------------------------------------------------------------------------------------------------

struct Direct {
    Grid grid;             // a thread for each place of each image
    int from, to, chunk;   // channels of a group: in, out; in at a time
    int blocks;            // of PER channels that come out of a group
    int64_t weight[4], bias_stride;
};

/// A thread computes PER channels of one place. Weights lie in shared memory, those of the PER channels side by side.
template <class T, int PER>
__global__ void __launch_bounds__(THREADS) direct_kernel(const __grid_constant__ Direct p, T* out, const T* image,
                                                         const T* weight, const T* bias) {
    using C = computed<T>;
    extern __shared__ __align__(16) char memory[];
    C* shared = reinterpret_cast<C*>(memory);
    const Grid& g = p.grid;
    const int group = blockIdx.y / p.blocks, first = blockIdx.y % p.blocks * PER;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const Place at = place_of(g, min(i, g.count - 1));
    const int top = at.y * g.step_y - g.top, left = at.x * g.step_x - g.left, taps = g.kh * g.kw;
    image += at.n * g.n_stride + group * p.from * g.c_stride;
    weight += (int64_t(group) * p.to + first) * p.weight[0];
    C sums[PER] = {};
    for (int begin = 0; begin < p.from; begin += p.chunk) {
        const int channels = min(p.chunk, p.from - begin);
        __syncthreads();
        for (int e = threadIdx.x; e < channels * taps * PER; e += THREADS) {
            const int k = e / PER, o = e % PER, c = k / taps, tap = k - c * taps, a = tap / g.kw;
            shared[e] = first + o < p.to ? C(upcast(weight[o * p.weight[0] + (begin + c) * p.weight[1] + a * p.weight[2] +
                                                          (tap - a * g.kw) * p.weight[3]]))
                                         : C(0);
        }
        __syncthreads();
        const C* w = shared;
        for (int c = 0; c < channels; ++c) {
            const T* plane = image + (begin + c) * g.c_stride;
            for (int a = 0; a < g.kh; ++a) {
                const int y = top + a * g.gap_y;
                const bool is_row = unsigned(y) < unsigned(g.h);
#pragma unroll 3
                for (int b = 0; b < g.kw; ++b, w += PER) {
                    const int x = left + b * g.gap_x;
                    const C value = is_row && unsigned(x) < unsigned(g.w)
                                        ? C(upcast(plane[y * g.row_stride + x * g.column_stride]))
                                        : C(0);
                    if constexpr (PER == 1) {
                        sums[0] += value * w[0];
                    } else {
                        constexpr int VEC = PER_16_BYTES<C>;
#pragma unroll
                        for (int o = 0; o < PER; o += VEC) {
                            const auto packet = *reinterpret_cast<const Packet<C, VEC>*>(w + o);
#pragma unroll
                            for (int j = 0; j < VEC; ++j) sums[o + j] += value * packet.v[j];
                        }
                    }
                }
            }
        }
    }
    if (i >= g.count) return;
    const int64_t size = int64_t(g.rows) * g.columns, channel = int64_t(group) * p.to + first;
    out += (int64_t(at.n) * (gridDim.y / p.blocks) * p.to + channel) * size + at.y * g.columns + at.x;
#pragma unroll
    for (int o = 0; o < PER; ++o) {
        if (first + o >= p.to) break;
        const C shift = bias ? C(upcast(bias[(channel + o) * p.bias_stride])) : C(0);
        out[o * size] = downcast<T>(sums[o] + shift);
    }
}

unsigned blocks_for(uint32_t count) { return unsigned(ceil_div(count, THREADS)); }

}  // namespace

void launch_im2col(const Convolution& conv, const Operand& image, const Columns& to, char* out, const char* data,
                    int64_t count) {
    Grid g = grid_of(conv, count, conv.c, conv.rows, conv.columns);
    set_strides(g, image);
    visit_bits(size_of(image.dtype), [&]<class T>(Tag<T>) {
        im2col_kernel<T><<<blocks_for(g.count), THREADS, 0, stream_handle()>>>(g, to, reinterpret_cast<T*>(out),
                                                                                reinterpret_cast<const T*>(data));
    });
    check_launch("the windows of a convolution");
}

void launch_col2im(const Convolution& conv, DType dtype, const Columns& from, char* out, const char* columns,
                        int64_t count) {
    const Grid g = grid_of(conv, count, conv.c, conv.h, conv.w);
    visit_floating_device(dtype, [&]<class T>(Tag<T>) {
        col2im_kernel<T><<<blocks_for(g.count), THREADS, 0, stream_handle()>>>(
            g, from, reinterpret_cast<T*>(out), reinterpret_cast<const T*>(columns));
    });
    check_launch("the gradient of a convolution's input");
}

void launch_sum_of_parts(DType dtype, char* out, const char* parts, int64_t count, int64_t numel) {
    visit_floating_device(dtype, [&]<class T>(Tag<T>) {
        sum_kernel<T><<<unsigned(ceil_div(numel, 32)), THREADS, 0, stream_handle()>>>(
            reinterpret_cast<T*>(out), reinterpret_cast<const T*>(parts), count, numel);
    });
    check_launch("the gradient of a convolution's weight");
}

template <class T>
KernelPtr direct_of(const Convolution& conv, const Request& r) {
    const Operand &image = r.operands[1], &weight = r.operands[2];
    const bool is_one = conv.o == conv.groups, has_bias = r.operands.size() == 4;
    const int64_t per = is_one ? 1 : 8, bytes = per * conv.kh * conv.kw * int64_t(sizeof(computed<T>)), most = 48 << 10;
    Direct p = {};
    p.grid = grid_of(conv, conv.n, 1, conv.rows, conv.columns);
    set_strides(p.grid, image);
    p.from = int(conv.c / conv.groups), p.to = int(conv.o / conv.groups);
    p.blocks = int(ceil_div(p.to, per));
    if (bytes > most || conv.groups * p.blocks > 65535) return nullptr;
    p.chunk = int(std::min<int64_t>(most / bytes, p.from));
    for (int d = 0; d < 4; ++d) p.weight[d] = weight.strides[size_t(d)];
    p.bias_stride = has_bias ? r.operands[3].strides[0] : 0;
    const dim3 blocks(blocks_for(p.grid.count), unsigned(conv.groups * p.blocks));
    const size_t shared = size_t(p.chunk * bytes);
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
        auto kernel = is_one ? direct_kernel<T, 1> : direct_kernel<T, 8>;
        kernel<<<blocks, THREADS, shared, stream_handle()>>>(p, at(0), at(1), at(2), has_bias ? at(3) : nullptr);
        check_launch("a convolution");
    });
}

KernelPtr direct_convolution(const Convolution& conv, const Request& request) {
    return visit_floating_device(request.operands[0].dtype, [&]<class T>(Tag<T>) {
        return direct_of<T>(conv, request);
    });
}

}  // namespace norch::nn
