// batch_norm over (batch, channels, inner), and its gradient.
#include "common/scratch.h"
#include "nn/normalization.h"
#include "runtime/widen.h"

namespace norch::nn {
namespace {

constexpr double ELEMENT_NS = 0.2;
constexpr int64_t MIN_INNER = 8;  // with fewer contiguous elements a channel, channels go side by side
constexpr int64_t SIDE_BY_SIDE = 128, LEAST_SIDE_BY_SIDE = 16, ROWS = 64;

/// Columns that are computed together: fewer where threads would have nothing to do. The numbers do not depend on it.
int64_t side_by_side_columns(int64_t columns) {
    return std::clamp(columns / num_threads(), LEAST_SIDE_BY_SIDE, SIDE_BY_SIDE);
}

/// Rows of `width` elements, `stride` apart, from element `first` on.
struct Part {
    int64_t first, stride, rows, width;
};

struct Shape {
    int64_t batch, channels, inner;
    int64_t count() const { return batch * inner; }  // elements of a channel
    Part channel(int64_t i) const { return {i * inner, channels * inner, batch, inner}; }
};

Shape shape_of(const Operand& input) {
    Shape s{input.shape[0], input.shape[1], 1};
    for (int d = 2; d < input.ndim(); ++d) s.inner *= input.shape[d];
    return s;
}

/// One of the operands as large as the input: of what it is computed in, or, as all of them then, of 16-bit floats.
struct Elements {
    char* data;
    DType dtype;
};

/// Parts of such an operand as C: where they lie, or 16-bit floats as a copy in float32.
template <class C>
class View {
public:
    View(const Elements& of, int64_t most) : of_(of) {
        if (is_copy()) room_.emplace(most);
    }
    bool is_copy() const { return sizeof(C) == 4 && is_half(of_.dtype); }
    int64_t step(const Part& p) const { return is_copy() ? p.width : p.stride; }
    const C* load(const Part& p) {
        if (is_copy()) load_tile(here(p), there(p, of_), p.rows, p.width, 2, conversion_of(of_.dtype));
        return place(p, of_);
    }
    /// Where a part of `out` is to be computed, over what has been loaded if that is a copy, and from there to its place.
    C* place(const Part& p, const Elements& out) { return is_copy() ? room_->data() : reinterpret_cast<C*>(out.data) + p.first; }
    void store(const Part& p, const Elements& out) {
        if (is_copy()) store_tile(there(p, out), here(p), p.rows, p.width, 2, conversion_of(out.dtype));
    }

private:
    Plane here(const Part& p) { return {reinterpret_cast<char*>(room_->data()), p.width * int64_t(sizeof(C)), sizeof(C)}; }
    static Plane there(const Part& p, const Elements& e) { return {e.data + p.first * 2, p.stride * 2, 2}; }

