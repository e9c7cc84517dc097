// batch_norm with statistics that are given: each channel's elements times a factor, plus a shift.
#include "common/image_layout.h"
#include "nn/normalization.h"
#include "runtime/widen.h"

namespace norch::nn {
namespace {

/// What is scaled: rows [begin, end) of `n` elements. EACH: by a factor for each of a row's elements, else by one for each row.
template <class C>
struct Rows {
    const char* x;
    char* out;
    int64_t begin, end, n, channels;
    const C *factor, *shift;
};

template <class S, bool EACH>
void scale(const Rows<compute_t<S>>& rows) {
    using C = compute_t<S>;
    constexpr int L = SIMD_WIDTH<C>;
    for (int64_t r = rows.begin; r < rows.end; ++r) {
        const S* x = reinterpret_cast<const S*>(rows.x) + r * rows.n;
        S* out = reinterpret_cast<S*>(rows.out) + r * rows.n;
        const int64_t channel = EACH ? 0 : r % rows.channels;
        const C *factor = rows.factor + channel, *shift = rows.shift + channel;
        const C first_factor = *factor, first_shift = *shift;
        const auto one = [=](int64_t i) {
            out[i] = store<S>(load(x[i]) * (EACH ? factor[i] : first_factor) + (EACH ? shift[i] : first_shift));
        };
        if constexpr (std::is_same_v<S, C> || (std::is_same_v<S, half> && !HAS_HALF)) {
            NORCH_INDEPENDENT
            for (int64_t i = 0; i < rows.n; ++i) one(i);
        } else {
            const auto some = [](const C* p, int64_t i) NORCH_INLINE_LAMBDA {
                if constexpr (EACH) return load_vector<L>(p + i);
                else return *p - vector_t<C, L>{};
            };
            move_row<L>(rows.n, [=](int64_t i) NORCH_INLINE_LAMBDA {
                store_narrow<L>(out + i, widen<L>(x + i) * some(factor, i) + some(shift, i));
            }, one);
        }
    }
}

template <class C>
using Scale = void (*)(const Rows<C>&);

template <class C>
Scale<C> scale_of(DType dtype, bool each) {
    if constexpr (sizeof(C) == 8) return each ? scale<double, true> : scale<double, false>;
    else if (dtype == DType::f32) return each ? scale<float, true> : scale<float, false>;
    else if (dtype == DType::f16) return each ? scale<half, true> : scale<half, false>;
    else return each ? scale<bfloat16, true> : scale<bfloat16, false>;
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
    const double ns = 0.1 * double(size_of(out.dtype)) / 4;
    const int64_t numel = out.numel();
    const bool each = is_last || inner == 1;
    return by_compute_type(out, [&]<class C>(Tag<C>, DType) {
        const Scale<C> scale = scale_of<C>(out.dtype, each);
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
            const int64_t row = each ? channels : inner;
            parallel_for(numel / row, ns * double(row), [&](int64_t begin, int64_t end) {
                scale({data[1], data[0], begin, end, row, channels, factor.data(), shift.data()});
            });
        });
    });
}

}  // namespace

void add_running_normalization(Registry& registry) { registry["batch_norm_running"] = batch_norm_running; }

}  // namespace norch::nn
