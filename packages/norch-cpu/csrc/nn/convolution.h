// What convolution and its gradients share: images behind windows, cut into tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/kernel.h"
#include "common/image_layout.h"
#include "matmul/tiles.h"
#include "nn/panel.h"
#include "runtime/parallel.h"

namespace norch::nn {

/// A (n, c, h, w) operand. Strides count elements.
struct Image {
    explicit Image(const Operand& o)
        : size(o.shape), stride(o.strides), is_last(o.shape[1] > 1 && is_channels_last(o)) {}
    std::vector<int64_t> size, stride;
    bool is_last;  // whether the channels lie next to each other
};

/// An element of a window, and where it is from the window's place in the image; outside the image it is 0.
struct Tap {
    int64_t i, j;  // in the weight
    int64_t y, x;
};

/// rows * columns windows, `step` apart, whose elements are `taps` (there is at least one).
struct WindowGrid {
    WindowGrid(int64_t rows, int64_t columns, int64_t step_y, int64_t step_x, std::vector<Tap> taps);
    int64_t rows, columns, step_y, step_x;
    std::vector<Tap> taps;
    int64_t top, left;       // of the first taps
    int64_t extent_y, extent_x;  // from the first tap to the last
};

/// Windows that are computed together.
struct Tile {
    int64_t y, x, rows, columns;
    int64_t count() const { return rows * columns; }
};

/// How a grid is cut into tiles: whole rows, or parts of one row.
struct Tiling {
    /// Tiles whose part of an image, `channels` channels of T, stays in the second cache, and that have about `most`
    /// windows at most; at least `parts` of them if they are not tiny then.
    template <class T>
    static Tiling make(const WindowGrid& grid, int64_t channels, int64_t most, int64_t parts);
    Tile tile(const WindowGrid& grid, int64_t index) const;
    int64_t count() const { return down * across; }
    int64_t rows, columns;  // of a tile
    int64_t down, across;   // tiles
};

/// Into how many ranges, at most `most`, the channels of a result are cut where there are fewer tiles than threads. Each
/// range prepares a tile's part of the image again.
inline int64_t channel_ranges(int64_t tiles, int64_t most) {
    return std::clamp<int64_t>(num_threads() / tiles, 1, std::max<int64_t>(most, 1));
}

/// The part of an image that a tile's windows see, as T (float or double): in place, or as a copy with zeros around it.
template <class S>
class Source {
public:
    using T = compute_t<S>;
    Source(const Image& image, const WindowGrid& grid, const Tiling& tiling, int64_t channels);
    /// Elements of scratch memory that `at` wants.
    int64_t scratch() const { return is_direct_ ? 0 : (image_.is_last ? column_ : channels_) * height_ * width_; }
    /// The first element of `tile` of image n, channels from `channel` on. Offsets count from it.
    const T* at(const S* data, int64_t n, int64_t channel, const Tile& tile, T* scratch) const;
    /// Offsets of channels * taps, and of a tile's windows.
    void tap_offsets(int64_t* out) const;
    void window_offsets(const Tile& tile, int64_t* out) const;

private:
    Image image_;
    WindowGrid grid_;
    int64_t channels_;
    bool is_direct_;
    int64_t height_, width_;  // of a copy
    int64_t plane_, row_, column_;  // from a channel, row and column to the next

    void copy_planes(const S* from, int64_t first, int64_t last, int64_t before, int64_t end, T* to) const;
    void copy_pixels(const S* from, int64_t first, int64_t last, int64_t before, int64_t end, T* to) const;
};

/// Where results go: channel, row and column strides in elements.
struct Target {
    int64_t offset, image, channel, row, column;
};

/// Weights as a matrix: one row for each source channel and tap, one column for each target channel.
struct Weights {
    std::vector<int64_t> taps;  // where each lies
    int64_t channel, group, column;  // strides

    int64_t row(int64_t i) const { return i / int64_t(taps.size()) * channel + taps[size_t(i) % taps.size()]; }
    /// Whether rows lie next to each other.
    bool is_row_by_row() const {
        for (size_t t = 0; t < taps.size(); ++t)
            if (taps[t] != int64_t(t)) return false;
        return channel == int64_t(taps.size());
    }
};

/// A grid of windows times a matrix of weights.
struct Pass {
    Image image;
    WindowGrid grid;
    Target target;
    Weights weights;
};

/// conv2d is one; the gradient of its input at stride s is s * s of them, or less, for elements that no window sees are 0.
struct Passes {
    std::vector<Pass> all;
    int64_t groups, channels;  // channels: of a group's results
    bool is_covered = true;
};

/// The taps of a kernel of kh * kw elements, in their order.
std::vector<Tap> taps_of(int64_t kh, int64_t kw, int64_t dilation_y, int64_t dilation_x, int64_t top, int64_t left);

/// Multiplications that one core does in a nanosecond.
template <class T>
constexpr double PER_NS = double(SIMD_WIDTH<T>) * 4;

KernelPtr conv2d_weight_grad(const Request& request);  // convolution_weight.cpp

/// conv2d and its gradients with one channel a group where the images are channels-last, else null.
KernelPtr conv2d_depthwise(const Request& request);  // convolution_depthwise.cpp

/// The same where channels are planes, of small images or many taps.
KernelPtr conv2d_depthwise_planes(const Request& request);  // convolution_depthwise_planes.cpp

/// conv2d and the gradient of its input to at least a vector of channels a group.
KernelPtr conv2d_groups(const Request& request);  // convolution_groups.cpp

/// conv2d and its gradients where channels are planes, few of them a group.
KernelPtr conv2d_planes(const Request& request);  // convolution_planes.cpp

/// The same with one tap and stride 1, where one matrix product does it.
KernelPtr conv2d_pointwise(const Request& request);  // convolution_pointwise.cpp

/// conv2d and its gradients where there are few windows, or with one tap few in each image.
KernelPtr conv2d_of_few_windows(const Request& request);  // convolution_few.cpp

/// conv2d of 3 x 3 with stride 1, and its gradients, in fewer multiplications where that is worth it; `direct`, which does the
/// same, is taken where results are not finite.
KernelPtr conv2d_winograd(const Request& request, KernelPtr direct);         // convolution_winograd.cpp
KernelPtr conv2d_winograd_weight(const Request& request, KernelPtr direct);  // convolution_winograd_weight.cpp

/// What `passes` say where products of blocks (matmul/tiles.h) are faster than `direct`, else that. The gradient of the weight
/// likewise.
KernelPtr conv2d_in_blocks(const Request& request, const Passes& passes, KernelPtr direct);      // convolution_blocks.cpp
KernelPtr conv2d_weight_grad_in_blocks(const Request& request, const WindowGrid& grid, KernelPtr direct);
/// The parts of products of blocks, where they are faster: of an image's channels, `together` of which are computed at a time, by
/// `lines`.
std::optional<matmul::Parts> block_parts(DType dtype, int64_t channels, int64_t together, int64_t lines);

/// The first of these that there is.
[[gnu::cold]] inline KernelPtr conv2d_special(const Request& request) {
    for (const auto make : {conv2d_of_few_windows, conv2d_pointwise, conv2d_depthwise, conv2d_depthwise_planes, conv2d_groups,
                            conv2d_planes})
        if (KernelPtr found = make(request)) return found;
    return nullptr;
}

}  // namespace norch::nn
