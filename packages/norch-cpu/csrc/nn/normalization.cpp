// layer_norm and rms_norm, and their gradients: rows of contiguous elements.
#include "nn/normalization.h"

namespace norch::nn {
namespace {

constexpr double ELEMENT_NS = 0.2, ROW_NS = 25;

constexpr int64_t MAX_ROWS = 16;
constexpr int64_t LONG_ROW = 512;

/// Rows that go through each phase together: what one row waits for, the next ones need not. They stay in the cache.
int64_t rows_together(int64_t n) { return std::min(MAX_ROWS, std::max<int64_t>(1, 4096 / std::max<int64_t>(n, 1))); }

/// Calls body(row, count) for the rows of a range, some at a time.
template <class Body>
void for_rows(int64_t begin, int64_t end, int64_t n, const Body& body) {
    const int64_t step = rows_together(n);
    for (int64_t r = begin; r < end; r += step) body(r, std::min(step, end - r));
}

template <class C>
void means(const C* x, int64_t rows, int64_t n, Mean<C>* mean) {
    const double share = 1 / double(n);
    for (int64_t r = 0; r < rows; ++r, x += n) {
        const C first = *x;
        mean[r] = Mean<C>(first + total<C>(n, [=](int64_t i) { return x[i] - first; }) * share);
    }
}

template <class C>
struct Statistics {
    Statistics() = default;
    Statistics(const Mean<C>& centre, double square, double eps)
        : mean(centre.rounded),
          factor(C(1) / std::sqrt(C(centre.variance(square) + eps))),
          shift(-C(centre.off) * factor) {}
    C mean, factor, shift;  // an element becomes (x - mean) * factor + shift
};

/// Two passes, so that a mean that is large next to the deviation does no harm. Without `Centred` the mean counts as 0.
template <bool Centred, class C>
void statistics(const C* x, int64_t rows, int64_t n, double eps, Statistics<C>* out) {
    const double share = 1 / double(n);
    Mean<C> mean[MAX_ROWS];
    double square[MAX_ROWS];
    if (Centred) means(x, rows, n, mean);
    for (int64_t r = 0; r < rows; ++r, x += n) {
        const C centre = mean[r].rounded;
        square[r] = total<C>(n, [=](int64_t i) { return (x[i] - centre) * (x[i] - centre); }) * share;
    }
    for (int64_t r = 0; r < rows; ++r) out[r] = Statistics<C>(mean[r], square[r], eps);
}

/// Asks for a row before it is needed: the processor's own prefetching stops at the end of each page.
template <class C>
void prefetch(const C* x, int64_t n) {
    for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(C))) __builtin_prefetch(x + i, 0, 2);
}

/// loop(f), where f(i) is element i of a row of the result.
template <class C, class F>
auto with_result(const C* x, const C* weight, const C* bias, Statistics<C> s, const F& loop) {
    auto y = [=](int64_t i) { return (x[i] - s.mean) * s.factor + s.shift; };
    if (weight && bias) return loop([=](int64_t i) { return y(i) * weight[i] + bias[i]; });
    if (weight) return loop([=](int64_t i) { return y(i) * weight[i]; });
    if (bias) return loop([=](int64_t i) { return y(i) + bias[i]; });
    return loop(y);
}

template <bool Centred, class C>
void normalize_short(C* out, const C* x, const C* weight, const C* bias, int64_t rows, int64_t n, double eps) {
    Statistics<C> found[MAX_ROWS];
    statistics<Centred>(x, rows, n, eps, found);
    for (int64_t r = 0; r < rows; ++r, out += n, x += n) {
        with_result(x, weight, bias, found[r], [=](auto y) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < n; ++i) out[i] = y(i);
        });
    }
}

