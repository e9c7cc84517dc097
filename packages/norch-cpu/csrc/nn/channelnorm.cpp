// batch_norm over (batch, channels, inner), and its gradient.
#include "nn/normalization.h"

namespace norch::nn {
namespace {

constexpr double ELEMENT_NS = 0.2;
constexpr int64_t MIN_INNER = 8;  // with fewer contiguous elements a channel, channels go side by side
constexpr int64_t SIDE_BY_SIDE = 128, LEAST_SIDE_BY_SIDE = 16, ROWS = 128;

/// Columns that are computed together: fewer where threads would have nothing to do. The numbers do not depend on it.
int64_t side_by_side_columns(int64_t columns) {
    return std::clamp(columns / num_threads(), LEAST_SIDE_BY_SIDE, SIDE_BY_SIDE);
}

struct Shape {
    int64_t batch, channels, inner;
    int64_t count() const { return batch * inner; }  // elements of a channel
};

Shape shape_of(const Operand& input) {
    Shape s{input.shape[0], input.shape[1], 1};
    for (int d = 2; d < input.ndim(); ++d) s.inner *= input.shape[d];
    return s;
}

/// What is given and wanted of all channels; weight and bias may be null. The variance is unbiased.
template <class C>
struct Forward {
    Shape shape;
    double eps;
    const C *input, *weight, *bias;
    C *out, *mean, *variance;
};
template <class C>
struct Backward {
    Shape shape;
    double eps;
    const C *grad, *input, *weight;
    C *out, *to_weight, *to_bias;
};

// --- Channels one by one --------------------------------------------------------------------------------------------

/// Calls body(offset) for each piece of a channel: `inner` contiguous elements.
template <class Body>
void for_pieces(const Shape& s, int64_t channel, const Body& body) {
    for (int64_t k = 0; k < s.batch; ++k) body((k * s.channels + channel) * s.inner);
}

/// sums[k] += the sum of f(i)[k] over the elements of a channel. Short pieces share lanes.
template <int SUMS, class C, class F>
void sum_channel(const Shape& s, int64_t channel, const F& f, double* sums) {
    if (s.inner >= SUM_BLOCK / 4) {
        for_pieces(s, channel, [&](int64_t at) {
            add_sums<SUMS, C>(s.inner, [&](int64_t i) { return f(at + i); }, sums);
        });
        return;
    }
    const int64_t each = SUM_BLOCK / s.inner;
    for (int64_t begin = 0; begin < s.batch; begin += each) {
        Lanes<C, SUMS, 2 * SIMD_WIDTH<C>> lanes;
        for (int64_t k = begin; k < std::min(s.batch, begin + each); ++k) {
            const int64_t at = (k * s.channels + channel) * s.inner;
            lanes.add(s.inner, [&](int64_t i) { return f(at + i); });
        }
        for (int j = 0; j < SUMS; ++j) sums[j] += lanes.sum(j);
    }
}

template <class C>
Mean<C> channel_mean(const C* input, const Shape& s, int64_t channel) {
    const C first = input[channel * s.inner];
    double sum = 0;
    sum_channel<1, C>(s, channel, [=](int64_t i) { return std::array<C, 1>{input[i] - first}; }, &sum);
    return Mean<C>(first + sum / double(s.count()));
}

template <class C>
void forward_channel(const Forward<C>& f, int64_t channel) {
    const Shape& s = f.shape;
    const C* input = f.input;
    const Mean<C> centre = channel_mean(input, s, channel);
    const C mean = centre.rounded;
    double square = 0;
    auto off = [=](int64_t i) { return std::array<C, 1>{(input[i] - mean) * (input[i] - mean)}; };
    sum_channel<1, C>(s, channel, off, &square);
    const double count = double(s.count()), variance = centre.variance(square / count);
    f.mean[channel] = mean;
    f.variance[channel] = C(variance * count / std::max(count - 1, 1.0));
    const double factor = (f.weight ? double(f.weight[channel]) : 1) / std::sqrt(variance + f.eps);
    const C scale = C(factor), shift = C((f.bias ? double(f.bias[channel]) : 0) - centre.off * factor);
    for_pieces(s, channel, [&](int64_t at) {
        const C* x = input + at;
        C* out = f.out + at;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < s.inner; ++i) out[i] = (x[i] - mean) * scale + shift;
    });
}

template <class C>
void backward_channel(const Backward<C>& b, int64_t channel) {
    const Shape& s = b.shape;
    const C *input = b.input, *grad = b.grad;
    const Mean<C> centre = channel_mean(input, s, channel);
    const C mean = centre.rounded;
    double sums[3] = {};
    sum_channel<3, C>(s, channel, [=](int64_t i) { return moments(input[i] - mean, grad[i]); }, sums);
    const double count = double(s.count()), factor = 1 / std::sqrt(centre.variance(sums[SQUARE] / count) + b.eps);
    const double product = centre.product(sums[PRODUCT], sums[GRAD]), slope_of_all = product / count * factor * factor;
    b.to_weight[channel] = C(product * factor);
    b.to_bias[channel] = C(sums[GRAD]);
    const C scale = C(factor * (b.weight ? double(b.weight[channel]) : 1));
    const C shift = C(sums[GRAD] / count - centre.off * slope_of_all), slope = C(slope_of_all);
    for_pieces(s, channel, [&](int64_t at) {
        const C *g = grad + at, *x = input + at;
        C* out = b.out + at;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < s.inner; ++i) out[i] = (g[i] - shift - (x[i] - mean) * slope) * scale;
    });
}

