// What convolution and its gradients share: their sizes, and kernels between images and the matrix of all windows.
#pragma once

#include "common/kernel.h"

namespace norch::nn {

enum class ConvolutionKind { forward, input_grad, weight_grad };

/// Sizes and steps of a convolution: (n, c, h, w) with weight (o, c / groups, kh, kw) gives (n, o, rows, columns).
struct Convolution {
    int64_t n, c, h, w, o, kh, kw, rows, columns, groups;
    int64_t step_y, step_x, gap_y, gap_x, top, left;

    Convolution(const Operand& image, const Operand& result, const std::vector<int64_t>& weight, const Attrs& attrs);
    int64_t places() const { return rows * columns; }
    int64_t depth() const { return c / groups * kh * kw; }  // what one result is the sum of
    /// Whether the windows are the image's elements themselves.
    bool is_pointwise() const {
        return kh == 1 && kw == 1 && step_y == 1 && step_x == 1 && top == 0 && left == 0 && rows == h && columns == w;
    }
    /// Whether 32-bit indices do for one image.
    bool is_usual() const;
};

/// The matrix of windows: element (image, channel and tap, place) is at image * image_step + row * row_step + place.
struct Columns {
    int64_t image_step, row_step;
};

/// Writes the windows of `count` images; steps of `image` count elements.
void launch_im2col(const Convolution& conv, const Operand& image, const Columns& to, char* out, const char* data,
                    int64_t count);
/// Adds the windows of `count` images back into images without gaps.
void launch_col2im(const Convolution& conv, DType dtype, const Columns& from, char* out, const char* columns,
                        int64_t count);
/// Sums `count` parts of `numel` elements, in order.
void launch_sum_of_parts(DType dtype, char* out, const char* parts, int64_t count, int64_t numel);

/// The convolution itself, without a matrix of windows; null where a group's weights do not fit shared memory.
KernelPtr direct_convolution(const Convolution& conv, const Request& request);

/// The convolution in float32, or the gradient of its input, with windows only in shared memory; null where channels or
/// images are too few for it, or for a gradient's steps.
KernelPtr implicit_convolution(const Convolution& conv, const Request& request);
KernelPtr implicit_input_grad(const Convolution& conv, const Request& request);
/// The convolution of few channels with windows of 3 x 3 in float32, or, with step 1, the gradient of its weight; null for
/// others.
KernelPtr few_channels_convolution(ConvolutionKind kind, const Request& request);

/// The gradient of the weight of a convolution of signals of few channels in float32; null for others.
KernelPtr signal_weight_grad(ConvolutionKind kind, const Request& request);
/// That of its input, where few windows meet; null for others.
KernelPtr signal_input_grad(ConvolutionKind kind, const Request& request);

/// The depthwise convolution without gaps, of windows of 1, 3, 5 or 7 each way and step 1 or 2, the gradient of its weights,
/// or with step 1 that of its input, in either layout of images; null for others. The result may have more channels where
/// they come first, but for the input's gradient.
KernelPtr depthwise_convolution(ConvolutionKind kind, const Request& request);

/// The depthwise convolution of volumes in float32, in which channels come first, or a gradient of it; null for others.
KernelPtr depthwise_volumes(ConvolutionKind kind, const Request& request);

/// Float32 on tensor cores, of step 1 and not too few channels; null for others and devices that have none such.
KernelPtr tensor_convolution(ConvolutionKind kind, const Request& request);

}  // namespace norch::nn