    Elements of_;
    std::optional<Scratch<C>> room_;
};

/// What is given and wanted of all channels; weight and bias may be null. The variance is unbiased.
template <class C>
struct Forward {
    Shape shape;
    double eps;
    Elements input;
    const C *weight, *bias;
    Elements out;
    C *mean, *variance;
};
template <class C>
struct Backward {
    Shape shape;
    double eps;
    Elements grad, input;
    const C *weight, *given_mean, *given_variance;  // the last two null where they are those of the input
    Elements out;
    C *to_weight, *to_bias;
};

// --- Channels one by one --------------------------------------------------------------------------------------------

/// sums[k] += the sum of f(i)[k] over the elements of a channel, whose rows are `step` apart. Short ones share lanes.
template <int SUMS, class C, class F>
void sum_channel(const Shape& s, int64_t step, const F& f, double* sums) {
    if (s.inner >= SUM_BLOCK / 4) {
        for (int64_t k = 0; k < s.batch; ++k)
            add_sums<SUMS, C>(s.inner, [&](int64_t i) { return f(k * step + i); }, sums);
        return;
    }
    const int64_t each = SUM_BLOCK / s.inner;
    for (int64_t begin = 0; begin < s.batch; begin += each) {
        Lanes<C, SUMS, 2 * SIMD_WIDTH<C>> lanes;
        for (int64_t k = begin; k < std::min(s.batch, begin + each); ++k)
            lanes.add(s.inner, [&](int64_t i) { return f(k * step + i); });
        for (int j = 0; j < SUMS; ++j) sums[j] += lanes.sum(j);
    }
}

template <class C>
Mean<C> channel_mean(const C* input, const Shape& s, int64_t step) {
    const C first = *input;
    double sum = 0;
    sum_channel<1, C>(s, step, [=](int64_t i) { return std::array<C, 1>{input[i] - first}; }, &sum);
    return Mean<C>(first + sum / double(s.count()));
}

template <class C>
void forward_channel(const Forward<C>& f, int64_t channel) {
    const Shape& s = f.shape;
    const Part all = s.channel(channel);
    View<C> view(f.input, s.count());
    const C* input = view.load(all);
    const int64_t step = view.step(all);
    const Mean<C> centre = channel_mean(input, s, step);
    const C mean = centre.rounded;
    double square = 0;
    auto off = [=](int64_t i) { return std::array<C, 1>{(input[i] - mean) * (input[i] - mean)}; };
    sum_channel<1, C>(s, step, off, &square);
    const double count = double(s.count()), variance = centre.variance(square / count);
    f.mean[channel] = mean;
    f.variance[channel] = C(variance * count / std::max(count - 1, 1.0));
    const double factor = (f.weight ? double(f.weight[channel]) : 1) / std::sqrt(variance + f.eps);
    const C scale = C(factor), shift = C((f.bias ? double(f.bias[channel]) : 0) - centre.off * factor);
    C* const to = view.place(all, f.out);
    for (int64_t k = 0; k < s.batch; ++k) {
        const C* x = input + k * step;
        C* out = to + k * step;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < s.inner; ++i) out[i] = (x[i] - mean) * scale + shift;
    }
    view.store(all, f.out);
}

template <class C>
void backward_channel(const Backward<C>& b, int64_t channel) {
    const Shape& s = b.shape;
    const Part all = s.channel(channel);
    View<C> inputs(b.input, s.count()), grads(b.grad, s.count());
    const C *input = inputs.load(all), *grad = grads.load(all);
    const int64_t step = inputs.step(all);
    const Mean<C> centre = b.given_mean ? Mean<C>(double(b.given_mean[channel])) : channel_mean(input, s, step);
    const C mean = centre.rounded;
    double sums[3] = {};
    sum_channel<3, C>(s, step, [=](int64_t i) { return moments(input[i] - mean, grad[i]); }, sums);
    const double count = double(s.count());
    const double variance = b.given_mean ? double(b.given_variance[channel]) : centre.variance(sums[SQUARE] / count);
    const double factor = 1 / std::sqrt(variance + b.eps);
    const double product = centre.product(sums[PRODUCT], sums[GRAD]), slope_of_all = product / count * factor * factor;
    b.to_weight[channel] = C(product * factor);
    b.to_bias[channel] = C(sums[GRAD]);
    const C scale = C(factor * (b.weight ? double(b.weight[channel]) : 1));
    const C shift = C(sums[GRAD] / count - centre.off * slope_of_all), slope = C(slope_of_all);
    C* const to = grads.place(all, b.out);
    for (int64_t k = 0; k < s.batch; ++k) {
        const C *g = grad + k * step, *x = input + k * step;
        C* out = to + k * step;
        if (b.given_mean) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < s.inner; ++i) out[i] = g[i] * scale;
            continue;
        }
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < s.inner; ++i) out[i] = (g[i] - shift - (x[i] - mean) * slope) * scale;
    }
    grads.store(all, b.out);
}

// --- Channels side by side ------------------------------------------------------------------------------------------

