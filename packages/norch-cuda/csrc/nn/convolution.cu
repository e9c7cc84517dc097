// conv2d and its gradients: few channels and depthwise directly, float32 by tensor cores (convolution_hopper.cu) or tiles
// (convolution_implicit.cu), others as products with the matrix of windows of some images at a time (K. Chellapilla,
// S. Puri and P. Simard, "High performance convolutional neural networks for document processing", 2006).
#include "nn/convolution.h"

#include <algorithm>
#include <optional>

#include "common/scratch.h"
#include "cudnn/library.h"
#include "matmul/cublaslt.h"
#include "matmul/own_product.h"
#include "nn/convolution_cudnn.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {

using matmul::allows_tf32, matmul::product_kernel;

constexpr int64_t MAX_BYTES = int64_t(512) << 20;  // of windows at a time
constexpr int64_t MAX_DIRECT_DEPTH = 64;                         // products that a direct convolution adds up
constexpr int64_t MAX_PRODUCT_GROUPS = 8;
constexpr int64_t MIN_POINT_DEPTH = 8;  // of windows of one element, for which a product is faster from here on

Operand operand(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    return {dtype, std::move(shape), std::move(strides)};
}

/// Rows of windows start at multiples of 16 bytes.
int64_t padded(int64_t count) { return (count + 7) / 8 * 8; }

/// A result's rows * columns elements must lie behind each other to be one dim of a matrix.
StagedOperand staged_places(const Operand& result) {
    StagedOperand out;
    out.view = result;
    const int64_t rows = result.shape[2], columns = result.shape[3];
    const bool is_run = (columns == 1 || result.strides[3] == 1) && (rows == 1 || result.strides[2] == columns);
    if (!is_run) out.stage();
    return out;
}

/// (images, groups, channels of a group, places) of a result.
Operand grouped(const Convolution& c, const Operand& result, int64_t images) {
    const int64_t channels = c.o / c.groups;
    return operand(result.dtype, {images, c.groups, channels, c.places()},
                   {result.strides[0], channels * result.strides[1], result.strides[1], 1});
}

/// The steps through the images: `images` at a time, and what is left.
struct Chunks {
    int64_t images, count;

    Chunks(const Convolution& c, int64_t bytes_of_one)
        : images(std::clamp<int64_t>(MAX_BYTES / std::max(bytes_of_one, c.c * c.h * c.w), 1, c.n)),
          count(ceil_div(c.n, images)) {}
    int64_t rest(const Convolution& c) const { return c.n - (count - 1) * images; }
};

/// What forward and input gradient share: a product of the weight with each chunk of images.
class ByImages : public Kernel {
public:
    ByImages(const Convolution& conv, const Operand& weight)
        : conv_(conv), dtype_(weight.dtype), size_(size_of(dtype_)), columns_({0, padded(conv.places())}),
          chunks_(conv, conv.c * conv.kh * conv.kw * columns_.row_step * size_) {
        columns_.image_step = conv.c * conv.kh * conv.kw * columns_.row_step;
        weight_.view = weight;
        if (!weight.is_contiguous()) weight_.stage();
        has_windows_ = !conv.is_pointwise();
        note_scratch(int64_t(window_bytes()));
    }

protected:
    /// (images, groups, out, depth) of the weight, the same for each image.
    Operand weights(int64_t images) const {
        const int64_t channels = conv_.o / conv_.groups, depth = conv_.depth();
        return operand(dtype_, {images, conv_.groups, channels, depth}, {0, channels * depth, depth, 1});
    }
    /// (images, groups, depth, places) of windows, or of an image whose elements they are.
    Operand windows(int64_t images, const Operand* image) const {
        const int64_t depth = conv_.depth(), image_step = image ? image->strides[0] : columns_.image_step;
        const int64_t row_step = image ? image->strides[1] : columns_.row_step;
        return operand(dtype_, {images, conv_.groups, depth, conv_.places()},
                       {image_step, depth * row_step, row_step, 1});
    }
    size_t window_bytes() const { return has_windows_ ? size_t(chunks_.images * columns_.image_step * size_) : 0; }
    const Kernel& product(int64_t chunk) const { return chunk + 1 < chunks_.count ? *product_ : *last_; }
    int64_t images(int64_t chunk) const { return chunk + 1 < chunks_.count ? chunks_.images : chunks_.rest(conv_); }

    Convolution conv_;
    DType dtype_;
    int64_t size_;
    Columns columns_;
    Chunks chunks_;
    StagedOperand weight_;
    bool has_windows_;
    KernelPtr product_, last_;
};

