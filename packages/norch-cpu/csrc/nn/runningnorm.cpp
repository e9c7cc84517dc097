// batch_norm with statistics that are given: each channel's elements times a factor, plus a shift.
#include "common/image_layout.h"
#include "nn/normalization.h"

namespace norch::nn {
namespace {

template <class S, class C>
void scale_rows(const S* x, S* out, int64_t rows, int64_t n, const C* factor, const C* shift) {
    for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = store<S>(load(x[i]) * factor[i] + shift[i]);
    }
}

template <class S, class C>
void scale(const S* x, S* out, int64_t n, C factor, C shift) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = store<S>(load(x[i]) * factor + shift);
}

[[gnu::cold]] KernelPtr batch_norm_running(const Request& request) {
    const auto& operands = request.operands;
    const Operand &out = operands[0], &x = operands[1];
    if (!fits(request, out) || x.dtype != out.dtype || !out.numel() || out.ndim() < 2) return nullptr;
    const int64_t channels = out.shape[1], inner = out.numel() / out.shape[0] / channels;
    const bool is_last = inner > 1 && out.ndim() == 4 && is_channels_last(out) && is_channels_last(x);
    if (!is_last && !(out.is_contiguous() && x.is_contiguous())) return nullptr;
    for (size_t i = 2; i < operands.size(); ++i)
        if (!operands[i].is_contiguous()) return nullptr;
    const auto& given = request.attrs.integers("given");
    const size_t weight = given[3] ? 4 : 0, bias = given[4] ? 4 + size_t(given[3]) : 0;
    const double eps = request.attrs.number("eps");
    std::vector<DType> dtypes;
    for (const Operand& o : operands) dtypes.push_back(o.dtype);
    return visit_floating(out.dtype, [&]<class S>(Tag<S>) {
        using C = compute_t<S>;
        const double ns = 0.1 * sizeof(S) / 4;
        const int64_t numel = out.numel();
        return make_kernel(ns * double(numel), [=](char* const* data, const Scalar*) {
            const auto parameter = [&](size_t i) { return Parameter<C>(i ? data[i] : nullptr, dtypes[i], channels); };
            const auto mean = parameter(2), variance = parameter(3), w = parameter(weight), b = parameter(bias);
            Scratch<C> factor(channels), shift(channels);
            // Each in a loop of its own: a vector load that is masked out, from no memory at all, takes ages.
            for (int64_t c = 0; c < channels; ++c) factor[c] = C(1) / std::sqrt(C(variance.data()[c] + C(eps)));
            for (int64_t c = 0; w.data() && c < channels; ++c) factor[c] *= w.data()[c];
            if (b.data())
                for (int64_t c = 0; c < channels; ++c) shift[c] = b.data()[c] - mean.data()[c] * factor[c];
            else
                for (int64_t c = 0; c < channels; ++c) shift[c] = C(0) - mean.data()[c] * factor[c];
            const S* from = reinterpret_cast<const S*>(data[1]);
            S* to = reinterpret_cast<S*>(data[0]);
            const int64_t row = is_last || inner == 1 ? channels : inner;
            parallel_for(numel / row, ns * double(row), [&](int64_t begin, int64_t end) {
                if (row == channels && (is_last || inner == 1))
                    return scale_rows(from + begin * row, to + begin * row, end - begin, row, factor.data(), shift.data());
                for (int64_t r = begin; r < end; ++r)
                    scale(from + r * row, to + r * row, row, factor[r % channels], shift[r % channels]);
            });
        });
    });
}

}  // namespace

void add_running_normalization(Registry& registry) { registry["batch_norm_running"] = batch_norm_running; }

}  // namespace norch::nn
