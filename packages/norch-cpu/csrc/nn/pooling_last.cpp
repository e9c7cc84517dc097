// Pooling of images whose channels lie next to each other: a window's elements are rows of channels. The numbers are
// those of the other kernels, which go down the columns of a window first.
#include "common/image_layout.h"
#include "nn/pooling.h"

namespace norch::nn {
namespace {

using reduction::Largest;

constexpr int64_t AT_ONCE = 64;  // channels

/// Some channels of one image.
struct Part {
    Part(const Pool& p, int64_t item) {
        const int64_t each = (p.channels + AT_ONCE - 1) / AT_ONCE;
        image = item / each;
        first = item % each * AT_ONCE;
        count = std::min(AT_ONCE, p.channels - first);
    }
    static int64_t items(const Pool& p) { return p.planes / std::max<int64_t>(p.channels, 1) * ((p.channels + AT_ONCE - 1) / AT_ONCE); }
    int64_t image, first, count;
};

template <class F, class S>
void pool_pixel(const Pool& p, const Planes& from, const S* image, int64_t y, int64_t x, compute_t<S>* column,
                compute_t<S>* value, S* out) {
    using T = compute_t<S>;
    for (int64_t j = 0; j < p.kw; ++j) {
        const int64_t at_x = x * p.step_x - p.left + j * p.gap_x;
        T* to = j ? column : value;
        bool is_first = true;
        for (int64_t i = 0; i < p.kh && at_x >= 0 && at_x < p.w; ++i) {
            const int64_t at_y = y * p.step_y - p.top + i * p.gap_y;
            if (at_y < 0 || at_y >= p.h) continue;
            const S* pixel = image + at_y * from.row + at_x * from.column;
            if (is_first) {
                for (int64_t c = 0; c < p.channels; ++c) to[c] = load(pixel[c]);
            } else {
                NORCH_INDEPENDENT
                for (int64_t c = 0; c < p.channels; ++c) to[c] = F::apply(to[c], T(load(pixel[c])));
            }
            is_first = false;
        }
        if (is_first) std::fill_n(to, p.channels, F::template empty<T>);
        if (!j) continue;
        NORCH_INDEPENDENT
        for (int64_t c = 0; c < p.channels; ++c) value[c] = F::apply(value[c], column[c]);
    }
    for (int64_t c = 0; c < p.channels; ++c) out[c] = store<S>(value[c]);
}

template <class F, class S>
[[gnu::cold]] KernelPtr forward(const Request& r) {
    using T = compute_t<S>;
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    const double ns = double(p.columns * p.channels) * 0.1 * (1 + p.window());
    return parallel_kernel(r.operands[0].shape[0] * p.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> lines(2 * p.channels);
        for (int64_t i = begin; i < end; ++i) {
            const S* image = reinterpret_cast<const S*>(data[1]) + i / p.rows * from.n;
            S* out = reinterpret_cast<S*>(data[0]) + i * p.columns * p.channels;
            for (int64_t x = 0; x < p.columns; ++x)
                pool_pixel<F>(p, from, image, i % p.rows, x, lines.data(), lines.data() + p.channels, out + x * p.channels);
        }
    });
}

/// For each channel the offset of the first largest element of a window; the nearest if the window has none.
template <class S>
void places(const Pool& p, const Planes& from, const S* image, int64_t y, int64_t x, int64_t count, compute_t<S>* best,
            int32_t* at) {
    using T = compute_t<S>;
    const int64_t top = y * p.step_y - p.top, left = x * p.step_x - p.left;
    const auto nearest = int32_t(std::clamp<int64_t>(top, 0, p.h - 1) * p.w + std::clamp<int64_t>(left, 0, p.w - 1));
    bool is_first = true;
    for (int64_t i = 0; i < p.kh; ++i) {
        for (int64_t j = 0; j < p.kw; ++j) {
            const int64_t at_y = top + i * p.gap_y, at_x = left + j * p.gap_x;
            if (at_y < 0 || at_y >= p.h || at_x < 0 || at_x >= p.w) continue;
            const S* pixel = image + at_y * from.row + at_x * from.column;
            const auto here = int32_t(at_y * p.w + at_x);
            NORCH_INDEPENDENT
            for (int64_t c = 0; c < count; ++c) {
                const T value = load(pixel[c]), old = best[c];
                const bool is_better = is_first | (value > old) | ((value != value) & (old == old));
                best[c] = is_better ? value : old;
                at[c] = is_better ? here : at[c];
            }
            is_first = false;
        }
    }
    if (is_first) std::fill_n(at, count, nearest);
}

template <class S>
[[gnu::cold]] KernelPtr max_grad(const Request& r) {
    using T = compute_t<S>;
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]), from(r.operands[2]);
    const double ns = double(std::min(AT_ONCE, p.channels)) * (double(p.rows * p.columns) * p.window() + double(p.h * p.w));
    return parallel_kernel(Part::items(p), ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> sums(p.h * p.w * AT_ONCE);
        T best[AT_ONCE] = {};
        int32_t at[AT_ONCE] = {};
        for (int64_t item = begin; item < end; ++item) {
            const Part part(p, item);
            const S* image = reinterpret_cast<const S*>(data[2]) + part.image * from.n + part.first;
            const S* g = reinterpret_cast<const S*>(data[1]) + part.image * grads.n + part.first * grads.c;
            S* out = reinterpret_cast<S*>(data[0]) + part.image * p.h * p.w * p.channels + part.first;
            std::fill_n(sums.data(), p.h * p.w * AT_ONCE, T(0));
            for (int64_t y = 0; y < p.rows; ++y) {
                for (int64_t x = 0; x < p.columns; ++x) {
                    places(p, from, image, y, x, part.count, best, at);
                    const S* each = g + y * grads.row + x * grads.column;
                    for (int64_t c = 0; c < part.count; ++c) sums[at[c] * AT_ONCE + c] += load(each[c * grads.c]);
                }
            }
            for (int64_t i = 0; i < p.h * p.w; ++i)
                for (int64_t c = 0; c < part.count; ++c) out[i * p.channels + c] = store<S>(sums[i * AT_ONCE + c]);
        }
    });
}