// --- Channels side by side ------------------------------------------------------------------------------------------

/// Some channels as columns: `width` contiguous elements of each of `batch` rows, `inner` of them a channel.
struct Columns {
    Columns(const Shape& s, int64_t each, int64_t block)
        : first(block * each),
          channels(std::min(each, s.channels - first)), width(channels * s.inner), stride(s.channels * s.inner),
          start(first * s.inner) {}
    int64_t first, channels, width, stride, start;
};

/// sums[j] = the sum of f(row start, j) over all rows.
template <class C, class F>
void sum_columns(const Shape& s, const Columns& c, double* sums, const F& f) {
    std::fill_n(sums, c.width, 0.0);
    for (int64_t begin = 0; begin < s.batch; begin += ROWS) {
        C part[SIDE_BY_SIDE] = {};
        for (int64_t k = begin; k < std::min(s.batch, begin + ROWS); ++k) {
            const int64_t at = k * c.stride + c.start;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < c.width; ++j) part[j] += f(at, j);
        }
        for (int64_t j = 0; j < c.width; ++j) sums[j] += double(part[j]);
    }
}

/// Gives each of a channel's columns the sum of all of them.
void share(double* sums, const Shape& s, const Columns& c) {
    for (int64_t k = 0; k < c.channels; ++k) {
        double sum = 0;
        for (int64_t i = 0; i < s.inner; ++i) sum += sums[k * s.inner + i];
        std::fill_n(sums + k * s.inner, s.inner, sum);
    }
}

/// Each column's mean, in two parts as `Mean` has them.
template <class C>
void column_means(const C* input, const Shape& s, const Columns& c, C* mean, double* off) {
    const C* first = input + c.start;
    double sums[SIDE_BY_SIDE];
    sum_columns<C>(s, c, sums, [=](int64_t at, int64_t j) { return input[at + j] - first[j]; });
    for (int64_t j = 0; j < c.width; ++j) sums[j] += double(s.batch) * double(first[j]);
    share(sums, s, c);
    for (int64_t j = 0; j < c.width; ++j) {
        const Mean<C> centre(sums[j] / double(s.count()));
        mean[j] = centre.rounded, off[j] = centre.off;
    }
}

template <class C>
void column_factors(const C* input, const Shape& s, const Columns& c, const C* mean, const double* off,
                    double* variance) {
    sum_columns<C>(s, c, variance, [=](int64_t at, int64_t j) {
        const C away = input[at + j] - mean[j];
        return away * away;
    });
    share(variance, s, c);
    for (int64_t j = 0; j < c.width; ++j) variance[j] = std::max(variance[j] / double(s.count()) - off[j] * off[j], 0.0);
}

template <class C>
void forward_columns(const Forward<C>& f, int64_t each, int64_t block) {
    const Shape& s = f.shape;
    const Columns c(s, each, block);
    C mean[SIDE_BY_SIDE], scale[SIDE_BY_SIDE], shift[SIDE_BY_SIDE];
    double variance[SIDE_BY_SIDE], off[SIDE_BY_SIDE];
    column_means(f.input, s, c, mean, off);
    column_factors(f.input, s, c, mean, off, variance);
    for (int64_t j = 0; j < c.width; ++j) {
        const int64_t channel = c.first + j / s.inner;
        f.mean[channel] = mean[j];
        f.variance[channel] = C(variance[j] * double(s.count()) / double(std::max<int64_t>(s.count() - 1, 1)));
        const double factor = (f.weight ? double(f.weight[channel]) : 1) / std::sqrt(variance[j] + f.eps);
        scale[j] = C(factor);
        shift[j] = C((f.bias ? double(f.bias[channel]) : 0) - off[j] * factor);
    }
    for (int64_t k = 0; k < s.batch; ++k) {
        const C* x = f.input + k * c.stride + c.start;
        C* out = f.out + k * c.stride + c.start;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < c.width; ++j) out[j] = (x[j] - mean[j]) * scale[j] + shift[j];
    }
}

