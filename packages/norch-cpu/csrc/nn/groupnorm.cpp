// group_norm and its gradient: a group's channels follow each other, so that a group of an image is a row of elements.
#include "nn/normalization.h"

namespace norch::nn {
namespace {

constexpr double ELEMENT_NS = 0.2;

struct Shape {
    int64_t batch, channels, inner, groups;
    int64_t own() const { return channels / groups; }  // channels of a group
    int64_t size() const { return own() * inner; }
    int64_t rows() const { return batch * groups; }
};

Shape shape_of(const Request& request) {
    const Operand& out = request.operands[0];
    return {out.shape[0], out.shape[1], out.numel() / out.shape[0] / out.shape[1], request.attrs.integer("num_groups")};
}

/// A row as C: itself, or a copy.
template <class C, class S>
const C* row_of(const S* x, int64_t n, C* room) {
    if constexpr (std::is_same_v<S, C>) return x;
    for (int64_t i = 0; i < n; ++i) room[i] = load(x[i]);
    return room;
}

template <class S>
[[gnu::cold]] KernelPtr forward(const Request& request) {
    using C = compute_t<S>;
    const auto& given = request.attrs.integers("given");
    const size_t weight = given[1] ? 2 : 0, bias = given[2] ? 2 + size_t(given[1]) : 0;
    const DType of_weight = request.operands[weight].dtype, of_bias = request.operands[bias].dtype;
    const double eps = request.attrs.number("eps");
    const Shape s = shape_of(request);
    const double ns = 1.5 * ELEMENT_NS * double(s.size()) * sizeof(C) / 4;
    return make_kernel(ns * double(s.rows()), [=](char* const* data, const Scalar*) {
        const Parameter<C> w(weight ? data[weight] : nullptr, of_weight, s.channels), b(bias ? data[bias] : nullptr, of_bias, s.channels);
        parallel_for(s.rows(), ns, [&](int64_t begin, int64_t end) {
            const Scratch<C> room(std::is_same_v<S, C> ? 1 : s.size());
            for (int64_t r = begin; r < end; ++r) {
                const C* x = row_of<C>(reinterpret_cast<const S*>(data[1]) + r * s.size(), s.size(), room.data());
                S* out = reinterpret_cast<S*>(data[0]) + r * s.size();
                const Statistics<C> found = statistics(x, s.size());
                const C mean = found.centre.rounded;
                const double factor = 1 / std::sqrt(found.variance + eps);
                for (int64_t c = 0; c < s.own(); ++c, x += s.inner, out += s.inner) {
                    const int64_t channel = r % s.groups * s.own() + c;
                    const double scale = factor * (w.data() ? double(w.data()[channel]) : 1);
                    const C f = C(scale), shift = C((b.data() ? double(b.data()[channel]) : 0) - found.centre.off * scale);
                    NORCH_INDEPENDENT
                    for (int64_t i = 0; i < s.inner; ++i) out[i] = store<S>((x[i] - mean) * f + shift);
                }
            }
        });
    });
}

template <class S>
[[gnu::cold]] KernelPtr backward(const Request& request) {
    using C = compute_t<S>;
    const size_t weight = request.attrs.integers("given")[2] ? 5 : 0;
    const DType of_weight = request.operands[weight].dtype;
    const double eps = request.attrs.number("eps");
    const Shape s = shape_of(request);
    const double ns = 3 * ELEMENT_NS * double(s.size()) * sizeof(C) / 4;
    return make_kernel(ns * double(s.rows()), [=](char* const* data, const Scalar*) {
        const Parameter<C> w(weight ? data[weight] : nullptr, of_weight, s.channels);
        const Scratch<double> sums(2 * s.batch * s.channels);  // each image's: of gradients times numbers, and of gradients
        parallel_for(s.rows(), ns, [&](int64_t begin, int64_t end) {
            const Scratch<C> x_room(std::is_same_v<S, C> ? 1 : s.size()), g_room(std::is_same_v<S, C> ? 1 : s.size());
            for (int64_t r = begin; r < end; ++r) {
                const C* x = row_of<C>(reinterpret_cast<const S*>(data[4]) + r * s.size(), s.size(), x_room.data());
                const C* g = row_of<C>(reinterpret_cast<const S*>(data[3]) + r * s.size(), s.size(), g_room.data());
                S* out = reinterpret_cast<S*>(data[0]) + r * s.size();
                const Statistics<C> found = statistics(x, s.size());
                const C mean = found.centre.rounded;
                const double factor = 1 / std::sqrt(found.variance + eps), count = double(s.size());
                double *own = sums.data() + 2 * r * s.own(), all = 0, along = 0;
                for (int64_t c = 0; c < s.own(); ++c) {
                    const C *at = x + c * s.inner, *slope = g + c * s.inner;
                    double found_sums[2] = {};
                    add_sums<2, C>(s.inner, [=](int64_t i) { return std::array<C, 2>{slope[i] * (at[i] - mean), slope[i]}; }, found_sums);
                    const double product = found_sums[0] - found.centre.off * found_sums[1];
                    const double by = w.data() ? double(w.data()[r % s.groups * s.own() + c]) : 1;
                    own[2 * c] = product * factor, own[2 * c + 1] = found_sums[1];
                    along += by * product, all += by * found_sums[1];
                }
                const double tilt = along / count * factor * factor;
                const C shift = C(all / count - found.centre.off * tilt), slope = C(tilt);
                // One element is normalised to 0, whatever it is.
                const C scale = s.size() == 1 ? C(0) : C(factor);
                for (int64_t c = 0; c < s.own(); ++c, x += s.inner, g += s.inner, out += s.inner) {
                    const C by = w.data() ? w.data()[r % s.groups * s.own() + c] : C(1);
                    NORCH_INDEPENDENT
                    for (int64_t i = 0; i < s.inner; ++i) out[i] = store<S>((g[i] * by - shift - (x[i] - mean) * slope) * scale);
                }
            }
        });
        for (int64_t c = 0; c < s.channels; ++c) {
            double product = 0, sum = 0;
            for (int64_t n = 0; n < s.batch; ++n) {
                product += sums[2 * (n * s.channels + c)];
                sum += sums[2 * (n * s.channels + c) + 1];
            }
            reinterpret_cast<C*>(data[1])[c] = C(product);
            reinterpret_cast<C*>(data[2])[c] = C(sum);
        }
    });
}

/// The images are of one dtype, as planes; parameters are of any.
bool is_possible(const Request& request, int outputs, int images) {
    const auto& operands = request.operands;
    if (!are_plain(request, operands[0]) || !operands[0].numel()) return false;
    for (int i = 0; i < images; ++i)
        if (operands[size_t(outputs + i)].dtype != operands[0].dtype) return false;
    return true;
}

}  // namespace

void add_group_normalization(Registry& registry) {
    registry["group_norm"] = [](const Request& r) -> KernelPtr {
        if (!is_possible(r, 1, 1)) return group_norm_last(r, 1, 1);
        return visit_floating(r.operands[0].dtype, [&]<class S>(Tag<S>) { return forward<S>(r); });
    };
    registry["group_norm_grad"] = [](const Request& r) -> KernelPtr {
        if (r.operands[1].dtype != computed_dtype(r.operands[0].dtype)) return nullptr;
        if (!is_possible(r, 3, 2)) return group_norm_last(r, 3, 2);
        return visit_floating(r.operands[0].dtype, [&]<class S>(Tag<S>) { return backward<S>(r); });
    };
}

}  // namespace norch::nn