/// Some channels as columns: `width` contiguous elements of each of `batch` rows, `inner` of them a channel.
struct Columns {
    Columns(const Shape& s, int64_t each, int64_t block)
        : first(block * each), channels(std::min(each, s.channels - first)), width(channels * s.inner),
          stride(s.channels * s.inner), batch(s.batch) {}
    Part rows(int64_t begin) const { return {begin * stride + first * width / channels, stride, std::min(ROWS, batch - begin), width}; }
    int64_t most() const { return std::min(ROWS, batch) * width; }  // elements of such a part

    int64_t first, channels, width, stride, batch;
};

/// Where rows are that are summed up; `grad` only where it is wanted.
template <class C>
struct Lines {
    const C *input, *grad;
};

/// sums[n][j] = the sum of f(input - centre[j], grad)[n] over all rows, of which load(part) returns the Lines, `step` apart.
template <int SUMS, class C, class Load, class F>
void sum_columns(const Columns& c, int64_t step, const C* centre, const Load& load, const F& f, double (*sums)[SIDE_BY_SIDE]) {
    constexpr int L = SIMD_WIDTH<C>, AT_ONCE = sizeof(C) == 8 ? 1 : SUMS == 1 ? 4 : 2;  // float64 is too rare for more code
    for (int n = 0; n < SUMS; ++n) std::fill_n(sums[n], c.width, 0.0);
    for (int64_t begin = 0; begin < c.batch; begin += ROWS) {
        const Part part = c.rows(begin);
        const Lines<C> lines = load(part);
        // Columns from j on, of which those from `first` on have not been summed yet.
        const auto sum = [&]<class V, int VECTORS>(Tag<V>, std::integral_constant<int, VECTORS>, int64_t j, int64_t first) {
            constexpr int WIDTH = int(sizeof(V) / sizeof(C));
            const auto at = [](const C* p, int i) NORCH_INLINE_LAMBDA {
                V out;
                std::memcpy(&out, p + i * WIDTH, sizeof out);
                return out;
            };
            V all[SUMS][VECTORS] = {};
            for (int64_t k = 0; k < part.rows; ++k) {
                NORCH_UNROLL
                for (int i = 0; i < VECTORS; ++i) {
                    const V off = at(lines.input + k * step + j, i) - at(centre + j, i);
                    const std::array<V, SUMS> values = f(off, SUMS > 1 ? at(lines.grad + k * step + j, i) : off);
                    NORCH_UNROLL
                    for (int n = 0; n < SUMS; ++n) all[n][i] += values[size_t(n)];
                }
            }
            for (int n = 0; n < SUMS; ++n) {
                C numbers[VECTORS * WIDTH];
                std::memcpy(numbers, all[n], sizeof numbers);
                for (int64_t i = first - j; i < VECTORS * WIDTH; ++i) sums[n][j + i] += double(numbers[i]);
            }
        };
        using V = vector_t<C, L>;
        constexpr std::integral_constant<int, 1> one;
        int64_t j = 0;
        for (; j + AT_ONCE * L <= c.width; j += AT_ONCE * L) sum(Tag<V>(), std::integral_constant<int, AT_ONCE>(), j, j);
        if constexpr (AT_ONCE > 1)
            for (; j + L <= c.width; j += L) sum(Tag<V>(), one, j, j);
        if (j < c.width && c.width > L) sum(Tag<V>(), one, c.width - L, j);
        else
            for (; j < c.width; ++j) sum(Tag<C>(), one, j, j);
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
void column_means(View<C>& view, const Shape& s, const Columns& c, C* mean, double* off) {
    C first[SIDE_BY_SIDE];
    std::copy_n(view.load(c.rows(0)), c.width, first);
    double sums[1][SIDE_BY_SIDE];
    sum_columns<1>(c, view.step(c.rows(0)), first, [&](const Part& p) { return Lines<C>{view.load(p), nullptr}; },
                   [](const auto& off, const auto&) { return std::array{off}; }, sums);
    for (int64_t j = 0; j < c.width; ++j) sums[0][j] += double(s.batch) * double(first[j]);
    share(sums[0], s, c);
    for (int64_t j = 0; j < c.width; ++j) {
        const Mean<C> centre(sums[0][j] / double(s.count()));
        mean[j] = centre.rounded, off[j] = centre.off;
    }
}

/// The variance out of the sum of squares of numbers less the mean's first part.
double variance_of(double square, double off, const Shape& s) { return std::max(square / double(s.count()) - off * off, 0.0); }

template <class C>
void forward_columns(const Forward<C>& f, int64_t each, int64_t block) {
    const Shape& s = f.shape;
    const Columns c(s, each, block);
    View<C> view(f.input, c.most());
    const int64_t step = view.step(c.rows(0));
    C mean[SIDE_BY_SIDE], scale[SIDE_BY_SIDE], shift[SIDE_BY_SIDE];
    double squares[1][SIDE_BY_SIDE], off[SIDE_BY_SIDE];
    column_means(view, s, c, mean, off);
    sum_columns<1>(c, step, mean, [&](const Part& p) { return Lines<C>{view.load(p), nullptr}; },
                   [](const auto& off, const auto&) { return std::array{off * off}; }, squares);
    share(squares[0], s, c);
    for (int64_t j = 0; j < c.width; ++j) {
        const int64_t channel = c.first + j / s.inner;
        const double variance = variance_of(squares[0][j], off[j], s);
        f.mean[channel] = mean[j];
        f.variance[channel] = C(variance * double(s.count()) / double(std::max<int64_t>(s.count() - 1, 1)));
        const double factor = (f.weight ? double(f.weight[channel]) : 1) / std::sqrt(variance + f.eps);
        scale[j] = C(factor);
        shift[j] = C((f.bias ? double(f.bias[channel]) : 0) - off[j] * factor);
    }
    for (int64_t begin = 0; begin < s.batch; begin += ROWS) {
        const Part part = c.rows(begin);
        const C* x = view.load(part);
        C* out = view.place(part, f.out);
        for (int64_t k = 0; k < part.rows; ++k, x += step, out += step) {
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < c.width; ++j) out[j] = (x[j] - mean[j]) * scale[j] + shift[j];
        }
        view.store(part, f.out);
    }
}

template <class C>
void backward_columns(const Backward<C>& b, int64_t each, int64_t block) {
    const Shape& s = b.shape;
    const Columns c(s, each, block);
    View<C> inputs(b.input, c.most()), grads(b.grad, c.most());
    const int64_t step = inputs.step(c.rows(0));
    C mean[SIDE_BY_SIDE], scale[SIDE_BY_SIDE], shift[SIDE_BY_SIDE], slope[SIDE_BY_SIDE];
    double sums[3][SIDE_BY_SIDE], off[SIDE_BY_SIDE];
    for (int64_t j = 0; b.given_mean && j < c.width; ++j) mean[j] = b.given_mean[c.first + j / s.inner], off[j] = 0;
    if (!b.given_mean) column_means(inputs, s, c, mean, off);
    sum_columns<3>(c, step, mean, [&](const Part& p) { return Lines<C>{inputs.load(p), grads.load(p)}; },
                   [](const auto& off, const auto& g) { return moments(off, g); }, sums);
    for (double* of : sums) share(of, s, c);
    const double count = double(s.count());
    for (int64_t j = 0; j < c.width; ++j) {
        const int64_t channel = c.first + j / s.inner;
        const double variance = b.given_mean ? double(b.given_variance[channel]) : variance_of(sums[SQUARE][j], off[j], s);
        const double factor = 1 / std::sqrt(variance + b.eps);
        const double product = sums[PRODUCT][j] - off[j] * sums[GRAD][j], slope_of_all = product / count * factor * factor;
        b.to_weight[channel] = C(product * factor);
        b.to_bias[channel] = C(sums[GRAD][j]);
        scale[j] = C(factor * (b.weight ? double(b.weight[channel]) : 1));
        slope[j] = C(slope_of_all);
        shift[j] = C(sums[GRAD][j] / count - off[j] * slope_of_all);
    }
    for (int64_t begin = 0; begin < s.batch; begin += ROWS) {
        const Part part = c.rows(begin);
        const C *x = inputs.load(part), *g = grads.load(part);
        C* out = grads.place(part, b.out);
        for (int64_t k = 0; k < part.rows; ++k, x += step, g += step, out += step) {
            if (b.given_mean) {
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < c.width; ++j) out[j] = g[j] * scale[j];
                continue;
            }
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < c.width; ++j) out[j] = (g[j] - shift[j] - (x[j] - mean[j]) * slope[j]) * scale[j];
        }
        grads.store(part, b.out);
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

/// Three outputs. GRAD: grad, input, with RUNNING its mean and variance, weight where it is given; else input, weight and bias
/// where they are given.
template <bool GRAD, bool RUNNING = false>
[[gnu::cold]] KernelPtr batch_norm(const Request& request) {
    const Operand& out = request.operands[0];
    if (!fits(request, out) || !out.numel()) return nullptr;
    const auto& given = request.attrs.integers("given");
    const int input = GRAD ? 4 : 3, mean = RUNNING ? input + 1 : 0, first = RUNNING ? input + 3 : input + 1;
    const int weight = given[RUNNING ? 4 : GRAD ? 2 : 1] ? first : 0;
    const int bias = !GRAD && given[2] ? input + 1 + int(given[1]) : 0;
    const Shape shape = shape_of(out);
    const double eps = request.attrs.number("eps");
    std::vector<DType> wanted(request.operands.size(), computed_dtype(out.dtype));
    bool are_halves = is_half(out.dtype);
    for (const int i : {0, 3, input}) {
        const DType dtype = request.operands[size_t(i)].dtype;
        are_halves &= is_half(dtype) && (HAS_HALF || dtype != DType::f16);  // each is brought to float32 three times
    }
    for (const int i : {0, 3, input})
        if (are_halves) wanted[size_t(i)] = request.operands[size_t(i)].dtype;
    if (are_halves && shape.inner >= MIN_INNER)  // the channels that threads have in float32
        note_scratch(std::min<int64_t>(num_threads(), shape.channels) * (GRAD ? 2 : 1) * shape.count() * int64_t(sizeof(float)));
    return by_compute_type(out, [&]<class C>(Tag<C>, DType) -> KernelPtr {
        const double ns = (GRAD ? 2 : 1) * ELEMENT_NS * sizeof(C) / 4;
        const DType given = wanted[3], last = wanted[size_t(input)], result = wanted[0];
        auto body = [=](char* const* data, const Scalar*) {
            auto at = [&](int i) { return reinterpret_cast<C*>(data[i]); };
            const C *w = weight ? at(weight) : nullptr, *b = bias ? at(bias) : nullptr;
            if constexpr (GRAD) {
                const C *means = mean ? at(mean) : nullptr, *variances = mean ? at(mean + 1) : nullptr;
                const Backward<C> g{shape, eps, {data[3], given}, {data[input], last}, w, means, variances, {data[0], result}, at(1), at(2)};
                auto one = [&](int64_t i) { backward_channel(g, i); };
                for_channels(shape, ns, one, [&](int64_t n, int64_t i) { backward_columns(g, n, i); });
            } else {
                const Forward<C> f{shape, eps, {data[input], last}, w, b, {data[0], result}, at(1), at(2)};
                auto one = [&](int64_t i) { forward_channel(f, i); };
                for_channels(shape, ns, one, [&](int64_t n, int64_t i) { forward_columns(f, n, i); });
            }
        };
        return Staged::make(request, 3, wanted, make_kernel(double(out.numel()) * ns, body));
    });
}

}  // namespace

void add_channel_normalization(Registry& registry) {
    registry["batch_norm"] = batch_norm<false>;
    registry["batch_norm_grad"] = batch_norm<true>;
    registry["batch_norm_running_grad"] = batch_norm<true, true>;
}

}  // namespace norch::nn
