// The gradient of conv2d's input, which conv_transpose2d is too, where that has few channels: what each window adds to the
// elements that it sees by a matrix product, and then the sums of these (col2im).
#include "common/scratch.h"
#include "matmul/gemm_pack.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t MOST_CHANNELS = 4, LEAST_DEPTH = 8;  // with more channels phase by phase, each a product, is quicker
constexpr int64_t WINDOWS = 128;                       // of one row that are multiplied together
constexpr int64_t ITEMS = 16, LEAST_ELEMENTS = 2048, MOST_ELEMENTS = 16384;  // of a plane of the result that are an item

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

/// Along one dim: tap k of window i sees element i * step + k * gap - pad.
struct Dim {
    int64_t taps, step, gap, pad, windows, size;

    int64_t first(int64_t k) const { return k * gap - pad; }
    /// The windows of [from, to) whose tap k sees an element of [begin, end).
    std::pair<int64_t, int64_t> seen_by(int64_t k, int64_t begin, int64_t end, int64_t from, int64_t to) const {
        return {std::max(from, ceil_div(begin - first(k), step)), std::min(to, floor_div(end - 1 - first(k), step) + 1)};
    }
};

template <class S>
class Col2im {
public:
    using T = compute_t<S>;
    explicit Col2im(const Request& r)
        : out_(r.operands[0]), grad_(r.operands[1]), weight_(r.operands[2]), groups_(r.attrs.integer("groups")) {
        const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
        const auto& dilation = r.attrs.integers("dilation");
        const auto dim = [&](int i) {
            return Dim{weight_.shape[size_t(2 + i)], stride[size_t(i)], dilation[size_t(i)], pads[size_t(2 * i)],
                       grad_.shape[size_t(2 + i)], out_.shape[size_t(2 + i)]};
        };
        y_ = dim(0), x_ = dim(1);
        channels_ = out_.shape[1] / groups_, depth_ = grad_.shape[1] / groups_;
        taps_ = y_.taps * x_.taps, height_ = channels_ * taps_;
        const int64_t plane = y_.size * x_.size, planes = out_.shape[0] * groups_;
        const int64_t wanted = std::clamp(plane * planes / ITEMS, LEAST_ELEMENTS, MOST_ELEMENTS);
        columns_ = std::min(x_.size, wanted), rows_ = std::clamp<int64_t>(wanted / columns_, 1, y_.size);
        pitch_ = (columns_ + x_.step - 1) / x_.step, row_ = pitch_ * x_.step;
        down_ = (y_.size + rows_ - 1) / rows_, across_ = (x_.size + columns_ - 1) / columns_;
        items_ = planes * down_ * across_;
        work_ = double(planes * y_.windows * x_.windows * height_) * (double(depth_) / PER_NS<T> + 1);
    }

    double work() const { return work_; }

    void run(const S* grad, const S* weight, S* out) const {
        const Scratch<T> factors(groups_ * height_ * depth_);
        pack(weight, factors.data());
        parallel_for(items_, work_ / double(items_), [&](int64_t begin, int64_t end) {
            const Scratch<T> panel(depth_ * WINDOWS), products(height_ * WINDOWS), sums(channels_ * rows_ * row_);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t across = i % across_, down = i / across_ % down_, plane = i / across_ / down_;
                const int64_t n = plane / groups_, group = plane % groups_;
                const Area area{down * rows_, std::min(y_.size, (down + 1) * rows_), across * columns_,
                                std::min(x_.size, (across + 1) * columns_)};
                std::fill_n(sums.data(), channels_ * rows_ * row_, T(0));
                add_windows(grad + n * grad_.strides[0] + group * depth_ * grad_.strides[1],
                            factors.data() + group * height_ * depth_, area, panel.data(), products.data(), sums.data());
                S* to = out + n * out_.strides[0] + group * channels_ * out_.strides[1];
                for (int64_t c = 0; c < channels_; ++c)
                    for (int64_t y = area.top; y < area.bottom; ++y) bring(sums.data(), c, y, area, to);
            }
        });
    }