/// While a row is written, the next one is fetched: its elements, or their squares, are added up.
template <bool Centred, class C>
void normalize_long(C* out, const C* x, const C* weight, const C* bias, int64_t rows, int64_t n, double eps) {
    const double share = 1 / double(n);
    C first = *x;
    double sum = total<C>(n, [=](int64_t i) { return Centred ? x[i] - first : x[i] * x[i]; });
    for (int64_t r = 0; r < rows; ++r, out += n) {
        const Mean<C> centre = Centred ? Mean<C>(first + sum * share) : Mean<C>();
        const C mean = centre.rounded;
        if (Centred) sum = total<C>(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
        const Statistics<C> found(centre, sum * share, eps);
        const C* next = r + 1 < rows ? x + n : x;
        const C next_first = first = *next;
        sum = with_result(x, weight, bias, found, [=](auto y) {
            return total<C>(n, [=](int64_t i) {
                out[i] = y(i);
                return Centred ? next[i] - next_first : next[i] * next[i];
            });
        });
        x = next;
    }
}

/// Rows of 16-bit floats that are brought to float32 at a time: they stay in the cache.
int64_t halves_together(int64_t n) { return std::clamp<int64_t>(8192 / std::max<int64_t>(n, 1), 1, MAX_ROWS); }

void load_rows(const char* from, DType dtype, int64_t first, int64_t count, int64_t n, float* to) {
    convert_line(from + first * n * size_of(dtype), dtype, count * n, reinterpret_cast<char*>(to), DType::f32);
}
void store_rows(const float* from, char* to, DType dtype, int64_t first, int64_t count, int64_t n) {
    convert_line(reinterpret_cast<const char*>(from), DType::f32, count * n, to + first * n * size_of(dtype), dtype);
}

/// Whether rows are of 16-bit floats, `images` operands after the outputs alike, and all lies as it is wanted.
bool are_halves(const Request& request, int outputs, int images) {
    const Operand& out = request.operands[0];
    if (!is_half(out.dtype) || !out.numel() || !are_plain(request, out)) return false;
    for (int i = 0; i < images; ++i)
        if (request.operands[size_t(outputs + i)].dtype != out.dtype) return false;
    return true;
}

template <bool Centred>
[[gnu::cold]] KernelPtr forward_halves(const Request& request, int weight, int bias, int64_t n, int64_t rows, double eps) {
    const DType dtype = request.operands[0].dtype;
    const DType of_weight = request.operands[size_t(weight)].dtype, of_bias = request.operands[size_t(bias)].dtype;
    const double ns = ELEMENT_NS * double(n) + ROW_NS;
    return make_kernel(double(rows) * ns, [=](char* const* data, const Scalar*) {
        const Parameter<float> w(weight ? data[weight] : nullptr, of_weight, n), b(bias ? data[bias] : nullptr, of_bias, n);
        parallel_for(rows, ns, [&](int64_t begin, int64_t end) {
            const int64_t step = halves_together(n);
            const Scratch<float> room(step * n);
            for (int64_t r = begin; r < end; r += step) {
                const int64_t count = std::min(step, end - r);
                load_rows(data[1], dtype, r, count, n, room.data());
                const auto run = n >= LONG_ROW ? normalize_long<Centred, float> : normalize_short<Centred, float>;
                run(room.data(), room.data(), w.data(), b.data(), count, n, eps);
                store_rows(room.data(), data[0], dtype, r, count, n);
            }
        });
    });
}

template <bool Centred>
[[gnu::cold]] KernelPtr forward(const Request& request) {
    const Operand& out = request.operands[0];
    if (!fits(request, out)) return nullptr;
    const auto& given = request.attrs.integers("given");
    int weight = given[1] ? 2 : 0, bias = Centred && given[2] ? 2 + int(given[1]) : 0;
    int64_t n = row_size(request), rows = n ? out.numel() / n : 0;
    double eps = request.attrs.number("eps");
    if (are_halves(request, 1, 1)) return forward_halves<Centred>(request, weight, bias, n, rows, eps);
    return by_compute_type(out, [&]<class C>(Tag<C>, DType compute) -> KernelPtr {
        double ns = ELEMENT_NS * double(n) * sizeof(C) / 4 + ROW_NS;
        auto body = [=](char* const* data) {
            const C* w = weight ? reinterpret_cast<const C*>(data[weight]) : nullptr;
            const C* b = bias ? reinterpret_cast<const C*>(data[bias]) : nullptr;
            parallel_for(rows, ns, [&](int64_t begin, int64_t end) {
                const C* x = reinterpret_cast<const C*>(data[1]);
                C* to = reinterpret_cast<C*>(data[0]);
                if constexpr (sizeof(C) == 4)  // float64 is too rare for 50 KB of code
                    if (n >= LONG_ROW) return normalize_long<Centred>(to + begin * n, x + begin * n, w, b, end - begin, n, eps);
                for_rows(begin, end, n, [&](int64_t first, int64_t count) {
                    normalize_short<Centred>(to + first * n, x + first * n, w, b, count, n, eps);
                });
            });
        };
        return staged(request, 1, compute, double(rows) * ns, body);
    });
}

/// The numbers that the gradients of a row's elements have in common.
template <class C>
struct Slope {
    C mean, scale, shift, slope, off;  // a normalised element is (x - mean) * scale + off
};

template <bool Centred, bool Weighted, class C>
void slopes(const C* g, const C* x, const C* weight, int64_t rows, int64_t n, double eps, Slope<C>* out) {
    const double share = 1 / double(n);
    Mean<C> mean[MAX_ROWS];
    double sums[MAX_ROWS][3] = {};
    if (Centred) means(x, rows, n, mean);
    for (int64_t r = 0; r < rows; ++r, x += n, g += n) {
        const C centre = mean[r].rounded;
        auto moment = [=](int64_t i) { return moments(x[i] - centre, Weighted ? g[i] * weight[i] : g[i]); };
        add_sums<3, C>(n, moment, sums[r]);
    }
    for (int64_t r = 0; r < rows; ++r) {
        const C square = C(mean[r].variance(sums[r][SQUARE] * share) + eps);
        // One element is normalised to 0, whatever it is: its gradient is not what rounding leaves of a difference.
        const C scale = Centred && n == 1 ? C(0) : C(1) / std::sqrt(square);
        const C slope = C(mean[r].product(sums[r][PRODUCT], sums[r][GRAD]) * share) / square;
        const C shift = Centred ? C(sums[r][GRAD] * share - mean[r].off * slope) : C(0);
        out[r] = {mean[r].rounded, scale, shift, slope, -C(mean[r].off) * scale};
    }
}

template <bool Weighted, class C>
void row_gradient(C* out, const C* g, const C* x, const C* weight, int64_t n, Slope<C> s) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        const C part = Weighted ? g[i] * weight[i] : g[i];
        out[i] = (part - s.shift - (x[i] - s.mean) * s.slope) * s.scale;
    }
}

