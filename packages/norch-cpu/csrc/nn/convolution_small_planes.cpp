// Depthwise convolution of small images whose channels are planes, and its gradients, with stride 1. Some channels of an
// image are turned over, so that they lie side by side, with zeros around the image: a vector has one place of many
// channels, and loads are aligned, while a vector along rows of a few elements is mostly what lies between them.
#include <algorithm>

#include "common/scratch.h"
#include "common/staging.h"
#include "nn/convolution.h"
#include "nn/depthwise_taps.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn {
namespace {

using T = float;
constexpr int L = SIMD_WIDTH<T>;
constexpr int64_t VECTORS = 4;            // of channels that are turned over together
constexpr int64_t MOST_BYTES = 64 << 10;  // of them, which stay in the nearest caches
constexpr int64_t MOST_PIXELS = 400;      // more than that vectors along rows serve as well, but for ...
constexpr int64_t MOST_PIXELS_OF_FEW_TAPS = 1024;  // ... rows of taps that share what they load

/// Planes of a source with zeros around them, seen by taps from each place of a result.
struct Border {
    int64_t h, w, top, left;    // of the source, and its first row and column in the copy
    int64_t rows, columns;      // of the result
    int64_t step_y, step_x;     // from one place of the result to the next, in the copy
    int64_t down, pitch;        // rows of the copy that a result's row sees beside its own, and the copy's columns
    std::vector<int64_t> taps;  // where each tap is, seen from a place of the copy

    Border(const Request& r, const Operand& source, const Operand& result, const Operand& weight, bool is_grad)
        : h(source.shape[2]), w(source.shape[3]), rows(result.shape[2]), columns(result.shape[3]) {
        const auto &pads = r.attrs.integers("pads"), &gaps = r.attrs.integers("dilation"), &stride = r.attrs.integers("stride");
        const int64_t kh = weight.shape[2], kw = weight.shape[3], across = (kw - 1) * gaps[1];
        step_y = stride[0], step_x = stride[1], down = (kh - 1) * gaps[0], pitch = (columns - 1) * step_x + 1 + across;
        top = is_grad ? down - pads[0] : pads[0], left = is_grad ? across - pads[2] : pads[2];
        for (int64_t i = 0; i < kh; ++i)
            for (int64_t j = 0; j < kw; ++j)
                taps.push_back(i * gaps[0] * pitch + j * gaps[1]);
    }
    int64_t places() const { return rows * columns; }
    /// Pixels of the copy for some rows of the result.
    int64_t size(int64_t rows) const { return height(rows) * pitch; }
    int64_t height(int64_t rows) const { return (rows - 1) * step_y + 1 + down; }

    /// What `count` rows of the result see, from row `first` on, of `channels` planes that are `plane` apart, into the copy,
    /// whose columns of zeros are there already. 16-bit floats go by way of `staged`.
    void fill(const char* planes, DType dtype, int64_t plane, int64_t channels, int64_t first, int64_t count, T* staged, T* turned,
              T* copy) const {
        const int64_t from_y = first * step_y - top, begin = std::clamp<int64_t>(from_y, 0, h);
        const int64_t end = std::clamp(from_y + height(count), begin, h), pixels = (end - begin) * w;
        const T* from = reinterpret_cast<const T*>(planes) + begin * w;
        if (is_half(dtype)) {
            for (int64_t c = 0; c < channels; ++c)
                convert_line(planes + (c * plane + begin * w) * 2, dtype, pixels, reinterpret_cast<char*>(staged + c * pixels), DType::f32);
            from = staged, plane = pixels;
        }
        matmul::transpose(from, plane, channels, pixels, turned, channels);
        const int64_t skipped = std::max<int64_t>(0, -left), last = std::max(skipped, std::min(w, pitch - left));
        for (int64_t i = 0; i < height(count); ++i) {
            const int64_t y = from_y + i;
            T* const row = copy + i * pitch * channels;
            if (y >= begin && y < end)
                std::copy_n(turned + ((y - begin) * w + skipped) * channels, (last - skipped) * channels, row + (skipped + left) * channels);
            else
                std::fill_n(row, pitch * channels, T(0));
        }
    }
};

/// How the channels of a depthwise convolution are cut into blocks of at least a vector, and the rows of results into strips.
struct Blocks {
    int64_t channels, block = VECTORS * L, strip;