template <class S>
[[gnu::cold]] KernelPtr sum_grad(const Request& r) {
    using T = compute_t<S>;
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]);
    const double ns = double(p.w * p.channels) * (0.2 + 0.1 * p.window());
    return parallel_kernel(r.operands[0].shape[0] * p.h, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> lines(2 * p.channels);
        T *column = lines.data(), *value = column + p.channels;
        for (int64_t item = begin; item < end; ++item) {
            const int64_t y = item % p.h;
            const S* g = reinterpret_cast<const S*>(data[1]) + item / p.h * grads.n;
            S* out = reinterpret_cast<S*>(data[0]) + item * p.w * p.channels;
            for (int64_t x = 0; x < p.w; ++x, out += p.channels) {
                std::fill_n(value, p.channels, T(0));
                for (int64_t j = 0; j < p.kw; ++j) {
                    const int64_t at_x = x + p.left - j * p.gap_x;
                    if (at_x < 0 || at_x % p.step_x || at_x / p.step_x >= p.columns) continue;
                    std::fill_n(column, p.channels, T(0));
                    for (int64_t i = 0; i < p.kh; ++i) {
                        const int64_t at_y = y + p.top - i * p.gap_y;
                        if (at_y < 0 || at_y % p.step_y || at_y / p.step_y >= p.rows) continue;
                        const S* pixel = g + at_y / p.step_y * grads.row + at_x / p.step_x * grads.column;
                        NORCH_INDEPENDENT
                        for (int64_t c = 0; c < p.channels; ++c) column[c] += load(pixel[c]);
                    }
                    NORCH_INDEPENDENT
                    for (int64_t c = 0; c < p.channels; ++c) value[c] += column[c];
                }
                for (int64_t c = 0; c < p.channels; ++c) out[c] = store<S>(value[c]);
            }
        }
    });
}

bool are_last(const Request& r) {
    for (const Operand& o : r.operands)
        if (!is_channels_last(o) || o.dtype != r.operands[0].dtype) return false;
    return true;
}

}  // namespace

[[gnu::cold]] KernelPtr pooling_channels_last(const Request& r) {
    if (!are_last(r) || r.operands[0].numel() >= INT32_MAX) return nullptr;
    const DType dtype = r.operands[0].dtype;
    if (r.op == "max_pool2d") return visit(dtype, [&]<class S>(Tag<S>) { return forward<Largest, S>(r); });
    return visit_floating(dtype, [&]<class S>(Tag<S>) {
        if (r.op == "sum_pool2d") return forward<reduction::Sum, S>(r);
        return r.op == "max_pool2d_grad" ? max_grad<S>(r) : sum_grad<S>(r);
    });
}

}  // namespace norch::nn
