// What the kernels of grid_sample share: what they are asked for, and places brought inside.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/kernel.h"
#include "runtime/parallel.h"
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

/// The kernel that calls body(table, channel, results) for the places of each block in each channel. Operands: results,
/// images, grid. ns: what a place takes, and what each channel of it.
template <class T, class Table, class Body>
[[gnu::cold]] KernelPtr sample_kernel(const Request& r, double place_ns, double channel_ns, const Body& body) {
    const Operand image = r.operands[1], grid = r.operands[2];
    const Sampling s(grid, image, r.attrs);
    const double ns = BLOCK * (place_ns + channel_ns * double(s.channels));
    return parallel_kernel(s.images * s.blocks(), ns, [=](char* const* data, int64_t begin, int64_t end) {
        Table table;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t n = i / s.blocks(), block = i % s.blocks();
            table.template fill<false>(s, image, grid, reinterpret_cast<const T*>(data[2]), n, block);
            for (int64_t c = 0; c < s.channels; ++c)
                body(table, reinterpret_cast<const T*>(data[1]) + n * image.strides[0] + c * image.strides[1],
                     reinterpret_cast<T*>(data[0]) + (n * s.channels + c) * s.places() + block * BLOCK);
        }
    });
}

/// The one that calls body(table, p, the gradient there, gradients of a channel) place by place. Operands: gradients of the
/// images, gradients of the results, grid.
template <class T, class Table, class Body>
[[gnu::cold]] KernelPtr input_grad_kernel(const Request& r, double place_ns, double channel_ns, const Body& body) {
    constexpr int64_t GROUP = 16;  // of channels, to which one thread adds in the order of the places
    const Operand image = r.operands[0], grad = r.operands[1], grid = r.operands[2];
    const Sampling s(grid, image, r.attrs);
    const int64_t groups = (s.channels + GROUP - 1) / GROUP;
    const double ns = double(s.places()) * (place_ns + channel_ns * double(std::min(s.channels, GROUP)));
    return parallel_kernel(s.images * groups, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Table table;
        int64_t from[BLOCK];
        for (int64_t i = begin; i < end; ++i) {
            const int64_t n = i / groups, first = i % groups * GROUP, last = std::min(first + GROUP, s.channels);
            T* const planes = reinterpret_cast<T*>(data[0]) + n * image.strides[0];
            std::fill(planes + first * image.strides[1], planes + last * image.strides[1], T(0));
            for (int64_t block = 0; block < s.blocks(); ++block) {
                table.template fill<false>(s, image, grid, reinterpret_cast<const T*>(data[2]), n, block);
                find_grads(s, grad, block, table.count, from);
                for (int64_t c = first; c < last; ++c) {
                    const T* const g = reinterpret_cast<const T*>(data[1]) + n * grad.strides[0] + c * grad.strides[1];
                    T* const out = planes + c * image.strides[1];
                    for (int p = 0; p < table.count; ++p) body(table, p, g[from[p]], out);
                }
            }
        }
    });
}

/// The one that has `Sums` add up over the channels, by add(table, channel, gradients, where they lie), and then gives
/// the gradients of each place's two numbers by bring(table, results). Operands: results, gradients, images, grid.
template <class T, class Table, class Sums>
[[gnu::cold]] KernelPtr grid_grad_kernel(const Request& r, double place_ns, double channel_ns) {
    const Operand grad = r.operands[1], image = r.operands[2], grid = r.operands[3];
    const Sampling s(grid, image, r.attrs);
    const double ns = BLOCK * (place_ns + channel_ns * double(s.channels));
    return parallel_kernel(s.images * s.blocks(), ns, [=](char* const* data, int64_t begin, int64_t end) {
        Table table;
        int64_t from[BLOCK];
        for (int64_t i = begin; i < end; ++i) {
            const int64_t n = i / s.blocks(), block = i % s.blocks();
            table.template fill<true>(s, image, grid, reinterpret_cast<const T*>(data[3]), n, block);
            find_grads(s, grad, block, table.count, from);
            Sums sums;
            for (int64_t c = 0; c < s.channels; ++c)
                sums.add(table, reinterpret_cast<const T*>(data[2]) + n * image.strides[0] + c * image.strides[1],
                         reinterpret_cast<const T*>(data[1]) + n * grad.strides[0] + c * grad.strides[1], from);
            sums.bring(table, reinterpret_cast<T*>(data[0]) + (n * s.places() + block * BLOCK) * 2);
        }
    });
}

/// `image`: which operand the images are. Places in a plane are numbers below -OUTSIDE.
template <class F>
[[gnu::cold]] KernelPtr floating(const Request& r, size_t image, const F& make) {
    const Operand &out = r.operands[0], &x = r.operands[image];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype) return nullptr;
    if (!out.is_contiguous() || x.shape[2] * x.strides[2] + x.shape[3] * x.strides[3] > -OUTSIDE) return nullptr;
    if (out.dtype == DType::f32) return make(float());
    return out.dtype == DType::f64 ? make(double()) : nullptr;
}

}  // namespace
}  // namespace norch::nn
