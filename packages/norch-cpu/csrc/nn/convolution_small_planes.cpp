// Depthwise convolution of small images whose channels are planes, and its gradients, with stride 1. Some channels of an
// image are turned over, so that they lie side by side, with zeros around the image: a vector has one place of many
// channels, and loads are aligned, while a vector along rows of a few elements is mostly what lies between them.
#include <algorithm>

#include "common/scratch.h"
#include "matmul/transpose.h"
#include "nn/convolution.h"
#include "nn/depthwise_taps.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

using T = float;
constexpr int L = SIMD_WIDTH<T>;
constexpr int64_t VECTORS = 4;            // of channels that are turned over together
constexpr int64_t MOST_BYTES = 64 << 10;  // of them, which stay in the nearest caches
constexpr int64_t MOST_PIXELS = 400;      // more than that vectors along rows serve as well

/// Planes of a source with zeros around them, seen by taps from each place of a result.
struct Border {
    int64_t h, w, top, left;    // of the source, and its first row and column in the copy
    int64_t rows, columns;      // of the result
    int64_t height, pitch;      // of the copy
    std::vector<int64_t> taps;  // where each tap is, seen from a place of the copy

    Border(const Request& r, const Operand& source, const Operand& result, const Operand& weight, bool is_grad)
        : h(source.shape[2]), w(source.shape[3]), rows(result.shape[2]), columns(result.shape[3]) {
        const auto &pads = r.attrs.integers("pads"), &gaps = r.attrs.integers("dilation");
        const int64_t kh = weight.shape[2], kw = weight.shape[3];
        const int64_t down = (kh - 1) * gaps[0], across = (kw - 1) * gaps[1];
        top = is_grad ? down - pads[0] : pads[0], left = is_grad ? across - pads[2] : pads[2];
        height = rows + down, pitch = columns + across;
        for (int64_t i = 0; i < kh; ++i)
            for (int64_t j = 0; j < kw; ++j)
                taps.push_back(i * gaps[0] * pitch + j * gaps[1]);
        if (is_grad) std::reverse(taps.begin(), taps.end());
    }
    int64_t places() const { return rows * columns; }
    int64_t size() const { return height * pitch; }

    /// `channels` planes, which are `plane` apart, into the copy, whose zeros are there already.
    void fill(const T* from, int64_t plane, int64_t channels, T* turned, T* copy) const {
        matmul::transpose(from, plane, channels, h * w, turned, channels);
        const int64_t first = std::max<int64_t>(0, -left), last = std::min(w, pitch - left);
        for (int64_t y = std::max<int64_t>(0, -top); y < std::min(h, height - top) && first < last; ++y)
            std::copy_n(turned + (y * w + first) * channels, (last - first) * channels,
                        copy + ((y + top) * pitch + first + left) * channels);
    }
};

/// How the channels of a depthwise convolution are cut into blocks of whole vectors.
struct Blocks {
    int64_t channels, block;

    Blocks(int64_t channels, const Border& border) : channels(channels), block(VECTORS * L) {
        while (block > L && (border.size() * block * int64_t(sizeof(T)) > MOST_BYTES || block > channels)) block /= 2;
    }
    int64_t count() const { return (channels + block - 1) / block; }
    int64_t first(int64_t i) const { return i * block; }
    int64_t width(int64_t i) const { return std::min(block, channels - i * block); }
};

/// The results of V vectors of channels in all places, X places of a row together.
template <int X, int V>
void correlate(const Border& b, const Reach& reach, const T* copy, const T* weights, int64_t channels, const T* bias, T* out) {
    for (int64_t y = 0; y < b.rows; ++y) {
        for (int64_t x = 0; x < b.columns; x += X) {
            const int64_t at = std::min(x, b.columns - X);
            const T* seen = copy + (y * b.pitch + at) * channels;
            sum_taps<X, V>(seen, channels, reach, weights, channels, bias, out + (y * b.columns + at) * channels);
        }
    }
}

