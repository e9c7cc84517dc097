// conv2d and the gradient of its input: each is a grid of windows times a matrix of weights. The input's gradient at
// stride s is s * s such grids, one for each remainder of a row's and a column's index.
#include "nn/convolution.h"

#include <algorithm>
#include <span>

#include "common/scratch.h"
#include "matmul/transpose.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/widen.h"

namespace norch::nn {
namespace {

constexpr int64_t AT_ONCE = 96;  // windows: their sums stay in the first cache

/// out[n, t, window] = bias[t] + the sum over source channels and taps of image[...] * weight[...].
template <class S>
class Correlation {
public:
    using T = compute_t<S>;
    Correlation(Pass pass, int64_t groups, int64_t channels)
        : batch_(pass.image.size[0]),
          groups_(groups),
          from_(pass.image.size[1] / groups),
          channels_(channels),
          grid_(pass.grid),
          tiling_(Tiling::make<T>(grid_, from_, 1 << 14, 4 * num_threads() / std::max<int64_t>(batch_ * groups, 1))),
          source_(pass.image, grid_, tiling_, from_),
          target_(pass.target),
          weights_(std::move(pass.weights)),
          blocks_(blocks_of<T>(channels, num_threads() / std::max<int64_t>(batch_ * groups * tiling_.count(), 1))),
          depth_(from_ * int64_t(grid_.taps.size())),
          steps_(size_t(depth_)) {
        source_.tap_offsets(steps_.data());
        for (const Block& block : blocks_) width_ += block.width<T>();
        const int64_t windows = std::max<int64_t>(1, grid_.rows * grid_.columns), few = batch_ / (2 * num_threads());
        together_ = tiling_.count() == 1 ? std::clamp(AT_ONCE * 4 / windows, int64_t(1), std::max<int64_t>(1, few)) : 1;
    }

    /// The packed weights.
    int64_t panels_size() const { return groups_ * width_ * (depth_ + 1); }

    double work() const { return double(batch_ * grid_.rows * grid_.columns) * per_window(); }

    void run(const S* image, const S* weight, const S* bias, S* out) const {
        const int64_t tiles = (batch_ + together_ - 1) / together_ * groups_ * tiling_.count();
        if (!tiles || !channels_) return;
        const int64_t count = int64_t(blocks_.size()), ranges = channel_ranges(tiles, count);
        Scratch<T> panels(panels_size());
        pack(weight, bias, panels.data());
        const double ns = double(together_ * tiling_.rows * tiling_.columns) * per_window() / double(ranges);
        parallel_for(tiles * ranges, ns, [&](int64_t begin, int64_t end) {
            Scratch<T> copy(together_ * source_.scratch()), sums(AT_ONCE * MAX_VECTORS * SIMD_WIDTH<T>);
            Scratch<int64_t> places(together_ * tiling_.rows * tiling_.columns);
            for (int64_t item = begin; item < end; ++item) {
                const int64_t i = item / ranges, range = item % ranges;
                const Tile tile = tiling_.tile(grid_, i % tiling_.count());
                const int64_t group = i / tiling_.count() % groups_, first = i / tiling_.count() / groups_ * together_;
                const int64_t images = std::min(together_, batch_ - first);
                const T* x = nullptr;
                for (int64_t k = 0; k < images; ++k) {
                    const T* from = source_.at(image, first + k, group * from_, tile, copy.data() + k * source_.scratch());
                    int64_t* own = places.data() + k * tile.count();
                    source_.window_offsets(tile, own);
                    if (!k) x = from;
                    for (int64_t w = 0; w < tile.count(); ++w) own[w] += from - x;
                }
                S* to = out + target_.offset + first * target_.image + group * channels_ * target_.channel;
                const std::span blocks(blocks_.data() + count * range / ranges, blocks_.data() + count * (range + 1) / ranges);
                compute(x, places.data(), tile, images, blocks, panels.data() + group * width_ * (depth_ + 1), sums.data(), to);
            }
        });
    }

private:
    double per_window() const { return double(groups_ * width_ * (depth_ + 4)) / double(groups_) / PER_NS<T>; }

    /// Each group's panels, each after the row that its sums start from.
    void pack(const S* weight, const S* bias, T* panels) const {
        const int64_t count = int64_t(blocks_.size());
        parallel_for(groups_ * count, double(width_ / count * depth_), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t group = i / count;
                const Block& block = blocks_[size_t(i % count)];
                const int64_t first = group * channels_ + block.first, width = block.width<T>();
                T* panel = panels + (group * width_ + block.first) * (depth_ + 1);  // only the last block is not full
                if (block.channels < width || !bias) std::fill_n(panel, (block.channels < width ? depth_ + 1 : 1) * width, T(0));
                for (int64_t c = 0; c < block.channels && bias; ++c) panel[c] = load(bias[(first + c) * bias_stride]);
                pack_block(weight + group * weights_.group + block.first * weights_.column, block.channels, panel + width, width);
            }
        });
    }

