// conv2d of few windows, as in a model that listens to a second of sound: the weights are read once, as they lie, where
// packing them would cost more than the products.
#include "matmul/gemm.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

constexpr int64_t MAX_WINDOWS = 12, LEAST_DEPTH = 128;

/// The windows of an image side by side, each (channels, taps).
template <class T>
void gather_windows(const T* image, const Image& x, const WindowGrid& grid, T* out) {
    for (int64_t oy = 0; oy < grid.rows; ++oy)
        for (int64_t ox = 0; ox < grid.columns; ++ox)
            for (int64_t c = 0; c < x.size[1]; ++c)
                for (const Tap& tap : grid.taps) {
                    const int64_t y = oy * grid.step_y + tap.y, column = ox * grid.step_x + tap.x;
                    const bool is_inside = y >= 0 && y < x.size[2] && column >= 0 && column < x.size[3];
                    *out++ = is_inside ? image[c * x.stride[1] + y * x.stride[2] + column * x.stride[3]] : T(0);
                }
}

template <class T>
KernelPtr forward(const Request& r) {
    const Operand &out = r.operands[0], &weight = r.operands[2];
    const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
    const auto& dilation = r.attrs.integers("dilation");
    const WindowGrid grid(out.shape[2], out.shape[3], stride[0], stride[1],
                          taps_of(weight.shape[2], weight.shape[3], dilation[0], dilation[1], pads[0], pads[2]));
    const int64_t windows = grid.rows * grid.columns, depth = weight.numel() / weight.shape[0];
    const matmul::Product<T> product(windows, out.shape[1], depth, {depth, 1}, {1, depth}, {1, windows});
    const bool has_bias = r.operands.size() == 4;
    const double work = double(product.pieces()) * product.piece_ns() + 2 * double(windows * depth);
    return make_kernel(work, [=, x = Image(r.operands[1])](char* const* data, const Scalar*) {
        const auto at = [data](int i) { return reinterpret_cast<T*>(data[i]); };
        const Scratch<T> rows(windows * depth);
        gather_windows(at(1), x, grid, rows.data());
        product.run(rows.data(), at(2), at(0), {has_bias ? at(3) : nullptr, nullptr});
    });
}

}  // namespace

KernelPtr conv2d_of_few_windows(const Request& r) {
    if (r.op != "conv2d") return nullptr;
    const Operand &out = r.operands[0], &weight = r.operands[2];
    const int64_t windows = out.shape[2] * out.shape[3];
    const bool fits = out.shape[0] == 1 && out.is_contiguous() && weight.is_contiguous() && out.shape[1] &&
                      r.attrs.integer("groups") == 1 && windows && windows <= MAX_WINDOWS &&
                      weight.numel() >= LEAST_DEPTH * weight.shape[0];
    if (!fits || (r.operands.size() == 4 && !r.operands[3].is_contiguous())) return nullptr;
    if (out.dtype == DType::f32) return forward<float>(r);
    return out.dtype == DType::f64 ? forward<double>(r) : nullptr;
}

}  // namespace norch::nn
