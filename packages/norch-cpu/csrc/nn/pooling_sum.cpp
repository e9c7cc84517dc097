// The sums of windows, behind avg_pool2d, and their gradient.
#include "nn/pooling.h"

namespace norch::nn {
namespace {

/// Row y of the gradient: the gradients of all windows that see it.
template <class T>
void sum_grad_row(const Pool& p, const Planes& grads, const SeenAs<T>& seen, const char* g, int64_t y, T* above, T* line, T* buffer,
                  char* out) {
    std::fill_n(above, p.columns, T(0));
    for (int64_t i = 0; i < p.kh; ++i) {
        const int64_t at = y + p.top - i * p.gap_y;
        if (at < 0 || at % p.step_y || at / p.step_y >= p.rows) continue;
        const T* row = seen.row(g + at / p.step_y * grads.row * seen.size(), grads.column, p.columns, buffer);
        for (int64_t x = 0; x < p.columns; ++x) above[x] += row[x];
    }
    const int64_t length = std::max(p.line(), p.left + p.w);
    std::fill_n(line, length, T(0));
    for (int64_t j = 0; j < p.kw; ++j) {
        T* to = line + j * p.gap_x;
        NORCH_INDEPENDENT
        for (int64_t x = 0; x < p.columns; ++x) to[x * p.step_x] += above[x];
    }
    seen.store(out, line + p.left, p.w);
}

template <class T>
[[gnu::cold]] KernelPtr sum_grad(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]);
    const double ns = double(p.w) * (1 + 0.3 * p.window());
    return parallel_kernel(p.planes * p.h, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> above(p.columns), buffer(p.columns), line(std::max(p.line(), p.left + p.w));
        for (int64_t i = begin; i < end; ++i) {
            const char* g = data[1] + grads.at(i / p.h) * seen.size();
            char* out = data[0] + i * p.w * seen.size();
            sum_grad_row(p, grads, seen, g, i % p.h, above.data(), line.data(), buffer.data(), out);
        }
    });
}

template <class F>
[[gnu::cold]] KernelPtr floating(const Request& r, const F& make) {
    if (r.operands[0].dtype != r.operands[1].dtype) return nullptr;
    if (!r.operands[0].is_contiguous()) return pooling_channels_last(r);
    return visit_seen_floating(r.operands[0].dtype, make);
}

}  // namespace

void add_sum_pooling(Registry& registry) {
    registry["sum_pool2d"] = [](const Request& r) {
        return floating(r, [&](auto seen) { return pooled<reduction::Sum>(r, seen); });
    };
    registry["sum_pool2d_grad"] = [](const Request& r) {
        return floating(r, [&](auto seen) { return sum_grad(r, seen); });
    };
}

}  // namespace norch::nn
