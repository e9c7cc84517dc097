// Depthwise convolution of images whose channels are planes, and its gradients. Some channels of some rows are turned over, so
// that they lie side by side, with zeros around: a vector has one place of many channels, and loads are aligned, while a
// vector along rows of a few elements is mostly what lies between them.
#include <algorithm>
#include <cmath>

#include "common/scratch.h"
#include "common/staging.h"
#include "nn/convolution.h"
#include "nn/row_taps.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn {
namespace {

using T = float;
constexpr int L = SIMD_WIDTH<T>;
constexpr int64_t PIECES = 16;            // of a weight's gradient, or fewer, that are summed by themselves
constexpr int64_t VECTORS = 4;            // of channels that are turned over together
constexpr int64_t MOST_BYTES = 64 << 10;  // of them, which stay in the nearest caches
constexpr int64_t MOST_PIXELS = 400;      // more than that vectors along rows serve as well, but for ...
constexpr int64_t MOST_PIXELS_OF_FEW_TAPS = 1024;  // ... rows of taps that share what they load

/// Some pixels of `channels` planes that are `plane` apart, so that channels lie side by side. 16-bit floats go by way of `staged`.
void turn(const char* planes, DType dtype, int64_t plane, int64_t channels, int64_t pixels, T* staged, T* turned) {
    const T* from = reinterpret_cast<const T*>(planes);
    if (is_half(dtype)) {
        for (int64_t c = 0; c < channels; ++c)
            convert_line(planes + c * plane * 2, dtype, pixels, reinterpret_cast<char*>(staged + c * pixels), DType::f32);
        from = staged, plane = pixels;
    }
    matmul::transpose(from, plane, channels, pixels, turned, channels);
}

/// Planes of a source with zeros around them, seen by taps from each place of a result.
struct Border {
    int64_t h, w, top, left;    // of the source, and its first row and column in the copy
    int64_t rows, columns;      // of the result
    int64_t step_y, step_x;     // from one place of the result to the next, in the copy
    int64_t spread_y, spread_x;  // from one pixel of the source to the next, in the copy: more in the gradient at a stride
    int64_t down, pitch;        // rows of the copy that a result's row sees beside its own, and the copy's columns
    std::vector<int64_t> taps;  // where each tap is, seen from a place of the copy

    Border(const Request& r, const Operand& source, const Operand& result, const Operand& weight, bool is_grad)
        : h(source.shape[2]), w(source.shape[3]), rows(result.shape[2]), columns(result.shape[3]) {
        const auto &pads = r.attrs.integers("pads"), &gaps = r.attrs.integers("dilation"), &stride = r.attrs.integers("stride");
        const int64_t kh = weight.shape[2], kw = weight.shape[3], across = (kw - 1) * gaps[1];
        step_y = is_grad ? 1 : stride[0], step_x = is_grad ? 1 : stride[1];
        spread_y = is_grad ? stride[0] : 1, spread_x = is_grad ? stride[1] : 1;
        down = (kh - 1) * gaps[0], pitch = (columns - 1) * step_x + 1 + across;
        top = is_grad ? down - pads[0] : pads[0], left = is_grad ? across - pads[2] : pads[2];
        for (int64_t i = 0; i < kh; ++i)
            for (int64_t j = 0; j < kw; ++j)
                taps.push_back(i * gaps[0] * pitch + j * gaps[1]);
    }
    int64_t places() const { return rows * columns; }
    bool is_spread() const { return spread_y > 1 || spread_x > 1; }
    /// Pixels of the copy for some rows of the result.
    int64_t size(int64_t rows) const { return height(rows) * pitch; }
    int64_t height(int64_t rows) const { return (rows - 1) * step_y + 1 + down; }