class Forward final : public ByImages {
public:
    Forward(const Request& r, const Convolution& conv) : ByImages(conv, r.operands[2]) {
        const Operand& out = r.operands[0];
        image_.view = r.operands[1];
        if (!has_windows_) image_ = staged_places(r.operands[1]);
        const Operand* as_windows = has_windows_ ? nullptr : &image_.view;
        auto make = [&](int64_t count) {
            return product_kernel(grouped(conv, out, count), weights(count), windows(count, as_windows));
        };
        product_ = make(chunks_.images), last_ = make(chunks_.rest(conv));
        out_step_ = out.strides[0];
        if (r.operands.size() < 4) return;
        Operand bias = out;
        bias.strides = {0, r.operands[3].strides[0], 0, 0};
        Registry arithmetic;
        elementwise::add_arithmetic(arithmetic);
        add_bias_ = arithmetic.at("add")(Request{"add", {out, out, bias}, {}});
    }

    void run(char* const* data, const Scalar* scalars) const override {
        const Seen weight(weight_, data[2]), image(image_, data[1]);
        const Scratch<> scratch(window_bytes());
        for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
            const int64_t first = chunk * chunks_.images;
            char* from = image.data() + first * image_.view.strides[0] * size_;
            if (has_windows_) launch_im2col(conv_, image_.view, columns_, scratch.data(), from, images(chunk));
            char* const seen = has_windows_ ? scratch.data() : from;
            char* const all[] = {data[0] + first * out_step_ * size_, weight.data(), seen};
            product(chunk).run(all, scalars);
        }
        if (!add_bias_) return;
        char* const all[] = {data[0], data[0], data[3]};
        add_bias_->run(all, scalars);
    }

private:
    StagedOperand image_;
    KernelPtr add_bias_;
    int64_t out_step_;
};

class InputGrad final : public ByImages {
public:
    InputGrad(const Request& r, const Convolution& conv)
        : ByImages(conv, r.operands[2]), out_(r.operands[0]), grad_(staged_places(r.operands[1])) {
        Operand as_windows = out_;
        auto make = [&](int64_t count) {
            return product_kernel(windows(count, has_windows_ ? nullptr : &as_windows), transposed(weights(count)),
                                  grouped(conv, grad_.view, count));
        };
        product_ = make(chunks_.images), last_ = make(chunks_.rest(conv));
    }

    void run(char* const* data, const Scalar* scalars) const override {
        const Seen weight(weight_, data[2]), grad(grad_, data[1]);
        const Scratch<> scratch(window_bytes());
        for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
            const int64_t first = chunk * chunks_.images;
            char* out = data[0] + first * out_.strides[0] * size_;
            char* const all[] = {has_windows_ ? scratch.data() : out, weight.data(),
                                 grad.data() + first * grad_.view.strides[0] * size_};
            product(chunk).run(all, scalars);
            if (has_windows_) launch_col2im(conv_, dtype_, columns_, out, scratch.data(), images(chunk));
        }
    }

private:
    Operand out_;
    StagedOperand grad_;
};

/// Of one product for each image, whose results are summed; for few channels and many places.
class WeightGradByImage final : public Kernel {
public:
    WeightGradByImage(const Request& r, const Convolution& conv)
        : conv_(conv), image_(r.operands[2]), size_(size_of(image_.dtype)), grad_(staged_places(r.operands[1])),
          chunks_(conv, conv.c * conv.kh * conv.kw * padded(conv.places()) * size_) {
        columns_ = {conv.c * conv.kh * conv.kw * padded(conv.places()), padded(conv.places())};
        const int64_t depth = conv.depth(), channels = conv.o / conv.groups;
        auto make = [&](int64_t count) {
            const Operand part = operand(image_.dtype, {count, conv.groups, channels, depth},
                                         {conv.o * depth, channels * depth, depth, 1});
            const Operand windows = operand(image_.dtype, {count, conv.groups, conv.places(), depth},
                                            {columns_.image_step, depth * columns_.row_step, 1, columns_.row_step});
            return product_kernel(part, grouped(conv, grad_.view, count), windows);
        };
        product_ = make(chunks_.images), last_ = make(chunks_.rest(conv));
        note_scratch(window_bytes() + part_bytes());
    }

    void run(char* const* data, const Scalar* scalars) const override {
        const Seen grad(grad_, data[1]);
        const int64_t numel = conv_.o * conv_.depth();
        const Scratch<> windows{size_t(window_bytes())};
        const Scratch<> parts{size_t(part_bytes())};
        for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
            const bool is_last = chunk + 1 == chunks_.count;
            const int64_t first = chunk * chunks_.images;
            launch_im2col(conv_, image_, columns_, windows.data(), data[2] + first * image_.strides[0] * size_,
                           is_last ? chunks_.rest(conv_) : chunks_.images);
            char* const all[] = {conv_.n > 1 ? parts.data() + first * numel * size_ : data[0],
                                 grad.data() + first * grad_.view.strides[0] * size_, windows.data()};
            (is_last ? *last_ : *product_).run(all, scalars);
        }
        if (conv_.n > 1) launch_sum_of_parts(image_.dtype, data[0], parts.data(), conv_.n, numel);
    }

