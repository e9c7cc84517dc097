#include "nn/convolution.h"

#include <algorithm>

namespace norch::nn {
namespace {

constexpr int64_t TILE_BYTES = 256 << 10;
constexpr int64_t MIN_WINDOWS = 64;
// Windows jump from plane to plane, which is slow outside the caches; a copy is read row by row.
constexpr int64_t IN_PLACE_BYTES = 1 << 20;
// Pixels whose distance is a multiple of this fall on few lines of the cache.
constexpr int64_t CLASH_BYTES = 256, APART_BYTES = 64;

template <class S, class T>
inline void copy_row(const S* from, int64_t step, int64_t n, T* to) {
    constexpr int64_t few = 8;
    if (step != 1) {
        for (int64_t i = 0; i < n; ++i) to[i] = load(from[i * step]);
    } else if (n < few) {
        for (int64_t i = 0; i < n; ++i) to[i] = load(from[i]);
    } else {  // the last step goes back over what is done, so that no loop is left for the rest
        for (int64_t i = 0; i < n; i += few) {
            const int64_t at = std::min(i, n - few);
            for (int64_t k = 0; k < few; ++k) to[at + k] = load(from[at + k]);
        }
    }
}

int64_t cut(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace

std::vector<Tap> taps_of(int64_t kh, int64_t kw, int64_t dilation_y, int64_t dilation_x, int64_t top, int64_t left) {
    std::vector<Tap> out;
    for (int64_t i = 0; i < kh; ++i)
        for (int64_t j = 0; j < kw; ++j) out.push_back({i, j, i * dilation_y - top, j * dilation_x - left});
    return out;
}

WindowGrid::WindowGrid(int64_t rows, int64_t columns, int64_t step_y, int64_t step_x, std::vector<Tap> given)
    : rows(rows), columns(columns), step_y(step_y), step_x(step_x), taps(std::move(given)) {
    top = taps[0].y, left = taps[0].x;
    for (const Tap& tap : taps) top = std::min(top, tap.y), left = std::min(left, tap.x);
    extent_y = extent_x = 1;
    for (const Tap& tap : taps) {
        extent_y = std::max(extent_y, tap.y - top + 1);
        extent_x = std::max(extent_x, tap.x - left + 1);
    }
}

template <class T>
Tiling Tiling::make(const WindowGrid& grid, int64_t channels, int64_t most, int64_t parts) {
    Tiling out;
    const int64_t columns = std::max<int64_t>(grid.columns, 1), rows = std::max<int64_t>(grid.rows, 1);
    const int64_t element = std::max<int64_t>(channels, 1) * int64_t(sizeof(T));
    // Rows of windows, as many as fit; if not even one fits, part of it.
    const int64_t line = element * ((columns - 1) * grid.step_x + grid.extent_x);
    const int64_t fitting = std::min((TILE_BYTES / line - grid.extent_y) / grid.step_y + 1, most / columns);
    const int64_t enough = cut(MIN_WINDOWS, columns);
    out.rows = std::min(rows, std::max({std::min(fitting, rows / std::max<int64_t>(parts, 1)), enough, int64_t(1)}));
    out.columns = columns;
    if (out.rows == 1 && columns > MIN_WINDOWS) {
        const int64_t thin = (TILE_BYTES / (element * grid.extent_y) - grid.extent_x) / grid.step_x + 1;
        const int64_t wanted = std::min({thin, most, cut(columns, std::max<int64_t>(parts / rows, 1))});
        out.columns = std::min(columns, std::max(wanted, MIN_WINDOWS));
    }
    out.down = grid.rows ? cut(grid.rows, out.rows) : 0;
    out.across = grid.columns ? cut(grid.columns, out.columns) : 0;
    return out;
}

Tile Tiling::tile(const WindowGrid& grid, int64_t index) const {
    const int64_t y = index / across * rows, x = index % across * columns;
    return {y, x, std::min(rows, grid.rows - y), std::min(columns, grid.columns - x)};
}

template <class S>
Source<S>::Source(const Image& image, const WindowGrid& grid, const Tiling& tiling, int64_t channels)
    : image_(image), grid_(grid), channels_(channels) {
    const int64_t bottom = grid.top + (grid.rows - 1) * grid.step_y + grid.extent_y;
    const int64_t right = grid.left + (grid.columns - 1) * grid.step_x + grid.extent_x;
    is_direct_ = std::is_same_v<S, T> && grid.top >= 0 && grid.left >= 0 && bottom <= image.size[2] &&
                 right <= image.size[3];
    is_direct_ = is_direct_ && (image.is_last ||
                 image.size[0] * image.size[1] * image.size[2] * image.size[3] * int64_t(sizeof(S)) <= IN_PLACE_BYTES);
    height_ = (tiling.rows - 1) * grid.step_y + grid.extent_y;
    width_ = (tiling.columns - 1) * grid.step_x + grid.extent_x;
    const int64_t clash = CLASH_BYTES / int64_t(sizeof(T)), apart = channels % clash ? channels : channels + APART_BYTES / int64_t(sizeof(T));
    plane_ = is_direct_ ? image.stride[1] : image.is_last ? 1 : height_ * width_;
    column_ = is_direct_ ? image.stride[3] : image.is_last ? apart : 1;
    row_ = is_direct_ ? image.stride[2] : width_ * column_;
}

template <class S>
const compute_t<S>* Source<S>::at(const S* data, int64_t n, int64_t channel, const Tile& tile, T* scratch) const {
    const auto& stride = image_.stride;
    const int64_t y = tile.y * grid_.step_y + grid_.top, x = tile.x * grid_.step_x + grid_.left;
    data += n * stride[0] + channel * stride[1];
    if constexpr (std::is_same_v<S, T>) {
        if (is_direct_) return data + y * stride[2] + x * stride[3];
    }
    const int64_t height = (tile.rows - 1) * grid_.step_y + grid_.extent_y;
    const int64_t before = std::clamp<int64_t>(-x, 0, width_);
    const int64_t end = std::clamp(image_.size[3] - x, before, width_);
    const int64_t first = std::clamp<int64_t>(-y, 0, height), last = std::clamp(image_.size[2] - y, first, height);
    std::fill_n(scratch, this->scratch(), T(0));
    data += y * stride[2] + x * stride[3];
    if (image_.is_last)
        copy_pixels(data, first, last, before, end, scratch);
    else
        copy_planes(data, first, last, before, end, scratch);
    return scratch;
}

/// Rows `first` to `last`, columns `before` to `end`, of all channels.
template <class S>
void Source<S>::copy_planes(const S* from, int64_t first, int64_t last, int64_t before, int64_t end, T* to) const {
    const auto& stride = image_.stride;
    for (int64_t c = 0; c < channels_; ++c)
        for (int64_t r = first; r < last; ++r)
            copy_row(from + c * stride[1] + r * stride[2] + before * stride[3], stride[3], end - before,
                     to + c * plane_ + r * row_ + before);
}

template <class S>
void Source<S>::copy_pixels(const S* from, int64_t first, int64_t last, int64_t before, int64_t end, T* to) const {
    const auto& stride = image_.stride;
    for (int64_t r = first; r < last; ++r) {
        if (stride[3] == channels_ && column_ == channels_) {
            copy_row(from + r * stride[2] + before * channels_, 1, (end - before) * channels_,
                     to + r * row_ + before * channels_);
            continue;
        }
        for (int64_t i = before; i < end; ++i)
            copy_row(from + r * stride[2] + i * stride[3], 1, channels_, to + r * row_ + i * column_);
    }
}

template <class S>
void Source<S>::tap_offsets(int64_t* out) const {
    for (int64_t c = 0; c < channels_; ++c)
        for (const Tap& tap : grid_.taps)
            *out++ = c * plane_ + (tap.y - grid_.top) * row_ + (tap.x - grid_.left) * column_;
}

template <class S>
void Source<S>::window_offsets(const Tile& tile, int64_t* out) const {
    for (int64_t y = 0; y < tile.rows; ++y)
        for (int64_t x = 0; x < tile.columns; ++x) *out++ = y * grid_.step_y * row_ + x * grid_.step_x * column_;
}

template Tiling Tiling::make<float>(const WindowGrid&, int64_t, int64_t, int64_t);
template Tiling Tiling::make<uint16_t>(const WindowGrid&, int64_t, int64_t, int64_t);
template Tiling Tiling::make<half>(const WindowGrid&, int64_t, int64_t, int64_t);
template Tiling Tiling::make<bfloat16>(const WindowGrid&, int64_t, int64_t, int64_t);
template Tiling Tiling::make<double>(const WindowGrid&, int64_t, int64_t, int64_t);
template class Source<float>;
template class Source<double>;
template class Source<half>;
template class Source<bfloat16>;

}  // namespace norch::nn