    /// What `count` rows of the result see, from row `first` on, of `channels` planes that are `plane` apart, into the copy,
    /// whose zeros beside pixels of the source are there already. 16-bit floats go by way of `staged`.
    void fill(const char* planes, DType dtype, int64_t plane, int64_t channels, int64_t first, int64_t count, T* staged, T* turned,
              T* copy) const {
        const int64_t from_y = first * step_y - top, to_y = from_y + height(count);
        const int64_t begin = std::min(h, (std::max<int64_t>(0, from_y) + spread_y - 1) / spread_y);
        const int64_t end = std::clamp((to_y + spread_y - 1) / spread_y, begin, h), pixels = (end - begin) * w;
        turn(planes + begin * w * size_of(dtype), dtype, plane, channels, pixels, staged, turned);
        const int64_t skipped = std::max<int64_t>(0, -left + spread_x - 1) / spread_x;
        const int64_t last = std::max(skipped, std::min(w, (pitch - left + spread_x - 1) / spread_x));
        for (int64_t i = 0; i < height(count); ++i) {
            const int64_t y = (from_y + i) / spread_y;
            T* const row = copy + i * pitch * channels;
            if (from_y + i < 0 || (from_y + i) % spread_y || y >= h) {
                std::fill_n(row, pitch * channels, T(0));
                continue;
            }
            const T* const pixels = turned + (y - begin) * w * channels;
            if (spread_x == 1) {
                std::copy_n(pixels + skipped * channels, (last - skipped) * channels, row + (skipped + left) * channels);
                continue;
            }
            for (int64_t x = skipped; x < last; ++x)
                std::copy_n(pixels + x * channels, channels, row + (x * spread_x + left) * channels);
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
            const auto kernel = columns < X ? sum_taps<1, 1> : sum_taps<X, 1>;
            kernel(source + at * step * channels + lane, step * channels, reach, w, channels, b, out + at * channels + lane);
        }
    }
}

/// `direct` is taken where weights are not finite and zeros between pixels of the source would make NaN of them.
[[gnu::cold]] KernelPtr correlation(const Request& r, bool is_grad, std::shared_ptr<const Kernel> direct) {
    const Operand &out = r.operands[0], &source = r.operands[1];
    const DType dtype = out.dtype;
    const auto taps_of = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(r.operands[2], DType::f32));
    const Border border(r, source, out, taps_of->view, is_grad);
    const Blocks blocks(out.shape[1], border);
    const int64_t n = out.shape[0], count = int64_t(border.taps.size()), kw = taps_of->view.shape[3];
    const int64_t strips = (border.rows + blocks.strip - 1) / blocks.strip;
    const bool has_bias = !is_grad && r.operands.size() == 4;
    const Window window(DType::f32, kw, border.step_x, r.attrs.integers("dilation")[1]);
    const double ns = double(blocks.strip * border.columns * blocks.block) * (double(count) / PER_NS<T> + 0.2);
    return make_kernel(ns * double(n * blocks.count() * strips), [=, given = source.strides, made = out.strides](
                                                                     char* const* data, const Scalar* scalars) {
        const Seen seen(*taps_of, data[2]);
        const T* const given_weights = reinterpret_cast<const T*>(seen.data());
        if (border.is_spread() && !std::all_of(given_weights, given_weights + count * blocks.channels, [](T w) { return std::isfinite(w); }))
            return direct->run(data, scalars);
        const Scratch<T> packed(count * blocks.channels), biases(has_bias ? blocks.channels : 0);
        for (int64_t i = 0; i < blocks.count(); ++i) {
            const int64_t first = blocks.first(i) * count, width = blocks.width(i);
            pack_taps(given_weights + first, width, count, is_grad ? count : 0, packed.data() + first, width);
        }
        if (has_bias) convert_line(data[3], dtype, blocks.channels, reinterpret_cast<char*>(biases.data()), DType::f32);
        parallel_for(n * blocks.count() * strips, ns, [&](int64_t begin, int64_t end) {
            const int64_t most = std::max(border.height(blocks.strip) * border.w, blocks.strip * border.columns), widest = blocks.widest();
            const Scratch<T> copy(border.size(blocks.strip) * widest), turned(most * widest), staged(is_half(dtype) ? most * widest : 0);
            // Of the rows of taps each row of the result sees those on which rows of the source lie.
            std::vector<Reach> reaches(size_t(border.spread_y), Reach{std::vector<int64_t>(size_t(count)), std::vector<int64_t>(size_t(count))});
            int64_t zeroed = 0;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t image = i / strips / blocks.count(), block = i / strips % blocks.count(), y = i % strips * blocks.strip;
                const int64_t first = blocks.first(block), width = blocks.width(block), rows = std::min(blocks.strip, border.rows - y);
                if (width != zeroed) {
                    std::fill_n(copy.data(), border.size(blocks.strip) * width, T(0));
                    for (Reach& reach : reaches) reach.count = 0;
                    for (int64_t t = 0; t < count; t += window ? kw : 1) {
                        Reach& reach = reaches[size_t(t / kw % border.spread_y)];
                        reach.at[reach.count] = border.taps[size_t(t)] * width, reach.tap[reach.count++] = t;
                    }
                    zeroed = width;
                }
                border.fill(data[1] + (image * given[0] + first * given[1]) * size_of(dtype), dtype, given[1], width, y, rows,
                            staged.data(), turned.data(), copy.data());
                const T *const weights = packed.data() + first * count, *const bias = has_bias ? biases.data() + first : nullptr;
                for (int64_t row = 0; row < rows; ++row) {
                    const T* const from = copy.data() + row * border.step_y * border.pitch * width;
                    T* const to = turned.data() + row * border.columns * width;
                    const int64_t s = border.spread_y;
                    const Reach& reach = reaches[size_t(((border.top - y - row) % s + s) % s)];
                    if (window)
                        window.sum_row(reinterpret_cast<const char*>(from), width, 0, border.step_x, border.pitch, reach, weights, width, bias,
                                       border.columns, reinterpret_cast<char*>(to));
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

/// Strips are summed part by part, and then in order, however many threads there are. `direct` is taken where a sum is not
/// finite, perhaps by zeros around an image.
[[gnu::cold]] KernelPtr weight_grad(const Request& r, std::shared_ptr<const Kernel> direct) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &source = r.operands[2];
    const DType dtype = out.dtype;
    const auto made = std::make_shared<const StagedOperand>(StagedOperand::contiguous_in(out, DType::f32, true));
    const Border border(r, source, grad, out, false);
    const Blocks blocks(grad.shape[1], border);
    const int64_t count = int64_t(border.taps.size()), kw = out.shape[3], size = count * blocks.channels;
    const int64_t strips = (border.rows + blocks.strip - 1) / blocks.strip, gap = r.attrs.integers("dilation")[1];
    const int64_t units = grad.shape[0] * strips, parts = std::clamp<int64_t>(PIECES / blocks.count(), 1, units);
    const double ns = double(units * blocks.strip * border.columns * blocks.block / parts) * (double(count) / PER_NS<T> * 2 + 0.2);
    note_scratch(parts * size * int64_t(sizeof(T)));
    return make_kernel(ns * double(blocks.count() * parts), [=, given = source.strides, grads = grad.strides](
                                                                 char* const* data, const Scalar* scalars) {
        const Scratch<T> partial(parts * size);  // of each part, block after block by tap
        parallel_for(blocks.count() * parts, ns, [&](int64_t begin, int64_t end) {
            const int64_t most = std::max(border.height(blocks.strip) * border.w, blocks.strip * border.columns), widest = blocks.widest();
            const Scratch<T> copy(border.size(blocks.strip) * widest), turned(most * widest), staged(is_half(dtype) ? most * widest : 0);
            const Scratch<T> own(blocks.strip * border.columns * widest);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t part = i / blocks.count(), first = blocks.first(i % blocks.count()), width = blocks.width(i % blocks.count());
                T* const sums = partial.data() + part * size + first * count;
                std::fill_n(copy.data(), border.size(blocks.strip) * width, T(0));
                std::fill_n(sums, count * width, T(0));
                for (int64_t unit = units * part / parts; unit < units * (part + 1) / parts; ++unit) {
                    const int64_t image = unit / strips, y = unit % strips * blocks.strip, rows = std::min(blocks.strip, border.rows - y);
                    const char* const from = data[2] + (image * given[0] + first * given[1]) * size_of(dtype);
                    border.fill(from, dtype, given[1], width, y, rows, staged.data(), turned.data(), copy.data());
                    const char* const g = data[1] + (image * grads[0] + first * grads[1] + y * border.columns) * size_of(dtype);
                    turn(g, dtype, grads[1], width, rows * border.columns, staged.data(), own.data());
                    for (int64_t t = 0; t < count; t += kw) {
                        const Places places{own.data(), copy.data() + border.taps[size_t(t)] * width, rows, border.columns * width,
                                            border.step_y * border.pitch * width, border.columns, border.pitch, width, width,
                                            border.step_x, gap, 0, 0, border.columns};
                        sum_products_of_row(places, kw, sums + t * width);
                    }
                }
            }
        });
        add_parts(partial.data(), parts, size);
        const Scratch<> staged_out(made->nbytes);
        T* const to = reinterpret_cast<T*>(made->nbytes ? staged_out.data() : data[0]);
        for (int64_t i = 0; i < blocks.count(); ++i) {
            const int64_t first = blocks.first(i), width = blocks.width(i);
            matmul::transpose(partial.data() + first * count, width, count, width, to + first * count, count);
        }
        if (!std::all_of(to, to + size, [](T sum) { return std::isfinite(sum); })) return direct->run(data, scalars);
        if (made->nbytes) run_copy(*made->copy, data[0], reinterpret_cast<char*>(to));
    });
}

/// Whether rows follow each other, and are enough to be turned over by whole vectors.
bool has_rows(const Operand& image, int64_t most_pixels) {
    const int64_t pixels = image.shape[2] * image.shape[3];
    return image.strides[3] == 1 && image.strides[2] == image.shape[3] && pixels >= L && pixels <= most_pixels;
}

}  // namespace

[[gnu::cold]] KernelPtr conv2d_depthwise_planes(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    const int64_t groups = r.attrs.integer("groups");
    const auto& stride = r.attrs.integers("stride");
    const bool is_depthwise = weight.shape[0] == groups && weight.shape[1] == 1;
    if (weight.dtype == DType::f64 || !is_depthwise || groups < L) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    const int64_t taps = weight.shape[2] * weight.shape[3];
    const auto& gaps = r.attrs.integers("dilation");
    const bool is_strided = stride[0] > 1 || stride[1] > 1;
    const bool has_window(Window(DType::f32, weight.shape[3], of_input ? 1 : stride[1], gaps[1]));
    if (of_input && is_strided && (!has_window || gaps[0] > 1 || stride[0] > 2 || stride[1] > 2)) return nullptr;
    const int64_t most = !has_window ? MOST_PIXELS : taps > 9 || is_strided ? INT64_MAX : MOST_PIXELS_OF_FEW_TAPS;
    if (!has_rows(r.operands[of_weight ? 2 : 0], most) || !has_rows(r.operands[1], most)) return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1) return nullptr;
    std::shared_ptr<const Kernel> direct = conv2d_planes(r);
    note_scratch_instead(0);
    return of_weight ? weight_grad(r, std::move(direct)) : correlation(r, of_input, std::move(direct));
}

}  // namespace norch::nn