template <class C>
void backward_columns(const Backward<C>& b, int64_t each, int64_t block) {
    const Shape& s = b.shape;
    const Columns c(s, each, block);
    const C *input = b.input, *grad = b.grad;
    C mean[SIDE_BY_SIDE], scale[SIDE_BY_SIDE], shift[SIDE_BY_SIDE], slope[SIDE_BY_SIDE];
    double variance[SIDE_BY_SIDE], off[SIDE_BY_SIDE], sums[SIDE_BY_SIDE], products[SIDE_BY_SIDE];
    const C* means = mean;
    column_means(input, s, c, mean, off);
    column_factors(input, s, c, mean, off, variance);
    sum_columns<C>(s, c, sums, [=](int64_t at, int64_t j) { return grad[at + j]; });
    sum_columns<C>(s, c, products, [=](int64_t at, int64_t j) { return grad[at + j] * (input[at + j] - means[j]); });
    share(sums, s, c);
    share(products, s, c);
    const double count = double(s.count());
    for (int64_t j = 0; j < c.width; ++j) {
        const int64_t channel = c.first + j / s.inner;
        const double factor = 1 / std::sqrt(variance[j] + b.eps), product = products[j] - off[j] * sums[j];
        const double slope_of_all = product / count * factor * factor;
        b.to_weight[channel] = C(product * factor);
        b.to_bias[channel] = C(sums[j]);
        scale[j] = C(factor * (b.weight ? double(b.weight[channel]) : 1));
        slope[j] = C(slope_of_all);
        shift[j] = C(sums[j] / count - off[j] * slope_of_all);
    }
    for (int64_t k = 0; k < s.batch; ++k) {
        const int64_t at = k * c.stride + c.start;
        const C *g = grad + at, *x = input + at;
        C* out = b.out + at;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < c.width; ++j) out[j] = (g[j] - shift[j] - (x[j] - mean[j]) * slope[j]) * scale[j];
    }
}

// --- The kernels ----------------------------------------------------------------------------------------------------

/// Calls one(channel) or side_by_side(channels at once, block) for all channels.
template <class One, class Block>
void for_channels(const Shape& s, double ns, const One& one, const Block& side_by_side) {
    if (s.inner >= MIN_INNER) {
        parallel_for(s.channels, ns * double(s.count()), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) one(i);
        });
        return;
    }
    const int64_t inner = std::max<int64_t>(s.inner, 1);
    const int64_t each = std::max<int64_t>(1, side_by_side_columns(s.channels * inner) / inner);
    parallel_for((s.channels + each - 1) / each, ns * double(s.count() * each), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) side_by_side(each, i);
    });
}

/// Three outputs. GRAD: grad, input, weight where it is given; else input, weight and bias where they are given.
template <bool GRAD>
[[gnu::cold]] KernelPtr batch_norm(const Request& request) {
    const Operand& out = request.operands[0];
    if (!fits(request, out) || !out.numel()) return nullptr;
    const auto& given = request.attrs.integers("given");
    const int input = GRAD ? 4 : 3, weight = given[GRAD ? 2 : 1] ? input + 1 : 0;
    const int bias = !GRAD && given[2] ? input + 1 + int(given[1]) : 0;
    const Shape shape = shape_of(out);
    const double eps = request.attrs.number("eps");
    return by_compute_type(out, [&]<class C>(Tag<C>, DType compute) -> KernelPtr {
        const double ns = (GRAD ? 2 : 1) * ELEMENT_NS * sizeof(C) / 4;
        auto body = [=](char* const* data) {
            auto at = [&](int i) { return reinterpret_cast<C*>(data[i]); };
            const C *w = weight ? at(weight) : nullptr, *b = bias ? at(bias) : nullptr;
            if constexpr (GRAD) {
                const Backward<C> g{shape, eps, at(3), at(input), w, at(0), at(1), at(2)};
                auto one = [&](int64_t i) { backward_channel(g, i); };
                for_channels(shape, ns, one, [&](int64_t n, int64_t i) { backward_columns(g, n, i); });
            } else {
                const Forward<C> f{shape, eps, at(input), w, b, at(0), at(1), at(2)};
                auto one = [&](int64_t i) { forward_channel(f, i); };
                for_channels(shape, ns, one, [&](int64_t n, int64_t i) { forward_columns(f, n, i); });
            }
        };
        return staged(request, 3, compute, double(out.numel()) * ns, body);
    });
}

}  // namespace

void add_channel_normalization(Registry& registry) {
    registry["batch_norm"] = batch_norm<false>;
    registry["batch_norm_grad"] = batch_norm<true>;
}

}  // namespace norch::nn