    void pack_block(const S* from, int64_t channels, T* panel, int64_t width) const {
        const int64_t taps = int64_t(weights_.taps.size());
        if constexpr (std::is_same_v<S, T>) {
            if (weights_.is_row_by_row()) return matmul::transpose(from, weights_.column, channels, depth_, panel, width);
            if (weights_.channel == 1) {
                for (int64_t t = 0; t < taps; ++t)
                    matmul::transpose(from + weights_.taps[size_t(t)], weights_.column, channels, from_, panel + t * width, taps * width);
                return;
            }
        }
        for (int64_t i = 0; i < depth_; ++i) {
            const S* row = from + weights_.row(i);
            T* to = panel + i * width;
            if (weights_.column == 1) {
                NORCH_INDEPENDENT
                for (int64_t c = 0; c < channels; ++c) to[c] = load(row[c]);
            } else {
                for (int64_t c = 0; c < channels; ++c) to[c] = load(row[c * weights_.column]);
            }
        }
    }

    /// A panel stays in the second cache for the windows of all images.
    void compute(const T* x, const int64_t* places, const Tile& tile, int64_t images, std::span<const Block> blocks,
                 const T* panels, T* sums, S* out) const {
        const int64_t all = images * tile.count(), parts = (all + AT_ONCE - 1) / AT_ONCE;
        for (const Block& block : blocks) {
            const int64_t width = block.width<T>();
            const T* const panel = panels + block.first * (depth_ + 1);  // only the last block is not full
            for (int64_t part = 0; part < parts; ++part) {
                const int64_t first = all * part / parts, end = all * (part + 1) / parts;
                multiply_gathered(x, places + first, end - first, steps_.data(), depth_, panel + width, block.vectors, panel,
                                  0, sums);
                for (int64_t w = first, next; w < end; w = next) {
                    const int64_t k = w / tile.count();
                    next = std::min(end, (k + 1) * tile.count());
                    put(sums + (w - first) * width, block, tile, w - k * tile.count(), next - w,
                        out + k * target_.image + block.first * target_.channel);
                }
            }
        }
    }

    /// Writes the sums of some of a tile's windows, window by window, to their channels' planes.
    void put(const T* sums, const Block& block, const Tile& tile, int64_t first, int64_t count, S* out) const {
        const bool is_run = target_.column == 1 && target_.channel != 1 && (tile.rows == 1 || target_.row == tile.columns);
        if constexpr (std::is_same_v<S, T>) {
            if (is_run) {
                matmul::transpose(sums, block.width<T>(), count, block.channels,
                          out + tile.y * target_.row + tile.x + first, target_.channel);
                return;
            }
        }
        if (target_.channel != 1) return put_planes(sums, block, tile, first, count, out);
        for (int64_t w = 0; w < count; ++w) {
            const int64_t y = tile.y + (first + w) / tile.columns, x = tile.x + (first + w) % tile.columns;
            S* to = out + y * target_.row + x * target_.column;
            const T* from = sums + w * block.width<T>();
            narrow_to(from, block.channels, to, 1);
        }
    }

    /// The same where a plane's places are apart: plane by plane, some at a time.
    void put_planes(const T* sums, const Block& block, const Tile& tile, int64_t first, int64_t count, S* out) const {
        constexpr int64_t PLANES = SIMD_WIDTH<T>;
        alignas(64) T turned[PLANES * AT_ONCE];
        for (int64_t begin = 0; begin < block.channels; begin += PLANES) {
            const int64_t planes = std::min(PLANES, block.channels - begin);
            matmul::transpose(sums + begin, block.width<T>(), count, planes, turned, count);
            for (int64_t c = 0; c < planes; ++c) {
                const T* from = turned + c * count;
                S* to = out + (begin + c) * target_.channel;
                for (int64_t w = first, here; w < first + count; w += here, from += here) {
                    const int64_t y = w / tile.columns, x = w % tile.columns;
                    here = std::min(tile.columns - x, first + count - w);
                    narrow_to(from, here, to + (tile.y + y) * target_.row + (tile.x + x) * target_.column, target_.column);
                }
            }
        }
    }

    int64_t batch_, groups_, from_, channels_;
    WindowGrid grid_;
    Tiling tiling_;
    Source<S> source_;
    Target target_;
    Weights weights_;
    std::vector<Block> blocks_;
    int64_t depth_;
    std::vector<int64_t> steps_;
    int64_t width_ = 0, together_ = 1;  // together_: images of one tile each, for which a panel is read once

public:
    int64_t bias_stride = 0;
};

