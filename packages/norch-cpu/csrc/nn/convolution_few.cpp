// conv2d and its gradients where there are few windows, as in the last layers of a network that is given one image, or a
// model that listens to a second of sound: products of im2col's matrix with the weights as they lie, where packing them
// would cost more than the products. With one tap also of many images of a few pixels, as one product of all; and the
// gradient of images of few channels where windows do not overlap, as those of a vision transformer's patches.
#include "common/scratch.h"
#include "matmul/gemm.h"
#include "matmul/transpose.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t MAX_WINDOWS = 12, LEAST_DEPTH = 128;
constexpr int64_t LARGE_CHANNELS = 256, LARGE_WEIGHT = 1 << 18;  // whose packing costs more than im2col
constexpr int64_t CHANNELS_AT_ONCE = 64;
constexpr int64_t FEW_CHANNELS = 16, MOST_OFFSETS = 1 << 20;  // of an image's patches
constexpr int64_t TOO_NARROW = 16, MOST_JOINED = 4096, LEAST_JOINED = 4096;  // pixels of an image, of all; weights

/// im2col's matrix: what the windows of all images see, a row each, (channels, taps), as a weight lies.
class Columns {
public:
    Columns(const Operand& image, const WindowGrid& grid)
        : image_(image), windows_(grid.rows * grid.columns), taps_(int64_t(grid.taps.size())) {
        for (int64_t y = 0; y < grid.rows; ++y)
            for (int64_t x = 0; x < grid.columns; ++x)
                for (const Tap& tap : grid.taps) {
                    const int64_t row = y * grid.step_y + tap.y, column = x * grid.step_x + tap.x;
                    const bool is_inside = row >= 0 && row < image_.size[2] && column >= 0 && column < image_.size[3];
                    offsets_.push_back(is_inside ? row * image_.stride[2] + column * image_.stride[3] : OUTSIDE);
                }
    }

    int64_t rows() const { return image_.size[0] * windows_; }
    int64_t depth() const { return image_.size[1] * taps_; }
    int64_t size() const { return rows() * depth(); }

    template <class T>
    void gather(const T* image, T* out) const {
        parallel_for(rows(), double(depth()), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const T* from = image + i / windows_ * image_.stride[0];
                const int64_t* offset = offsets_.data() + i % windows_ * taps_;
                T* to = out + i * depth();
                for (int64_t c = 0; c < image_.size[1]; ++c, from += image_.stride[1], to += taps_)
                    for (int64_t t = 0; t < taps_; ++t) to[t] = offset[t] == OUTSIDE ? T(0) : from[offset[t]];
            }
        });
    }

    /// Its inverse (col2im): what was taken from one place is added up there. The image is contiguous.
    template <class T>
    void scatter(const T* columns, T* image) const {
        const int64_t channels = image_.size[1], parts = (channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE;
        const int64_t plane = image_.size[2] * image_.size[3];
        parallel_for(image_.size[0] * parts, double(windows_ * CHANNELS_AT_ONCE * taps_), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t n = i / parts, first = i % parts * CHANNELS_AT_ONCE;
                const int64_t count = std::min(CHANNELS_AT_ONCE, channels - first);
                T* const to = image + n * image_.stride[0] + first * image_.stride[1];
                std::fill_n(to, count * plane, T(0));
                for (int64_t w = 0; w < windows_; ++w) {
                    const T* from = columns + ((n * windows_ + w) * channels + first) * taps_;
                    const int64_t* offset = offsets_.data() + w * taps_;
                    for (int64_t c = 0; c < count; ++c, from += taps_)
                        for (int64_t t = 0; t < taps_; ++t)
                            if (offset[t] != OUTSIDE) to[c * image_.stride[1] + offset[t]] += from[t];
                }
            }
        });
    }

    double work() const { return 2 * double(size()); }

private:
    static constexpr int64_t OUTSIDE = INT64_MIN;
    Image image_;
    int64_t windows_, taps_;
    std::vector<int64_t> offsets_;  // of each window and tap, from a channel's first element
};

/// The gradient of the results as a matrix: out[n][window][channel] or, if `by_channel`, out[channel][n][window].
template <class T>
void copy_grad(const T* grad, const Image& about, bool by_channel, T* out) {
    const auto &size = about.size, &stride = about.stride;
    const int64_t windows = size[2] * size[3], rows = size[0] * windows;
    parallel_for(size[0], double(windows * size[1]), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
            for (int64_t c = 0; c < size[1]; ++c) {
                const T* from = grad + n * stride[0] + c * stride[1];
                T* to = by_channel ? out + c * rows + n * windows : out + n * windows * size[1] + c;
                const int64_t step = by_channel ? 1 : size[1];
                for (int64_t y = 0; y < size[2]; ++y)
                    for (int64_t x = 0; x < size[3]; ++x, to += step) *to = from[y * stride[2] + x * stride[3]];
            }
    });
}

template <class T>
double work_of(const matmul::Product<T>& product, const Columns& columns) {
    return double(product.pieces()) * product.piece_ns() + columns.work();
}