/// What some rows add to the gradients of weight and, unless that is null, bias: several, so that those are read and
/// written the less.
template <int ROWS, class C>
void add_rows(const C* g, const C* x, C* to_weight, C* to_bias, int64_t n, const Slope<C>* given) {
    C mean[ROWS], scale[ROWS], off[ROWS];
    for (int r = 0; r < ROWS; ++r) mean[r] = given[r].mean, scale[r] = given[r].scale, off[r] = given[r].off;
    if (to_bias) {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
            C slope = to_weight[i], shift = to_bias[i];
            for (int r = 0; r < ROWS; ++r) {
                slope += g[r * n + i] * ((x[r * n + i] - mean[r]) * scale[r] + off[r]);
                shift += g[r * n + i];
            }
            to_weight[i] = slope;
            to_bias[i] = shift;
        }
    } else {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) {
            C slope = to_weight[i];
            for (int r = 0; r < ROWS; ++r) slope += g[r * n + i] * ((x[r * n + i] - mean[r]) * scale[r] + off[r]);
            to_weight[i] = slope;
        }
    }
}

/// The gradients of some rows, after which `ahead` more will come.
template <bool Centred, bool Weighted, class C>
void gradients(C* out, const C* g, const C* x, const C* weight, C* to_weight, C* to_bias, int64_t rows,
               int64_t ahead, int64_t n, double eps) {
    Slope<C> found[MAX_ROWS];
    slopes<Centred, Weighted>(g, x, weight, rows, n, eps, found);
    for (int64_t r = 0; r < rows; ++r) {
        if (r < ahead) {
            prefetch(x + (rows + r) * n, n);
            prefetch(g + (rows + r) * n, n);
        }
        row_gradient<Weighted>(out + r * n, g + r * n, x + r * n, weight, n, found[r]);
    }
    if (!to_weight) return;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) add_rows<4>(g + r * n, x + r * n, to_weight, to_bias, n, found + r);
    for (; r < rows; ++r) add_rows<1>(g + r * n, x + r * n, to_weight, to_bias, n, found + r);
}

