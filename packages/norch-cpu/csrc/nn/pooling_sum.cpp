// The sums of windows, behind avg_pool2d, and their gradient.
#include "nn/pooling.h"

namespace norch::nn {
namespace {

/// The rows of windows that see a row of the input.
struct Seeing {
    int64_t first, last;
    Seeing(const Pool& p, int64_t y) {
        const int64_t at = y + p.top, span = (p.kh - 1) * p.gap_y + 1;
        first = at < span ? 0 : (at - span) / p.step_y + 1;
        last = std::min(at / p.step_y, p.rows - 1);
    }
    bool operator==(const Seeing&) const = default;
};

/// Row y of the gradient, with p.left before it: the gradients of all windows that see it. g: of the plane.
template <class T>
void sum_grad_row(const Pool& p, const Planes& grads, const SeenAs<T>& seen, const Seeing& rows, const char* g, int64_t y,
                  T* above, T* line, T* buffer) {
    std::fill_n(above, p.columns, T(0));
    for (int64_t r = rows.last; r >= rows.first; --r) {
        if (p.gap_y > 1 && (y + p.top - r * p.step_y) % p.gap_y) continue;
        const T* row = seen.row(g + r * grads.row * seen.size(), grads.column, p.columns, buffer);
        for (int64_t x = 0; x < p.columns; ++x) above[x] += row[x];
    }
    const int64_t length = std::max(p.line(), p.left + p.w);
    std::fill_n(line, length, T(0));
    for (int64_t j = 0; j < p.kw; ++j) {
        T* to = line + j * p.gap_x;
        NORCH_INDEPENDENT
        for (int64_t x = 0; x < p.columns; ++x) to[x * p.step_x] += above[x];
    }
}

template <class T>
[[gnu::cold]] KernelPtr sum_grad(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]);
    const double ns = double(p.w) * (1 + 0.3 * p.window());
    return parallel_kernel(p.planes * p.h, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> above(p.columns), buffer(p.columns), line(std::max(p.line(), p.left + p.w));
        Seeing before(p, 0);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t y = i % p.h;
            const Seeing rows(p, y);
            if (i == begin || y == 0 || p.gap_y > 1 || rows != before) {
                const char* g = data[1] + grads.at(i / p.h) * seen.size();
                sum_grad_row(p, grads, seen, rows, g, y, above.data(), line.data(), buffer.data());
            }
            before = rows;
            seen.store(data[0] + i * p.w * seen.size(), line.data() + p.left, p.w);
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
