// What convolution of images whose channels are planes, with few channels in each group, shares with its gradients. A plane is copied
// with zeros around it; then an element of the result, counted in rows of that copy's length, sees its taps at distances
// that are the same for all, so that vectors of them go over the ends of rows. Of a stride s every s-th row and column of
// the copy are a plane of their own.
#pragma once

#include <algorithm>
#include <vector>

#include "nn/convolution.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn::planes {

/// Elements of an operand: T, or 16-bit floats, whose planes become float32 as a whole.
struct Numbers {
    char* data;
    int64_t size;
    Convert convert;

    Numbers(char* data, DType dtype) : data(data), size(size_of(dtype)), convert(conversion_of(dtype)) {}
    Plane plane(int64_t i, int64_t row, int64_t column) const { return {data + i * size, row * size, column * size}; }
};

template <class T>
Plane plane_of(T* data, int64_t row) {
    return {reinterpret_cast<char*>(data), row * int64_t(sizeof(T)), sizeof(T)};
}

/// A plane's copy, and how it is filled.
struct Copy {
    int64_t phase_rows, pitch;  // of one phase
    int64_t step_y, step_x, top, left;

    int64_t numel() const { return step_y * step_x * phase_rows * pitch; }

    /// The elements that a plane of h x w has; those around them are 0 already.
    template <class T>
    __attribute__((noinline)) void fill(const Numbers& x, const Plane& from, int64_t h, int64_t w, T* to) const {
        for (int64_t y = 0; y < step_y; ++y)
            for (int64_t z = 0; z < step_x; ++z, to += phase_rows * pitch) {
                const int64_t row = first(step_y, y - top), column = first(step_x, z - left);
                const int64_t rows = std::min(phase_rows, end(step_y, y - top, h)) - row;
                const int64_t columns = std::min(pitch, end(step_x, z - left, w)) - column;
                if (rows <= 0 || columns <= 0) continue;
                char* const begin = from.data + (row * step_y + y - top) * from.row + (column * step_x + z - left) * from.column;
                load_tile(plane_of(to + row * pitch + column, pitch), {begin, step_y * from.row, step_x * from.column}, rows, columns,
                          x.size, x.convert);
            }
    }

private:
    /// The first k >= 0, and the first after the last, for which k * step + shift is from 0 up to `length`.
    static int64_t first(int64_t step, int64_t shift) { return std::max<int64_t>(0, (step - 1 - shift) / step); }
    static int64_t end(int64_t step, int64_t shift, int64_t length) { return (length - 1 - shift + step) / step; }
};

/// Results that see the same taps: those of a plane, or of one phase of it.
struct Pass {
    int64_t rows, columns;
    int64_t out, out_row, out_column;       // in elements
    std::vector<int64_t> distance, weight;  // of each channel's taps: in the copies, and in the weight

    void add(int64_t in_copy, int64_t in_weight) {
        distance.push_back(in_copy);
        weight.push_back(in_weight);
    }
};

/// Elements after the last that are read or written: vectors are whole.
template <class T>
constexpr int64_t SLACK = 2 * SIMD_WIDTH<T>;

/// Channels of a result that are computed together: most vectors of taps lie across two cache lines, and loading them is what
/// takes time. Few convolve float64.
template <class T>
constexpr int TOGETHER = sizeof(T) == sizeof(float) ? 2 : 1;

/// A grouped correlation: of each group's planes of a source come the planes of a result.
struct Planes {
    Copy copy;
    std::vector<Pass> passes;
    int64_t batch, groups, from, to;           // channels of a group
    int64_t h, w;                              // of a plane of the source
    std::vector<int64_t> source, result;       // strides
    int64_t weight_group, weight_to;   // strides

    int64_t source_size() const { return from * copy.numel(); }
    int64_t result_size() const {
        int64_t most = 0;
        for (const Pass& pass : passes) most = std::max(most, pass.rows * copy.pitch);
        return most;
    }
    double group_ns() const {
        double products = 0;
        for (const Pass& pass : passes) products += double(pass.rows * copy.pitch * to) * double(pass.distance.size());
        return products / 16 + double(h * w * from) / 8 + 100;
    }

    template <class T>
    void fill(const Numbers& x, int64_t n, int64_t group, T* to) const {
        for (int64_t c = 0; c < from; ++c, to += copy.numel())
            copy.fill(x, x.plane(n * source[0] + (group * from + c) * source[1], source[2], source[3]), h, w, to);
    }
};

/// The correlation that conv2d is.
Planes of_result(const Request& r, const Operand& out, const Operand& x, const Operand& weight);

/// The gradient of the weight.
template <class T>
KernelPtr weight_grad(const Request& r);  // convolution_planes_weight.cpp

}  // namespace norch::nn::planes