private:
    int64_t window_bytes() const { return chunks_.images * columns_.image_step * size_; }
    int64_t part_bytes() const { return conv_.n > 1 ? conv_.n * conv_.o * conv_.depth() * size_ : 0; }

    Convolution conv_;
    Operand image_;
    int64_t size_;
    StagedOperand grad_;
    Columns columns_;
    Chunks chunks_;
    KernelPtr product_, last_;
};

/// Of one product over the places of all images, for each chunk of them.
class WeightGrad final : public Kernel {
public:
    WeightGrad(const Request& r, const Convolution& conv)
        : conv_(conv), image_(r.operands[2]), grad_(r.operands[1]), size_(size_of(image_.dtype)),
          chunks_(conv, conv.c * conv.kh * conv.kw * conv.places() * size_) {
        make(chunks_.images, product_, gather_);
        make(chunks_.rest(conv), last_, last_gather_);
        note_scratch(window_bytes() + grad_bytes() + part_bytes());
    }

    void run(char* const* data, const Scalar* scalars) const override {
        const int64_t numel = conv_.o * conv_.depth();
        const Scratch<> windows{size_t(window_bytes())};
        const Scratch<> grads{size_t(grad_bytes())};
        const Scratch<> parts{size_t(part_bytes())};
        for (int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
            const bool is_last = chunk + 1 == chunks_.count;
            const int64_t first = chunk * chunks_.images, images = is_last ? chunks_.rest(conv_) : chunks_.images;
            launch_im2col(conv_, image_, {conv_.places(), padded(images * conv_.places())}, windows.data(),
                           data[2] + first * image_.strides[0] * size_, images);
            char* const both[] = {grads.data(), data[1] + first * grad_.strides[0] * size_};
            (is_last ? *last_gather_ : *gather_).run(both, scalars);
            char* const all[] = {chunks_.count > 1 ? parts.data() + chunk * numel * size_ : data[0], grads.data(),
                                 windows.data()};
            (is_last ? *last_ : *product_).run(all, scalars);
        }
        if (chunks_.count > 1) launch_sum_of_parts(image_.dtype, data[0], parts.data(), chunks_.count, numel);
    }

private:
    int64_t most_places() const { return padded(chunks_.images * conv_.places()); }
    int64_t window_bytes() const { return conv_.c * conv_.kh * conv_.kw * most_places() * size_; }
    int64_t grad_bytes() const { return conv_.o * most_places() * size_; }
    int64_t part_bytes() const { return chunks_.count > 1 ? chunks_.count * conv_.o * conv_.depth() * size_ : 0; }

    /// The product for some images, and the copy of their gradients to one row for each channel.
    void make(int64_t images, KernelPtr& product, KernelPtr& gather) const {
        const int64_t places = conv_.places(), row = padded(images * places), depth = conv_.depth();
        const int64_t channels = conv_.o / conv_.groups;
        const DType dtype = image_.dtype;
        product = product_kernel(
            operand(dtype, {conv_.groups, channels, depth}, {channels * depth, depth, 1}),
            operand(dtype, {conv_.groups, channels, images * places}, {channels * row, row, 1}),
            operand(dtype, {conv_.groups, images * places, depth}, {depth * row, 1, row}));
        Operand from = grad_;
        from.shape[0] = images;
        gather = copy_kernel(operand(dtype, from.shape, {places, row, conv_.columns, 1}), from);
    }

    Convolution conv_;
    Operand image_, grad_;
    int64_t size_;
    Chunks chunks_;
    KernelPtr product_, last_, gather_, last_gather_;
};

/// Of channels that vary fastest and windows of one element: one product, of the images' places as rows.
KernelPtr pointwise_of_rows(ConvolutionKind kind, const Request& r) {
    const bool is_forward = kind == ConvolutionKind::forward, is_weight = kind == ConvolutionKind::weight_grad;
    const Operand& image = r.operands[is_forward ? 1 : is_weight ? 2 : 0];
    const Operand& weight = r.operands[is_weight ? 0 : 2];
    const Operand& result = r.operands[is_forward ? 0 : 1];
    const Convolution conv(image, result, weight.shape, r.attrs);
    auto is_packed = [](const Operand& o, bool is_weight) {
        const int64_t c = o.shape[1];
        if ((c > 1 && o.strides[1] != 1) || (o.shape[0] > 1 && o.strides[0] != c * o.shape[2] * o.shape[3])) return false;
        return is_weight || ((o.shape[2] == 1 || o.strides[2] == c * o.shape[3]) && (o.shape[3] == 1 || o.strides[3] == c));
    };
    if (!conv.is_pointwise() || conv.groups != 1) return nullptr;
    if (!is_packed(image, false) || !is_packed(result, false) || !is_packed(weight, true)) return nullptr;
    const int64_t places = conv.n * conv.places();
    auto rows = [&](int64_t count, int64_t channels) { return operand(image.dtype, {count, channels}, {channels, 1}); };
    const Operand x = rows(places, conv.c), y = rows(places, conv.o), w = rows(conv.o, conv.c);
    if (is_forward) return product_kernel(y, x, transposed(w), r.operands.size() == 4 ? &r.operands[3] : nullptr);
    return is_weight ? product_kernel(w, transposed(y), x) : product_kernel(x, y, w);
}