    Blocks(int64_t channels, const Border& border) : channels(channels), strip(border.rows) {
        const auto is_large = [&] { return border.size(strip) * block * int64_t(sizeof(T)) > MOST_BYTES; };
        while (block > L && (is_large() || block > channels)) block /= 2;
        while (strip > border.down + 1 && is_large()) strip = (strip + 1) / 2;
    }
    int64_t count() const { return std::max<int64_t>(1, (channels + block - L) / block); }
    int64_t first(int64_t i) const { return i * block; }
    int64_t width(int64_t i) const { return i < count() - 1 ? block : channels - first(i); }
    int64_t widest() const { return std::max(width(0), width(count() - 1)); }
};

/// `sum_taps` of all vectors of channels in all places of a row.
void sum_places(const T* source, int64_t step, const Reach& reach, const T* weights, int64_t channels, const T* bias,
                int64_t columns, T* out) {
    constexpr int X = 4;
    for (int64_t c = 0; c < channels; c += L) {
        const int64_t lane = std::min(c, channels - L);
        const T *const w = weights + lane, *const b = bias ? bias + lane : nullptr;
        for (int64_t x = 0; x < columns; x += columns < X ? 1 : X) {
            const int64_t at = columns < X ? x : std::min(x, columns - X);
            const auto kernel = columns < X ? sum_taps<1, 1, T> : sum_taps<X, 1, T>;
            kernel(source + at * step * channels + lane, step * channels, reach, w, channels, b, out + at * channels + lane);
        }
    }
}

[[gnu::cold]] KernelPtr correlation(const Request& r, bool is_grad) {
    const Operand &out = r.operands[0], &source = r.operands[1];
    const DType dtype = out.dtype;
    const auto taps_of = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(r.operands[2], DType::f32));
    const Border border(r, source, out, taps_of->view, is_grad);
    const Blocks blocks(out.shape[1], border);
    const int64_t n = out.shape[0], count = int64_t(border.taps.size()), kw = taps_of->view.shape[3];
    const int64_t strips = (border.rows + blocks.strip - 1) / blocks.strip;
    const bool has_bias = !is_grad && r.operands.size() == 4;
    const Window<T> window(kw, border.step_x, r.attrs.integers("dilation")[1]);
    const double ns = double(blocks.strip * border.columns * blocks.block) * (double(count) / PER_NS<T> + 0.2);
    return make_kernel(ns * double(n * blocks.count() * strips), [=, given = source.strides, made = out.strides](
                                                                     char* const* data, const Scalar*) {
        const Seen seen(*taps_of, data[2]);
        const Scratch<T> packed(count * blocks.channels), biases(has_bias ? blocks.channels : 0);
        for (int64_t i = 0; i < blocks.count(); ++i) {
            const int64_t first = blocks.first(i) * count, width = blocks.width(i);
            pack_taps(reinterpret_cast<const T*>(seen.data()) + first, width, count, is_grad ? count : 0, packed.data() + first, width);
        }
        if (has_bias) convert_line(data[3], dtype, blocks.channels, reinterpret_cast<char*>(biases.data()), DType::f32);
        parallel_for(n * blocks.count() * strips, ns, [&](int64_t begin, int64_t end) {
            const int64_t most = std::max(border.height(blocks.strip) * border.w, blocks.strip * border.columns), widest = blocks.widest();
            const Scratch<T> copy(border.size(blocks.strip) * widest), turned(most * widest), staged(is_half(dtype) ? most * widest : 0);
            Reach reach{std::vector<int64_t>(size_t(count)), std::vector<int64_t>(size_t(count))};
            int64_t zeroed = 0;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t image = i / strips / blocks.count(), block = i / strips % blocks.count(), y = i % strips * blocks.strip;
                const int64_t first = blocks.first(block), width = blocks.width(block), rows = std::min(blocks.strip, border.rows - y);
                if (width != zeroed) {
                    std::fill_n(copy.data(), border.size(blocks.strip) * width, T(0));
                    reach.count = 0;
                    for (int64_t t = 0; t < count; t += window ? kw : 1)
                        reach.at[reach.count] = border.taps[size_t(t)] * width, reach.tap[reach.count++] = t;
                    zeroed = width;
                }
                border.fill(data[1] + (image * given[0] + first * given[1]) * size_of(dtype), dtype, given[1], width, y, rows,
                            staged.data(), turned.data(), copy.data());
                const T *const weights = packed.data() + first * count, *const bias = has_bias ? biases.data() + first : nullptr;
                for (int64_t row = 0; row < rows; ++row) {
                    const T* const from = copy.data() + row * border.step_y * border.pitch * width;
                    T* const to = turned.data() + row * border.columns * width;
                    if (window)
                        window.sum_row(from, width, 0, border.step_x, border.pitch, reach, weights, width, bias, border.columns, to);
                    else
                        sum_places(from, border.step_x, reach, weights, width, bias, border.columns, to);
                }
                const int64_t pixels = rows * border.columns;
                char* const to = data[0] + (image * made[0] + first * made[1] + y * border.columns) * size_of(dtype);
                if (!is_half(dtype)) {
                    matmul::transpose(turned.data(), width, pixels, width, reinterpret_cast<T*>(to), made[1]);
                    continue;
                }
                matmul::transpose(turned.data(), width, pixels, width, staged.data(), pixels);
                for (int64_t c = 0; c < width; ++c)
                    convert_line(reinterpret_cast<const char*>(staged.data() + c * pixels), DType::f32, pixels, to + c * made[1] * 2, dtype);
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
            const Scratch<T> copy(border.size(border.rows) * blocks.block), turned(border.h * border.w * blocks.block);
            const Scratch<T> grads(border.places() * blocks.block), sums(count * blocks.block);
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = blocks.first(block), width = blocks.width(block);
                std::fill_n(copy.data(), border.size(border.rows) * width, T(0));
                std::fill_n(sums.data(), count * width, T(0));
                for (int64_t i = 0; i < n; ++i) {
                    const char* const from = data[2] + (i * given[0] + first * given[1]) * int64_t(sizeof(T));
                    const T* const grad = reinterpret_cast<const T*>(data[1]) + i * made[0] + first * made[1];
                    border.fill(from, DType::f32, given[1], width, 0, border.rows, nullptr, turned.data(), copy.data());
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
bool has_rows(const Operand& image, int64_t most_pixels) {
    const int64_t pixels = image.shape[2] * image.shape[3];
    return image.strides[3] == 1 && image.strides[2] == image.shape[3] && pixels >= L && pixels <= most_pixels;
}

}  // namespace

[[gnu::cold]] KernelPtr conv2d_of_small_planes(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    const int64_t groups = r.attrs.integer("groups");
    const auto& stride = r.attrs.integers("stride");
    const bool is_depthwise = weight.shape[0] == groups && weight.shape[1] == 1;
    if (weight.dtype == DType::f64 || !is_depthwise || groups < L) return nullptr;
    if (r.op != "conv2d" && (stride[0] != 1 || stride[1] != 1)) return nullptr;
    if (of_weight && (weight.dtype != DType::f32 || groups % L)) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    const int64_t taps = weight.shape[2] * weight.shape[3];
    const bool has_window = !of_weight && Window<T>(weight.shape[3], stride[1], r.attrs.integers("dilation")[1]);
    const int64_t most = !has_window ? MOST_PIXELS : taps > 9 || stride[1] > 1 ? INT64_MAX : MOST_PIXELS_OF_FEW_TAPS;
    if (!has_rows(r.operands[of_weight ? 2 : 0], most) || !has_rows(r.operands[1], most)) return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1) return nullptr;
    return of_weight ? weight_grad(r) : correlation(r, of_input);
}

}  // namespace norch::nn
