// Depthwise convolution of channels-last images, and its gradients: channels are as many numbers side by side.
#include "nn/convolution.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t ROWS_AT_ONCE = 16;  // of the result, in the weight's gradient

/// The taps that a pixel of the result has within the source: where in the source, and which.
struct Reach {
    std::vector<int64_t> at, tap;
    size_t count = 0;
};

/// Rows and columns of the source for each place of the result: in the gradient of the input the steps are undone.
struct Moves {
    Moves(const Request& r, const Operand& weight, const Operand& source, bool is_grad)
        : kh(weight.shape[2]), kw(weight.shape[3]), h(source.shape[2]), w(source.shape[3]), row(source.strides[2]),
          column(source.strides[3]), is_grad(is_grad) {
        const auto &stride = r.attrs.integers("stride"), &pads = r.attrs.integers("pads");
        const auto& dilation = r.attrs.integers("dilation");
        step_y = stride[0], step_x = stride[1], gap_y = dilation[0], gap_x = dilation[1], top = pads[0], left = pads[2];
    }
    /// The index in the source that tap k of place y sees, or -1.
    int64_t seen(int64_t y, int64_t k, int64_t step, int64_t gap, int64_t pad, int64_t size) const {
        int64_t at = is_grad ? y + pad - k * gap : y * step - pad + k * gap;
        if (is_grad) {
            if (at < 0 || at % step) return -1;
            at /= step;
        }
        return at >= 0 && at < size ? at : -1;
    }
    void reach(int64_t y, int64_t x, Reach* out) const {
        out->count = 0;
        for (int64_t i = 0; i < kh; ++i) {
            const int64_t at_y = seen(y, i, step_y, gap_y, top, h);
            for (int64_t j = 0; j < kw && at_y >= 0; ++j) {
                const int64_t at_x = seen(x, j, step_x, gap_x, left, w);
                if (at_x < 0) continue;
                out->at[out->count] = at_y * row + at_x * column;
                out->tap[out->count++] = i * kw + j;
            }
        }
    }
    Reach room() const { return {std::vector<int64_t>(size_t(kh * kw)), std::vector<int64_t>(size_t(kh * kw))}; }

    int64_t kh, kw, h, w, row, column, step_y, step_x, gap_y, gap_x, top, left;
    bool is_grad;
};

/// out[c] = bias[c] + the sum over taps of source[c] * weights[tap][c], for N channels.
template <int N, class S, class T>
inline void sum_taps(const S* source, const Reach& reach, const T* weights, int64_t channels, const S* bias, S* out) {
    T sums[N] = {};
    for (size_t k = 0; k < reach.count; ++k) {
        const S* x = source + reach.at[k];
        const T* w = weights + reach.tap[k] * channels;
        for (int c = 0; c < N; ++c) sums[c] += load(x[c]) * w[c];
    }
    for (int c = 0; c < N; ++c) out[c] = store<S>(bias ? T(load(bias[c])) + sums[c] : sums[c]);
}

template <class S>
KernelPtr correlation(const Request& r, bool is_grad) {
    using T = compute_t<S>;
    const Operand &out = r.operands[0], &source = r.operands[1], &weight = r.operands[2];
    const Moves moves(r, weight, source, is_grad);
    const int64_t n = out.shape[0], channels = out.shape[1], rows = out.shape[2], columns = out.shape[3];
    const int64_t taps = moves.kh * moves.kw, image = source.strides[0];
    const bool has_bias = !is_grad && r.operands.size() == 4;
    const auto strides = weight.strides;
    const double ns = double(columns * channels * taps) / PER_NS<T> * 4;
    return make_kernel(ns * double(n * rows), [=](char* const* data, const Scalar*) {
        const S* w = reinterpret_cast<const S*>(data[2]);
        Scratch<T> packed(taps * channels);
        for (int64_t t = 0; t < taps; ++t)
            for (int64_t c = 0; c < channels; ++c)
                packed.data()[t * channels + c] = load(w[c * strides[0] + t / moves.kw * strides[2] + t % moves.kw * strides[3]]);
        parallel_for(n * rows, ns, [&](int64_t begin, int64_t end) {
            Reach reach = moves.room();
            for (int64_t i = begin; i < end; ++i) {
                const S* x = reinterpret_cast<const S*>(data[1]) + i / rows * image;
                const S* bias = has_bias ? reinterpret_cast<const S*>(data[3]) : nullptr;
                S* to = reinterpret_cast<S*>(data[0]) + i * columns * channels;
                for (int64_t column = 0; column < columns; ++column, to += channels) {
                    moves.reach(i % rows, column, &reach);
                    constexpr int N = 4 * SIMD_WIDTH<T>;
                    int64_t c = 0;
                    for (; c + N <= channels; c += N)
                        sum_taps<N>(x + c, reach, packed.data() + c, channels, bias ? bias + c : nullptr, to + c);
                    for (; c + SIMD_WIDTH<T> <= channels; c += SIMD_WIDTH<T>)
                        sum_taps<SIMD_WIDTH<T>>(x + c, reach, packed.data() + c, channels, bias ? bias + c : nullptr, to + c);
                    for (; c < channels; ++c)
                        sum_taps<1>(x + c, reach, packed.data() + c, channels, bias ? bias + c : nullptr, to + c);
                }
            }
        });
    });
}