template <int V>
auto correlate_rows_of(int64_t columns) {
    return columns % 7 == 0 ? correlate<7, V> : columns >= 4 ? correlate<4, V> : correlate<1, V>;
}

[[gnu::cold]] KernelPtr correlation(const Request& r, bool is_grad) {
    const Operand &out = r.operands[0], &source = r.operands[1], &weight = r.operands[2];
    const Border border(r, source, out, weight, is_grad);
    const Blocks blocks(out.shape[1], border);
    const int64_t n = out.shape[0], count = int64_t(border.taps.size());
    const bool has_bias = !is_grad && r.operands.size() == 4;
    const double ns = double(border.places() * blocks.block) * (double(count) / PER_NS<T> + 0.2);
    return make_kernel(ns * double(n * blocks.count()), [=, given = source.strides, made = out.strides, by = weight.strides,
                                                         kw = weight.shape[3]](char* const* data, const Scalar*) {
        const T* const w = reinterpret_cast<const T*>(data[2]);
        const T* const bias = has_bias ? reinterpret_cast<const T*>(data[3]) : nullptr;
        const Scratch<T> packed(count * blocks.channels);  // of each block by tap
        for (int64_t c = 0; c < blocks.channels; ++c) {
            const int64_t i = c / blocks.block, first = blocks.first(i);
            for (int64_t t = 0; t < count; ++t)
                packed[first * count + t * blocks.width(i) + c - first] = w[c * by[0] + t / kw * by[2] + t % kw * by[3]];
        }
        parallel_for(n * blocks.count(), ns, [&](int64_t begin, int64_t end) {
            const int64_t most = std::max(border.h * border.w, border.places());
            const Scratch<T> copy(border.size() * blocks.block), turned(most * blocks.block);
            Reach reach{std::vector<int64_t>(size_t(count)), std::vector<int64_t>(size_t(count)), size_t(count)};
            int64_t zeroed = 0;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t image = i / blocks.count(), block = i % blocks.count();
                const int64_t first = blocks.first(block), width = blocks.width(block);
                if (width != zeroed) {
                    std::fill_n(copy.data(), border.size() * width, T(0));
                    for (size_t t = 0; t < size_t(count); ++t) reach.at[t] = border.taps[t] * width, reach.tap[t] = int64_t(t);
                    zeroed = width;
                }
                const T* const from = reinterpret_cast<const T*>(data[1]) + image * given[0] + first * given[1];
                border.fill(from, given[1], width, turned.data(), copy.data());
                for (int64_t c = 0, step; c < width; c += step) {
                    step = width - c >= 2 * L ? 2 * L : L;
                    const auto kernel = step == L ? correlate_rows_of<1>(border.columns) : correlate_rows_of<2>(border.columns);
                    kernel(border, reach, copy.data() + c, packed.data() + first * count + c, width,
                           bias ? bias + first + c : nullptr, turned.data() + c);
                }
                T* const to = reinterpret_cast<T*>(data[0]) + image * made[0] + first * made[1];
                matmul::transpose(turned.data(), width, border.places(), width, to, made[1]);
            }
        });
    });
}

/// sums[k][c] += the sum over places of grad[c] * x[c], of a vector of channels, for K taps of a row that are `gap` apart.
template <int K>
void add_products(const Border& b, const T* grad, const T* x, int64_t gap, int64_t channels, T* sums) {
    vector_t<T, L> totals[K] = {};
    for (int64_t y = 0; y < b.rows; ++y) {
        const T* seen = x + y * b.pitch * channels;
        for (int64_t i = 0; i < b.columns; ++i, grad += channels, seen += channels) {
            const auto g = load_vector<L>(grad);
            NORCH_UNROLL
            for (int k = 0; k < K; ++k) totals[k] += load_vector<L>(seen + k * gap) * g;
        }
    }
    NORCH_UNROLL
    for (int k = 0; k < K; ++k) store_vector(sums + k * channels, load_vector<L>(sums + k * channels) + totals[k]);
}