/// out[i] = the sum of the i-th elements of `count` rows, `stride` apart.
template <class C>
void sum_rows(C* out, const C* rows, int64_t count, int64_t stride, int64_t n) {
    constexpr int64_t WIDTH = 128;
    parallel_for((n + WIDTH - 1) / WIDTH, double(count * WIDTH) * 0.2, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * WIDTH, width = std::min(WIDTH, n - first);
            double sums[WIDTH] = {};
            for (int64_t r = 0; r < count; ++r) {
                const C* row = rows + r * stride + first;
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < width; ++j) sums[j] += double(row[j]);
            }
            for (int64_t j = 0; j < width; ++j) out[first + j] = C(sums[j]);
        }
    });
}

/// Rows whose parts of the gradients of weight and bias are added up in one place, however many threads there are.
int64_t chunk_of(int64_t rows) { return std::min<int64_t>(256, std::max<int64_t>(16, (rows + 63) / 64)); }

template <bool Centred>
[[gnu::cold]] KernelPtr backward(const Request& request) {
    const bool affine = request.attrs.flag("affine");
    const int outputs = affine ? Centred ? 3 : 2 : 1;
    const Operand& out = request.operands[0];
    if (!fits(request, out)) return nullptr;
    const bool weighted = request.attrs.integers("given")[2];
    int64_t n = row_size(request), rows = n ? out.numel() / n : 0;
    double eps = request.attrs.number("eps");
    const bool halves = are_halves(request, outputs, 2);
    const DType dtype = out.dtype, of_weight = request.operands[size_t(weighted ? outputs + 2 : 0)].dtype;
    return by_compute_type(out, [&]<class C>(Tag<C>, DType compute) -> KernelPtr {
        double ns = 2.5 * ELEMENT_NS * double(n) * sizeof(C) / 4 + 2 * ROW_NS;
        auto body = [=](char* const* data) {
            auto at = [&](int i) { return reinterpret_cast<C*>(data[i]); };
            const Parameter<C> given(weighted ? data[outputs + 2] : nullptr, halves ? of_weight : compute, n);
            const C *grad = at(outputs), *input = at(outputs + 1), *weight = given.data();
            const auto some = weighted ? gradients<Centred, true, C> : gradients<Centred, false, C>;
            const int64_t chunk = chunk_of(rows), chunks = (rows + chunk - 1) / chunk, stride = n * (outputs - 1);
            Scratch<C> partial(chunks * stride);
            parallel_for(chunks, ns * double(chunk), [&](int64_t begin, int64_t end) {
                const int64_t step = halves ? halves_together(n) : 0;
                const Scratch<C> room(3 * step * n);
                for (int64_t k = begin; k < end; ++k) {
                    C* to_weight = affine ? partial.data() + k * stride : nullptr;
                    C* to_bias = outputs == 3 ? to_weight + n : nullptr;
                    std::fill_n(partial.data() + k * stride, stride, C(0));
                    const int64_t stop = std::min(rows, (k + 1) * chunk);
                    if constexpr (std::is_same_v<C, float>) {
                        float *g = room.data(), *x = g + step * n, *to = x + step * n;
                        for (int64_t first = k * chunk; halves && first < stop; first += step) {
                            const int64_t count = std::min(step, stop - first);
                            load_rows(data[outputs], dtype, first, count, n, g);
                            load_rows(data[outputs + 1], dtype, first, count, n, x);
                            some(to, g, x, weight, to_weight, to_bias, count, 0, n, eps);
                            store_rows(to, data[0], dtype, first, count, n);
                        }
                    }
                    if (halves) continue;
                    for_rows(k * chunk, stop, n, [&](int64_t first, int64_t count) {
                        const int64_t ahead = stop - first - count;
                        C* to = at(0) + first * n;
                        const C *g = grad + first * n, *x = input + first * n;
                        some(to, g, x, weight, to_weight, to_bias, count, ahead, n, eps);
                    });
                }
            });
            for (int i = 1; i < outputs; ++i) sum_rows(at(i), partial.data() + (i - 1) * n, chunks, stride, n);
        };
        if (halves) return make_kernel(double(rows) * ns, [body](char* const* data, const Scalar*) { body(data); });
        return staged(request, outputs, compute, double(rows) * ns, body);
    });
}

}  // namespace

void add_normalization(Registry& registry) {
    registry["layer_norm"] = forward<true>;
    registry["layer_norm_grad"] = backward<true>;
    registry["rms_norm"] = forward<false>;
    registry["rms_norm_grad"] = backward<false>;
    add_channel_normalization(registry);
    add_running_normalization(registry);
    add_group_normalization(registry);
}

}  // namespace norch::nn