/// Chunks of rows are summed each by itself, and then in order, however many threads there are.
template <class S>
KernelPtr weight_grad(const Request& r) {
    using T = compute_t<S>;
    const Operand &out = r.operands[0], &grad = r.operands[1], &source = r.operands[2];
    const Moves moves(r, out, source, false);
    const int64_t channels = out.shape[0], rows = grad.shape[2], columns = grad.shape[3], taps = moves.kh * moves.kw;
    const int64_t all = grad.shape[0] * rows, chunks = (all + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const int64_t image = source.strides[0];
    const auto strides = out.strides;
    const double ns = double(columns * channels * taps * ROWS_AT_ONCE) / PER_NS<T> * 4;
    return make_kernel(ns * double(chunks), [=](char* const* data, const Scalar*) {
        Scratch<T> partial(chunks * taps * channels);
        parallel_for(chunks, ns, [&](int64_t begin, int64_t end) {
            Reach reach = moves.room();
            for (int64_t chunk = begin; chunk < end; ++chunk) {
                T* sums = partial.data() + chunk * taps * channels;
                std::fill_n(sums, taps * channels, T(0));
                for (int64_t i = chunk * ROWS_AT_ONCE; i < std::min(all, (chunk + 1) * ROWS_AT_ONCE); ++i) {
                    const S* x = reinterpret_cast<const S*>(data[2]) + i / rows * image;
                    const S* g = reinterpret_cast<const S*>(data[1]) + i * columns * channels;
                    for (int64_t column = 0; column < columns; ++column, g += channels) {
                        moves.reach(i % rows, column, &reach);
                        for (size_t k = 0; k < reach.count; ++k) {
                            const S* seen = x + reach.at[k];
                            T* to = sums + reach.tap[k] * channels;
                            NORCH_INDEPENDENT
                            for (int64_t c = 0; c < channels; ++c) to[c] += load(seen[c]) * load(g[c]);
                        }
                    }
                }
            }
        });
        for (int64_t t = 0; t < taps; ++t) {
            for (int64_t c = 0; c < channels; ++c) {
                T sum = 0;
                for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial.data()[(chunk * taps + t) * channels + c];
                reinterpret_cast<S*>(data[0])[c * strides[0] + t / moves.kw * strides[2] + t % moves.kw * strides[3]] =
                    store<S>(sum);
            }
        }
    });
}

}  // namespace

KernelPtr conv2d_depthwise(const Request& r) {
    const bool of_weight = r.op == "conv2d_weight_grad", of_input = r.op == "conv2d_input_grad";
    const Operand& weight = r.operands[of_weight ? 0 : 2];
    const Operand &a = r.operands[of_weight ? 2 : 0], &b = r.operands[1];
    const int64_t groups = r.attrs.integer("groups");
    if (groups < 2 || weight.shape[0] != groups || weight.shape[1] != 1 || !is_channels_last(a) || !is_channels_last(b))
        return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1) return nullptr;
    return visit_floating(r.operands[0].dtype, [&]<class S>(Tag<S>) {
        return of_weight ? weight_grad<S>(r) : correlation<S>(r, of_input);
    });
}

}  // namespace norch::nn