/// Tensor cores are worth a matrix of windows.
bool is_implicit(const Request& r, const Convolution& conv) {
    return r.operands[0].dtype == DType::f32 && !allows_tf32 && !conv.is_pointwise();
}

KernelPtr forward(const Request& r) {
    const Convolution conv(r.operands[1], r.operands[0], r.operands[2].shape, r.attrs);
    if (!conv.is_usual()) return nullptr;
    const int64_t most = conv.is_pointwise() ? MIN_POINT_DEPTH - 1 : MAX_DIRECT_DEPTH;
    if (conv.depth() <= most || conv.groups > MAX_PRODUCT_GROUPS) {
        if (KernelPtr kernel = direct_convolution(conv, r)) return kernel;
    }
    if (is_implicit(r, conv)) {
        if (KernelPtr kernel = implicit_convolution(conv, r)) return kernel;
    }
    return std::make_unique<Forward>(r, conv);
}

KernelPtr input_grad(const Request& r) {
    const Convolution conv(r.operands[0], r.operands[1], r.operands[2].shape, r.attrs);
    if (!conv.is_usual()) return nullptr;
    if (is_implicit(r, conv)) {
        if (KernelPtr kernel = implicit_input_grad(conv, r)) return kernel;
    }
    return std::make_unique<InputGrad>(r, conv);
}

KernelPtr weight_grad(const Request& r) {
    const Convolution conv(r.operands[2], r.operands[1], r.operands[0].shape, r.attrs);
    if (!conv.is_usual()) return nullptr;
    // 16-bit floats are to be rounded once.
    const int64_t parts = conv.n * conv.o * conv.depth() * size_of(r.operands[0].dtype);
    if (conv.o / conv.groups <= conv.places() && parts <= MAX_BYTES && !is_half(r.operands[0].dtype))
        return std::make_unique<WeightGradByImage>(r, conv);
    return std::make_unique<WeightGrad>(r, conv);
}

template <ConvolutionKind kind, Factory make>
KernelPtr of_one_dtype(const Request& r) {
    if (!allows_tf32 && !cudnn::settings.benchmarks) {
        if (KernelPtr kernel = few_channels_convolution(kind, r)) return kernel;
    }
    if (KernelPtr kernel = signal_weight_grad(kind, r)) return kernel;
    if (KernelPtr kernel = signal_input_grad(kind, r)) return kernel;
    if (KernelPtr kernel = depthwise_convolution(kind, r)) return kernel;
    if (KernelPtr kernel = tensor_convolution(kind, r)) return kernel;
    if (KernelPtr kernel = cudnn_convolution(kind, r)) return kernel;
    for (const Operand& operand : r.operands)
        if (operand.dtype != r.operands[0].dtype || operand.numel() == 0) return nullptr;
    if (!is_floating(r.operands[0].dtype)) return nullptr;
    if (KernelPtr kernel = pointwise_of_rows(kind, r)) return kernel;
    return r.operands[0].is_contiguous() ? make(r) : nullptr;
}

/// Of other volumes we have no kernels: core does them plane by plane.
template <ConvolutionKind kind>
KernelPtr of_volumes(const Request& r) {
    KernelPtr kernel = depthwise_volumes(kind, r);
    return kernel ? std::move(kernel) : cudnn_convolution(kind, r);
}

}  // namespace

void add_convolution(Registry& registry) {
    registry["conv2d"] = of_one_dtype<ConvolutionKind::forward, forward>;
    registry["conv2d_input_grad"] = of_one_dtype<ConvolutionKind::input_grad, input_grad>;
    registry["conv2d_weight_grad"] = of_one_dtype<ConvolutionKind::weight_grad, weight_grad>;
    registry["conv3d"] = of_volumes<ConvolutionKind::forward>;
    registry["conv3d_input_grad"] = of_volumes<ConvolutionKind::input_grad>;
    registry["conv3d_weight_grad"] = of_volumes<ConvolutionKind::weight_grad>;
}

}  // namespace norch::nn