/// Images are summed each by itself, then in their order.
[[gnu::cold]] KernelPtr weight_grad(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &source = r.operands[2];
    const Border border(r, source, grad, out, false);
    const Blocks blocks(grad.shape[1], border);
    const int64_t n = grad.shape[0], count = int64_t(border.taps.size()), kw = out.shape[3];
    const double ns = double(n * border.places() * blocks.block) * (double(count) / PER_NS<T> * 2 + 0.2);
    const int64_t gap = kw > 1 ? border.taps[1] - border.taps[0] : 0;
    return make_kernel(ns * double(blocks.count()), [=, given = source.strides, made = grad.strides, by = out.strides](
                                                        char* const* data, const Scalar*) {
        parallel_for(blocks.count(), ns, [&](int64_t begin, int64_t end) {
            const Scratch<T> copy(border.size() * blocks.block), turned(border.h * border.w * blocks.block);
            const Scratch<T> grads(border.places() * blocks.block), sums(count * blocks.block);
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = blocks.first(block), width = blocks.width(block);
                std::fill_n(copy.data(), border.size() * width, T(0));
                std::fill_n(sums.data(), count * width, T(0));
                for (int64_t i = 0; i < n; ++i) {
                    const T* const from = reinterpret_cast<const T*>(data[2]) + i * given[0] + first * given[1];
                    const T* const grad = reinterpret_cast<const T*>(data[1]) + i * made[0] + first * made[1];
                    border.fill(from, given[1], width, turned.data(), copy.data());
                    matmul::transpose(grad, made[1], width, border.places(), grads.data(), width);
                    for (int64_t t = 0, here; t < count; t += here) {
                        const int64_t left = kw - t % kw;  // of the row of taps
                        here = left == 3 ? 3 : left >= 5 ? 5 : left >= 2 ? 2 : 1;
                        static constexpr decltype(&add_products<1>) kernels[] = {add_products<1>, add_products<2>, add_products<3>,
                                                                                 nullptr, add_products<5>};
                        for (int64_t c = 0; c < width; c += L)
                            kernels[here - 1](border, grads.data() + c, copy.data() + border.taps[size_t(t)] * width + c,
                                              gap * width, width, sums.data() + t * width + c);
                    }
                }
                T* const to = reinterpret_cast<T*>(data[0]);
                for (int64_t t = 0; t < count; ++t)
                    for (int64_t c = 0; c < width; ++c)
                        to[(first + c) * by[0] + t / kw * by[2] + t % kw * by[3]] = sums[t * width + c];
            }
        });
    });
}

/// Whether rows follow each other, and are enough to be turned over by whole vectors.
bool has_small_planes(const Operand& image) {
    const int64_t pixels = image.shape[2] * image.shape[3];
    return image.strides[3] == 1 && image.strides[2] == image.shape[3] && pixels >= L && pixels <= MOST_PIXELS;
}

}  // namespace

[[gnu::cold]] KernelPtr conv2d_of_small_planes(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    const int64_t groups = r.attrs.integer("groups");
    const auto& stride = r.attrs.integers("stride");
    const bool is_depthwise = weight.shape[0] == groups && weight.shape[1] == 1;
    if (weight.dtype != DType::f32 || !is_depthwise || groups % L || stride[0] != 1 || stride[1] != 1) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    if (!has_small_planes(r.operands[of_weight ? 2 : 0]) || !has_small_planes(r.operands[1])) return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1) return nullptr;
    const int64_t pixels = r.operands[0].shape[2] * r.operands[0].shape[3], taps = weight.shape[2] * weight.shape[3];
    if (!of_weight && L < 16 && pixels > 100 && taps > 9) return nullptr;  // shorter vectors fill rows well enough
    return of_weight ? weight_grad(r) : correlation(r, of_input);
}

}  // namespace norch::nn
