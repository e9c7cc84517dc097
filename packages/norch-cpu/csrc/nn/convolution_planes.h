// What convolution of images whose channels are planes, with few channels in each group or in all, shares with its gradients.
// Some rows of a plane are copied with zeros around them; then an element of the result, counted in rows of that copy's
// length, sees its taps at distances that are the same for all, so that vectors of them go over the ends of rows. Of a
// stride s every s-th row and column of the copy are a plane of their own.
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

    /// What rows from `start` on see of a plane of h x w, and zeros above and below; those at the sides are there already.
    template <class T>
    __attribute__((noinline)) void fill(const Numbers& x, const Plane& from, int64_t h, int64_t w, int64_t start, T* to) const {
        for (int64_t y = 0; y < step_y; ++y)
            for (int64_t z = 0; z < step_x; ++z, to += phase_rows * pitch) {
                const int64_t down = start * step_y + y - top, right = z - left;
                const int64_t row = std::min(phase_rows, first(step_y, down)), column = first(step_x, right);
                const int64_t row_end = std::clamp(end(step_y, down, h), row, phase_rows);
                const int64_t columns = std::min(pitch, end(step_x, right, w)) - column;
                std::fill_n(to, row * pitch, T(0));
                std::fill_n(to + row_end * pitch, (phase_rows - row_end) * pitch, T(0));
                if (row_end == row || columns <= 0) continue;
                char* const begin = from.data + (row * step_y + down) * from.row + (column * step_x + right) * from.column;
                load_tile(plane_of(to + row * pitch + column, pitch), {begin, step_y * from.row, step_x * from.column},
                          row_end - row, columns, x.size, x.convert);
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

/// Channels of a result that are computed together at most: vectors of taps lie across two cache lines, and loading them is
/// what takes time. Few convolve float64.
template <class T>
constexpr int TOGETHER = sizeof(T) != sizeof(float) ? 1 : VECTOR_BYTES == 64 ? 4 : 3;

/// `select` of a number of channels as a constant.
template <class T, int C = TOGETHER<T>, class F>
auto for_channels(int64_t channels, const F& select) {
    if constexpr (C > 1)
        if (channels < C) return for_channels<T, C - 1>(channels, select);
    return select(std::integral_constant<int, C>());
}

/// A grouped correlation: of each group's planes of a source come the planes of a result.
struct Planes {
    Copy copy;
    std::vector<Pass> passes;
    int64_t batch, groups, from, to;           // channels of a group
    int64_t h, w;                              // of a plane of the source
    std::vector<int64_t> source, result;       // strides
    int64_t weight_group, weight_to;   // strides
    int64_t tile, tiles;               // rows of a pass that are computed from one copy

    int64_t result_size() const { return tile * copy.pitch; }
    int64_t rows_of(const Pass& pass, int64_t start) const { return std::min(tile, pass.rows - start); }
    int64_t count_of(const Pass& pass, int64_t start) const { return (rows_of(pass, start) - 1) * copy.pitch + pass.columns; }
    double group_ns() const {
        double products = 0;
        for (const Pass& pass : passes) products += double(pass.rows * copy.pitch * to) * double(pass.distance.size());
        return products / 16 + double(h * w * from) / 8 + 100;
    }

    /// Bytes that as many threads take at most, each for the copies of so many channels and for results.
    template <class T>
    int64_t scratch(int64_t threads, int64_t channels) const {
        return threads * (channels * copy.numel() + TOGETHER<T> * result_size()) * int64_t(sizeof(T));
    }

    /// What rows from `start` on see of some channels of a group.
    template <class T>
    void fill(const Numbers& x, int64_t n, int64_t group, int64_t channel, int64_t channels, int64_t start, T* to) const {
        for (int64_t c = channel; c < channel + channels; ++c, to += copy.numel())
            copy.fill(x, x.plane(n * source[0] + (group * from + c) * source[1], source[2], source[3]), h, w, start, to);
    }

    /// Decides how many of `rows` are computed at once, each of which needs `more` besides: their copies stay in the second
    /// cache, and there is work for all threads.
    void cut(int64_t rows, int64_t more, bool for_threads) {
        constexpr int64_t COPIES = 1 << 17, LEAST = 8;
        const int64_t wanted = 2 * num_threads(), items = std::max<int64_t>(1, batch * groups);
        const int64_t enough = for_threads ? (wanted + items - 1) / items : 1;
        const int64_t fit = COPIES / std::max<int64_t>(1, from * copy.step_y * copy.step_x * copy.pitch) - more;
        tile = std::clamp(std::min(fit, (rows + enough - 1) / enough), std::min(LEAST, rows), rows);
        tiles = (rows + tile - 1) / tile;
        copy.phase_rows = tile + more;
    }
};

/// The correlation that conv2d is.
Planes of_result(const Request& r, const Operand& out, const Operand& x, const Operand& weight);

/// The gradient of the weight.
template <class T>
KernelPtr weight_grad(const Request& r);  // convolution_planes_weight.cpp

}  // namespace norch::nn::planes
