// What the kernels of grid_sample share: what they are asked for, and places brought inside.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/kernel.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

constexpr int BLOCK = 256;  // places whose neighbours are found at a time

/// What grid_sample2d or grid_sample2d_bicubic is asked for. Strides are of (n, c, h, w), and of the grid (n, h, w, 2), in
/// elements.
struct Sampling {
    int64_t images, channels, h, w, rows, columns;
    bool is_nearest, align, is_zeros, is_reflected;

    Sampling(const Operand& grid, const Operand& image, const Attrs& attrs)
        : images(image.shape[0]), channels(image.shape[1]), h(image.shape[2]), w(image.shape[3]), rows(grid.shape[1]),
          columns(grid.shape[2]), is_nearest(attrs.text("mode") == "nearest"), align(attrs.flag("align_corners")),
          is_zeros(attrs.text("padding_mode") == "zeros"), is_reflected(attrs.text("padding_mode") == "reflection") {}
    int64_t places() const { return rows * columns; }
    int64_t blocks() const { return (places() + BLOCK - 1) / BLOCK; }
};

/// The grid's numbers for a block of image n, and how many: along the columns, and along the rows.
template <class T>
int read_places(const Sampling& s, const Operand& grid, const T* numbers, int64_t n, int64_t block, T* columns, T* rows) {
    const int64_t first = block * BLOCK;
    const int count = int(std::min<int64_t>(BLOCK, s.places() - first));
    numbers += n * grid.strides[0];
    if (grid.strides[3] == 1 && grid.strides[2] == 2 && grid.strides[1] == 2 * s.columns) {
        numbers += 2 * first;
        NORCH_INDEPENDENT
        for (int p = 0; p < count; ++p) columns[p] = numbers[2 * p], rows[p] = numbers[2 * p + 1];
    } else {
        const T* line = numbers + first / s.columns * grid.strides[1];
        int64_t column = first % s.columns;
        for (int p = 0; p < count; ++p) {
            const T* const from = line + column * grid.strides[2];
            columns[p] = from[0], rows[p] = from[grid.strides[3]];
            if (++column == s.columns) column = 0, line += grid.strides[1];
        }
    }
    return count;
}

/// A place brought inside by reflection, and `slope`, what it changes by with the grid's number.
template <class T>
T reflected(const Sampling& s, T x, int64_t size, T& slope) {
    const T low = s.align ? T(0) : T(-0.5), span = T(s.align ? size - 1 : size);
    if (span == 0) {
        slope = 0;
        return x * 0;
    }
    T away = x - low;
    if (away < 0) away = -away, slope = -slope;
    const T rest = std::fmod(away, span), turns = std::floor(away / span);
    const bool odd = std::fmod(turns, T(2)) != 0;
    if (odd) slope = -slope;
    return (odd ? span - rest : rest) + low;
}

/// Stands for a place outside: adding to it what is within a plane stays below 0.
constexpr int32_t OUTSIDE = INT32_MIN / 2;

/// Where the gradients of a block's places lie in a plane.
inline void find_grads(const Sampling& s, const Operand& grad, int64_t block, int count, int64_t* at) {
    int64_t row = block * BLOCK / s.columns, column = block * BLOCK % s.columns;
    for (int p = 0; p < count; ++p) {
        at[p] = row * grad.strides[2] + column * grad.strides[3];
        if (++column == s.columns) column = 0, ++row;
    }
}

/// `image`: which operand the images are. Places in a plane are numbers below -OUTSIDE.
template <class F>
KernelPtr floating(const Request& r, size_t image, const F& make) {
    const Operand &out = r.operands[0], &x = r.operands[image];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype) return nullptr;
    if (!out.is_contiguous() || x.shape[2] * x.strides[2] + x.shape[3] * x.strides[3] > -OUTSIDE) return nullptr;
    if (out.dtype == DType::f32) return make(float());
    return out.dtype == DType::f64 ? make(double()) : nullptr;
}

}  // namespace
}  // namespace norch::nn