/// Quotient towards minus infinity.
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/// The taps along one dim that contribute to elements whose index has remainder `phase`: (index in the kernel, from where).
std::vector<std::pair<int64_t, int64_t>> contributing(int64_t phase, int64_t k, int64_t stride, int64_t dilation, int64_t pad) {
    std::vector<std::pair<int64_t, int64_t>> out;
    for (int64_t i = 0; i < k; ++i) {
        const int64_t from = phase + pad - i * dilation;
        if (floor_div(from, stride) * stride == from) out.push_back({i, floor_div(from, stride)});
    }
    return out;
}

Passes forward_passes(const Request& r) {
    const Operand &out = r.operands[0], &weight = r.operands[2];
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
    const auto& dilation = r.attrs.integers("dilation");
    Passes passes{{}, r.attrs.integer("groups"), 0};
    passes.channels = out.shape[1] / passes.groups;
    WindowGrid grid(out.shape[2], out.shape[3], stride[0], stride[1],
                    taps_of(weight.shape[2], weight.shape[3], dilation[0], dilation[1], pads[0], pads[2]));
    Weights weights;
    for (const Tap& tap : grid.taps) weights.taps.push_back(tap.i * weight.strides[2] + tap.j * weight.strides[3]);
    weights.channel = weight.strides[1];
    weights.group = passes.channels * weight.strides[0];
    weights.column = weight.strides[0];
    const auto& to = out.strides;
    passes.all.push_back({Image(r.operands[1]), std::move(grid), {0, to[0], to[1], to[2], to[3]}, std::move(weights)});
    return passes;
}

Passes input_grad_passes(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1], &weight = r.operands[2];
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
    const auto& dilation = r.attrs.integers("dilation");
    Passes passes{{}, r.attrs.integer("groups"), 0};
    passes.channels = out.shape[1] / passes.groups;
    const int64_t o = grad.shape[1] / passes.groups, h = out.shape[2], w = out.shape[3];
    const auto& to = out.strides;
    for (int64_t a = 0; a < std::min(stride[0], h); ++a) {
        for (int64_t b = 0; b < std::min(stride[1], w); ++b) {
            std::vector<Tap> taps;
            for (auto [i, y] : contributing(a, weight.shape[2], stride[0], dilation[0], pads[0]))
                for (auto [j, x] : contributing(b, weight.shape[3], stride[1], dilation[1], pads[2])) taps.push_back({i, j, y, x});
            passes.is_covered &= !taps.empty();
            if (taps.empty()) continue;
            WindowGrid grid((h - a + stride[0] - 1) / stride[0], (w - b + stride[1] - 1) / stride[1], 1, 1, taps);
            Weights weights;
            for (const Tap& tap : taps) weights.taps.push_back(tap.i * weight.strides[2] + tap.j * weight.strides[3]);
            weights.channel = weight.strides[0];
            weights.group = o * weight.strides[0];
            weights.column = weight.strides[1];
            passes.all.push_back({Image(grad), std::move(grid),
                                  {a * to[2] + b * to[3], to[0], to[1], stride[0] * to[2], stride[1] * to[3]}, std::move(weights)});
        }
    }
    return passes;
}

template <class S>
[[gnu::cold]] KernelPtr direct(const Request& r, const Passes& given) {
    std::vector<Correlation<S>> passes;
    double work = given.is_covered ? 0 : double(r.operands[0].numel());
    int64_t panels = 0;
    const bool has_bias = r.operands.size() == 4;
    for (const Pass& pass : given.all) {
        passes.emplace_back(pass, given.groups, given.channels);
        if (has_bias) passes.back().bias_stride = r.operands[3].strides[0];
        work += passes.back().work();
        panels = std::max(panels, passes.back().panels_size());
    }
    note_scratch(panels * int64_t(sizeof(compute_t<S>)));
    const int64_t zeros = given.is_covered ? 0 : r.operands[0].numel();
    return make_kernel(work, [passes = std::move(passes), has_bias, zeros](char* const* data, const Scalar*) {
        auto at = [data](int i) { return reinterpret_cast<S*>(data[i]); };
        std::fill_n(at(0), zeros, store<S>(0));
        for (const auto& pass : passes) pass.run(at(1), at(2), has_bias ? at(3) : nullptr, at(0));
    });
}

[[gnu::cold]] KernelPtr convolution(const Request& r) {
    for (const Operand& operand : r.operands)
        if (operand.dtype != r.operands[0].dtype) return nullptr;
    if (KernelPtr found = conv2d_special(r)) return found;
    if (!is_image_output(r.operands[0])) return nullptr;
    const Passes passes = r.op == "conv2d" ? forward_passes(r) : input_grad_passes(r);
    KernelPtr found = visit_floating(r.operands[0].dtype, [&]<class S>(Tag<S>) { return direct<S>(r, passes); });
    return conv2d_winograd(r, conv2d_in_blocks(r, passes, std::move(found)));
}

}  // namespace

void add_convolution(Registry& registry) {
    registry["conv2d"] = convolution;
    registry["conv2d_input_grad"] = convolution;
    registry["conv2d_weight_grad"] = conv2d_weight_grad;
}

}  // namespace norch::nn