template <class T>
[[gnu::cold]] KernelPtr forward(const Request& r, const Columns& columns) {
    const int64_t batch = r.operands[0].shape[0], channels = r.operands[0].shape[1];
    const int64_t rows = columns.rows(), depth = columns.depth(), windows = rows / batch;
    // Of one image the product is the result turned over, of more than one images of it.
    const matmul::MatrixStrides to = batch == 1 ? matmul::MatrixStrides{1, windows} : matmul::MatrixStrides{channels, 1};
    const matmul::Product<T> product(rows, channels, depth, {depth, 1}, {1, depth}, to);
    const bool has_bias = r.operands.size() == 4;
    return make_kernel(work_of(product, columns), [=](char* const* data, const Scalar*) {
        const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
        const Scratch<T> seen(columns.size()), results(batch == 1 ? 0 : rows * channels);
        columns.gather(at(1), seen.data());
        product.run(seen.data(), at(2), batch == 1 ? at(0) : results.data(), {has_bias ? at(3) : nullptr, nullptr});
        for (int64_t n = 0; batch > 1 && n < batch; ++n) {
            const int64_t first = n * windows * channels;
            matmul::transpose(results.data() + first, channels, windows, channels, at(0) + first, windows);
        }
    });
}

template <class T>
[[gnu::cold]] KernelPtr input_grad(const Request& r, const Columns& columns) {
    const int64_t rows = columns.rows(), depth = columns.depth(), channels = r.operands[1].shape[1];
    const matmul::Product<T> product(rows, depth, channels, {channels, 1}, {depth, 1}, {depth, 1});
    return make_kernel(work_of(product, columns), [=, grad = Image(r.operands[1])](char* const* data, const Scalar*) {
        const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
        const Scratch<T> given(rows * channels), seen(columns.size());
        copy_grad(at(1), grad, false, given.data());
        product.run(given.data(), at(2), seen.data());
        columns.scatter(seen.data(), at(0));
    });
}

template <class T>
[[gnu::cold]] KernelPtr weight_grad(const Request& r, const Columns& columns) {
    const int64_t rows = columns.rows(), depth = columns.depth(), channels = r.operands[1].shape[1];
    const matmul::Product<T> product(channels, depth, rows, {rows, 1}, {depth, 1}, {depth, 1});
    return make_kernel(work_of(product, columns), [=, grad = Image(r.operands[1])](char* const* data, const Scalar*) {
        const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
        const Scratch<T> given(rows * channels), seen(columns.size());
        copy_grad(at(1), grad, true, given.data());
        columns.gather(at(2), seen.data());
        product.run(given.data(), seen.data(), at(0));
    });
}

}  // namespace

[[gnu::cold]] KernelPtr conv2d_of_few_windows(const Request& r) {
    const bool of_input = r.op == "conv2d_input_grad", of_weight = r.op == "conv2d_weight_grad";
    const bool is_forward = !of_input && !of_weight;
    const Operand& image = r.operands[of_input ? 0 : of_weight ? 2 : 1];
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    const Operand& result = r.operands[is_forward ? 0 : 1];
    const int64_t windows = result.shape[2] * result.shape[3], rows = result.shape[0] * windows;
    const auto& stride = r.attrs.integers("stride");
    const bool is_dense = stride[0] == 1 && stride[1] == 1, has_one_tap = weight.shape[2] * weight.shape[3] == 1;
    int64_t most = MAX_WINDOWS;
    if (!is_forward) {
        const bool is_large = weight.shape[0] >= LARGE_CHANNELS && weight.numel() >= LARGE_WEIGHT;
        most = !is_large ? (is_dense ? 0 : 32) : (of_input && is_dense) || has_one_tap ? 128 : 256;
    }
    if (of_input && windows == 1) most = 128;  // as where a generator begins
    // Images of a few pixels each are too narrow for products of one image at a time.
    const bool joins_images = has_one_tap && !of_weight && windows > 1 && windows < TOO_NARROW && result.shape[0] > 1 &&
                              weight.numel() >= LEAST_JOINED;
    if (joins_images) most = MOST_JOINED;
    const bool are_apart = stride[0] >= weight.shape[2] && stride[1] >= weight.shape[3] && !has_one_tap;
    const bool are_patches = of_input && are_apart && image.shape[1] <= FEW_CHANNELS &&
                             windows * weight.shape[2] * weight.shape[3] <= MOST_OFFSETS;
    if (are_patches) most = INT64_MAX;
    const bool is_deep = joins_images || are_patches || weight.numel() >= LEAST_DEPTH * weight.shape[0];
    const bool fits = weight.is_contiguous() && result.shape[1] && r.attrs.integer("groups") == 1 && rows && rows <= most &&
                      is_deep && (of_weight || r.operands[0].is_contiguous());
    if (!fits || (r.operands.size() == 4 && !r.operands[3].is_contiguous())) return nullptr;
    // With one tap products of the images as they lie do it, but for the weight's gradient of several.
    if (has_one_tap && !joins_images && (of_input || is_forward == (image.shape[0] > 1))) return nullptr;
    const auto &pads = r.attrs.integers("pads"), &dilation = r.attrs.integers("dilation");
    const WindowGrid grid(result.shape[2], result.shape[3], stride[0], stride[1],
                          taps_of(weight.shape[2], weight.shape[3], dilation[0], dilation[1], pads[0], pads[2]));
    const Columns columns(image, grid);
    const auto make = [&]<class T>(T) {
        note_scratch(int64_t(sizeof(T)) * (columns.size() + rows * result.shape[1]));
        if (is_forward) return forward<T>(r, columns);
        return of_input ? input_grad<T>(r, columns) : weight_grad<T>(r, columns);
    };
    if (weight.dtype == DType::f32) return make(float());
    return weight.dtype == DType::f64 ? make(double()) : nullptr;
}

}  // namespace norch::nn
