// What convolutions of 3 x 3 by Winograd's F(2x2, 3x3) share: images in tiles of 2 x 2, of which each sees 4 x 4 elements.
// Both are taken to 16 points, where a convolution is one matrix product each: 16 multiplications do what 36 do otherwise.
#pragma once

#include <cstdint>

#include "matmul/gemm_tile.h"
#include "nn/convolution.h"

namespace norch::nn::winograd {

constexpr int64_t POINTS = 16;
constexpr int64_t LANES = SIMD_WIDTH<float>;
constexpr int64_t PANEL = matmul::TILE_VECTORS * LANES;  // channels that are computed together

inline int64_t in_panels(int64_t channels) { return (channels + PANEL - 1) / PANEL; }
/// Elements from a pixel to the next: whole vectors, and never so many that pixels clash in the cache.
inline int64_t pitch_of(int64_t channels) { return ((channels + LANES - 1) / LANES | 1) * LANES; }

/// The tiles of a batch of images, row by row; the last of a row or column may hang over.
struct Tiles {
    int64_t batch, height, width;
    int64_t down() const { return (height + 1) / 2; }
    int64_t across() const { return (width + 1) / 2; }
    int64_t rows() const { return batch * down(); }
    int64_t count() const { return rows() * across(); }
};

/// Rows of tiles of one image.
struct Strip {
    int64_t image, top, rows;  // rows of tiles
    int64_t before;            // those of the work before it
};

/// Calls f(strip) for the images that rows [begin, end) of tiles belong to.
template <class F>
void for_strips(const Tiles& tiles, int64_t begin, int64_t end, const F& f) {
    for (int64_t row = begin, here; row < end; row += here) {
        const int64_t top = row % tiles.down();
        here = std::min(end - row, tiles.down() - top);
        f(Strip{row / tiles.down(), top, here, row - begin});
    }
}

/// Pixels of an image, channels next to each other: out[y][x][c], zeros outside the image.
struct Pixels {
    int64_t rows, columns, pitch;
    int64_t size() const { return rows * columns * pitch; }
};
/// `image` is the image's first element; the first pixel is (y, x) there. `scratch` has room for as much again.
void take_pixels(const float* image, const Image& about, int64_t y, int64_t x, const Pixels& pixels, float* out, float* scratch);

/// points[point * point_stride + tile * pitch + c] of `rows` rows of tiles, from pixels that begin at the first tile's
/// window.
void points_of_windows(const float* pixels, const Pixels& about, int64_t rows, int64_t across, float* points,
                       int64_t point_stride);

/// Whether the channels of pixels, or pixels of rows, lie next to each other.
inline bool has_pixels(const Operand& image) { return image.strides[3] == 1 || image.strides[1] == 1; }

/// What a layer that is worth it has: float32, 3 x 3 taps, stride and dilation 1, one group, channels and tiles enough.
bool is_fit(const Request& r, const Operand& weight, const Operand& windows, int64_t from, int64_t to);

}  // namespace norch::nn::winograd