private:
    struct Area {  // of a plane of the result
        int64_t top, bottom, left, right;
    };

    /// By group the weights as tiles, a row for each channel and tap.
    void pack(const S* weight, T* factors) const {
        const Scratch<T> rows(depth_ * height_);
        const auto& stride = weight_.strides;
        for (int64_t group = 0; group < groups_; ++group) {
            for (int64_t o = 0; o < depth_; ++o)
                for (int64_t i = 0; i < height_; ++i)
                    rows[o * height_ + i] = load(weight[(group * depth_ + o) * stride[0] + i / taps_ * stride[1] +
                                                        i % taps_ / x_.taps * stride[2] + i % x_.taps * stride[3]]);
            matmul::pack_tiles(rows.data(), height_, depth_, height_, factors + group * height_ * depth_);
        }
    }

    void add_windows(const S* grad, const T* factors, const Area& area, T* panel, T* products, T* sums) const {
        const auto [top, bottom] = touching(y_, area.top, area.bottom);
        const auto [left, right] = touching(x_, area.left, area.right);
        for (int64_t y = top; y < bottom; ++y)
            for (int64_t x = left; x < right; x += WINDOWS) {
                const int64_t count = std::min(WINDOWS, right - x);
                take(grad + y * grad_.strides[2] + x * grad_.strides[3], count, panel);
                multiply(factors, panel, count, products);
                for (int64_t i = 0; i < y_.taps; ++i) {
                    const int64_t row = y * y_.step + y_.first(i) - area.top;
                    if (row < 0 || row >= area.bottom - area.top) continue;
                    for (int64_t j = 0; j < x_.taps; ++j) {
                        const auto [from, to] = x_.seen_by(j, area.left, area.right, x, x + count);
                        const int64_t column = from * x_.step + x_.first(j) - area.left;
                        for (int64_t c = 0; c < channels_; ++c) {
                            const T* added = products + (c * taps_ + i * x_.taps + j) * WINDOWS + from - x;
                            T* sum = sums + (c * rows_ + row) * row_ + column % x_.step * pitch_ + column / x_.step;
                            NORCH_INDEPENDENT
                            for (int64_t k = 0; k < to - from; ++k) sum[k] += added[k];
                        }
                    }
                }
            }
    }

    /// The windows any of whose taps sees an element of [begin, end).
    static std::pair<int64_t, int64_t> touching(const Dim& dim, int64_t begin, int64_t end) {
        return {dim.seen_by(dim.taps - 1, begin, end, 0, dim.windows).first, dim.seen_by(0, begin, end, 0, dim.windows).second};
    }

    /// panel[channel][window], with zeros up to whole vectors.
    void take(const S* grad, int64_t count, T* panel) const {
        const int64_t channel = grad_.strides[1], column = grad_.strides[3];
        if (channel == 1 && column != 1)
            for (int64_t i = 0; i < count; ++i)
                for (int64_t o = 0; o < depth_; ++o) panel[o * WINDOWS + i] = load(grad[i * column + o]);
        else
            for (int64_t o = 0; o < depth_; ++o)
                for (int64_t i = 0; i < count; ++i) panel[o * WINDOWS + i] = load(grad[o * channel + i * column]);
        for (int64_t o = 0; count < WINDOWS && o < depth_; ++o) std::fill(panel + o * WINDOWS + count, panel + (o + 1) * WINDOWS, T(0));
    }

    void multiply(const T* factors, const T* panel, int64_t count, T* products) const {
        constexpr int L = SIMD_WIDTH<T>, WIDTH = matmul::TILE_VECTORS * L;
        alignas(64) static constexpr T zeros[WIDTH] = {};
        for (int64_t j = 0; j < count; j += WIDTH)
            matmul::for_tiles<T>(height_, matmul::tile_kernel<T, L, matmul::TILE_VECTORS>,
                                 [&](int64_t i, matmul::TileKernel<T> kernel, int64_t rows) {
                                     kernel({factors + i * depth_, 1, rows, panel + j, WINDOWS, depth_, zeros, 0},
                                            products + i * WINDOWS + j, WINDOWS);
                                 });
    }

    void bring(const T* sums, int64_t c, int64_t y, const Area& area, S* out) const {
        const T* from = sums + (c * rows_ + y - area.top) * row_;
        const int64_t column = out_.strides[3], step = x_.step;
        S* to = out + c * out_.strides[1] + y * out_.strides[2] + area.left * column;
        for (int64_t phase = 0; phase < step; ++phase, from += pitch_)
            for (int64_t k = 0; k * step + phase < area.right - area.left; ++k) to[(k * step + phase) * column] = store<S>(from[k]);
    }

    Operand out_, grad_, weight_;
    int64_t groups_, channels_, depth_, taps_, height_;  // channels, depth: of a group; height: channels and taps
    Dim y_, x_;
    int64_t rows_, columns_, down_, across_, items_;  // of the result: those of an item, and items
    int64_t pitch_, row_;  // of sums: every x_.step-th element of a row, and all of it
    double work_;
};

}  // namespace

[[gnu::cold]] KernelPtr conv2d_col2im(const Request& r) {
    if (r.op != "conv2d_input_grad") return nullptr;
    const Operand &out = r.operands[0], &grad = r.operands[1], &weight = r.operands[2];
    const int64_t groups = r.attrs.integer("groups");
    if (!is_image_output(out) || out.shape[1] > groups * MOST_CHANNELS || grad.shape[1] < groups * LEAST_DEPTH) return nullptr;
    if (weight.shape[2] * weight.shape[3] < 2) return nullptr;
    for (const Operand& o : r.operands)
        if (!o.numel()) return nullptr;
    return visit_floating(out.dtype, [&]<class S>(Tag<S>) -> KernelPtr {
        const Col2im<S> all(r);
        return make_kernel(all.work(), [all](char* const* data, const Scalar*) {
            const auto at = [data](int i) { return reinterpret_cast<S*>(data[i]); };
            all.run(at(1), at(2), at(0));
        });
    });
}

}  // namespace norch::nn
