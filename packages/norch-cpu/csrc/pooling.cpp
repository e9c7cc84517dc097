// max_pool2d, where its largest elements are, and its gradient, which finds them again.
#include "pooling.h"

namespace norch {

Pool::Pool(const Operand& whole, const Operand& pooled, const Attrs& attrs) {
    const auto &windows = attrs.integers("windows"), &pads = attrs.integers("pads");
    kh = windows[0], kw = windows[1];
    step_y = windows[2], step_x = windows[3];
    gap_y = windows[4], gap_x = windows[5];
    top = pads[0], left = pads[2];
    channels = whole.shape[1];
    planes = whole.shape[0] * channels;
    h = whole.shape[2], w = whole.shape[3];
    rows = pooled.shape[2], columns = pooled.shape[3];
}

namespace {

/// Two rows of whole windows of 2 * 2.
template <class S>
void halve(const S* __restrict a, const S* __restrict b, int64_t n, S* __restrict out) {
    for (int64_t x = 0; x < n; ++x)
        out[x] = Larger::apply(Larger::apply(a[2 * x], a[2 * x + 1]), Larger::apply(b[2 * x], b[2 * x + 1]));
}

template <class S>
KernelPtr max_pool(const Request& r) {
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    if constexpr (std::is_same_v<S, compute_t<S>>) {
        if (p.is_halving() && from.column == 1) {
            const double ns = double(p.columns) * 0.3 * sizeof(S);
            return make_kernel(double(p.planes * p.rows) * ns, [=](char* const* data, const Scalar*) {
                parallel_for(p.planes * p.rows, ns, [=](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                        const S* row = reinterpret_cast<const S*>(data[1]) + from.at(i / p.rows) + i % p.rows * 2 * from.row;
                        halve(row, row + from.row, p.columns, reinterpret_cast<S*>(data[0]) + i * p.columns);
                    }
                });
            });
        }
    }
    return pooled<Larger, S>(r);
}

/// Where in its plane the first largest element of a window is; the nearest element if the window has none.
template <class S>
int64_t place(const Pool& p, const Planes& from, const S* plane, int64_t row, int64_t column) {
    using T = compute_t<S>;
    const int64_t top = row * p.step_y - p.top, left = column * p.step_x - p.left;
    int64_t found = -1;
    T best{};
    for (int64_t i = 0; i < p.kh; ++i) {
        const int64_t y = top + i * p.gap_y;
        if (y < 0 || y >= p.h) continue;
        for (int64_t j = 0; j < p.kw; ++j) {
            const int64_t x = left + j * p.gap_x;
            if (x < 0 || x >= p.w) continue;
            const T value = load(plane[y * from.row + x * from.column]);
            if (found < 0 || value > best || (value != value && best == best)) {
                found = y * p.w + x;
                best = value;
            }
        }
    }
    if (found >= 0) return found;
    return std::clamp<int64_t>(top, 0, p.h - 1) * p.w + std::clamp<int64_t>(left, 0, p.w - 1);
}

template <class S>
KernelPtr indices(const Request& r) {
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    const double ns = double(p.columns) * (2 + p.window());
    return make_kernel(double(p.planes * p.rows) * ns, [=](char* const* data, const Scalar*) {
        parallel_for(p.planes * p.rows, ns, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const S* plane = reinterpret_cast<const S*>(data[1]) + from.at(i / p.rows);
                int64_t* out = reinterpret_cast<int64_t*>(data[0]) + i * p.columns;
                for (int64_t x = 0; x < p.columns; ++x) out[x] = place(p, from, plane, i % p.rows, x);
            }
        });
    });
}

/// The gradient of `halve`: of each window the first largest element gets g, the others 0.
template <class T>
void unhalve(const T* __restrict g, const T* __restrict a, const T* __restrict b, int64_t n,
             T* __restrict to_a, T* __restrict to_b) {
    for (int64_t x = 0; x < n; ++x) {
        const T a0 = a[2 * x], a1 = a[2 * x + 1], b0 = b[2 * x], b1 = b[2 * x + 1];
        const T best = Larger::apply(Larger::apply(a0, a1), Larger::apply(b0, b1));
        // best is NaN only where an element is.
        const bool is_a0 = (a0 == best) | (a0 != a0);
        const bool is_a1 = ((a1 == best) | (a1 != a1)) & !is_a0;
        const bool is_b0 = ((b0 == best) | (b0 != b0)) & !is_a0 & !is_a1;
        const bool is_b1 = !is_a0 & !is_a1 & !is_b0;
        to_a[2 * x] = is_a0 ? g[x] : T(0);
        to_a[2 * x + 1] = is_a1 ? g[x] : T(0);
        to_b[2 * x] = is_b0 ? g[x] : T(0);
        to_b[2 * x + 1] = is_b1 ? g[x] : T(0);
    }
}

template <class T>
KernelPtr halving_grad(const Request& r, const Pool& p) {
    const Planes grads(r.operands[1]), from(r.operands[2]);
    const double ns = double(p.columns) * 0.8 * sizeof(T);
    return make_kernel(double(p.planes * p.rows) * ns, [=](char* const* data, const Scalar*) {
        parallel_for(p.planes * p.rows, ns, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t plane = i / p.rows, y = i % p.rows;
                const T* row = reinterpret_cast<const T*>(data[2]) + from.at(plane) + y * 2 * from.row;
                const T* g = reinterpret_cast<const T*>(data[1]) + grads.at(plane) + y * grads.row;
                T* out = reinterpret_cast<T*>(data[0]) + (plane * p.h + y * 2) * p.w;
                unhalve(g, row, row + from.row, p.columns, out, out + p.w);
                for (int64_t x = p.columns * 2; x < p.w; ++x) out[x] = out[p.w + x] = 0;
                if (y == p.rows - 1) std::fill_n(out + 2 * p.w, (p.h - p.rows * 2) * p.w, T(0));
            }
        });
    });
}

template <class S>
KernelPtr max_grad(const Request& r) {
    using T = compute_t<S>;
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]), from(r.operands[2]);
    if constexpr (std::is_same_v<S, T>) {
        if (p.is_halving() && p.rows && from.column == 1 && grads.column == 1) return halving_grad<T>(r, p);
    }
    const double ns = double(p.rows * p.columns) * (2 + p.window()) + double(p.h * p.w);
    return make_kernel(double(p.planes) * ns, [=](char* const* data, const Scalar*) {
        parallel_for(p.planes, ns, [=](int64_t begin, int64_t end) {
            Scratch<T> sums(p.h * p.w);
            for (int64_t i = begin; i < end; ++i) {
                const S* plane = reinterpret_cast<const S*>(data[2]) + from.at(i);
                const S* g = reinterpret_cast<const S*>(data[1]) + grads.at(i);
                S* out = reinterpret_cast<S*>(data[0]) + i * p.h * p.w;
                std::fill_n(sums.data(), p.h * p.w, T(0));
                for (int64_t y = 0; y < p.rows; ++y)
                    for (int64_t x = 0; x < p.columns; ++x)
                        sums[place(p, from, plane, y, x)] += load(g[y * grads.row + x * grads.column]);
                for (int64_t x = 0; x < p.h * p.w; ++x) out[x] = store<S>(sums[x]);
            }
        });
    });
}

}  // namespace

void add_pooling(Registry& registry) {
    registry["max_pool2d"] = [](const Request& r) -> KernelPtr {
        if (!r.operands[0].is_contiguous() || r.operands[0].dtype == DType::boolean) return nullptr;
        return visit(r.operands[0].dtype, [&](auto tag) { return max_pool<typename decltype(tag)::type>(r); });
    };
    registry["max_pool2d_indices"] = [](const Request& r) -> KernelPtr {
        if (!r.operands[0].is_contiguous()) return nullptr;
        return visit(r.operands[1].dtype, [&](auto tag) { return indices<typename decltype(tag)::type>(r); });
    };
    registry["max_pool2d_grad"] = [](const Request& r) -> KernelPtr {
        const DType dtype = r.operands[0].dtype;
        if (!r.operands[0].is_contiguous() || r.operands[1].dtype != dtype || r.operands[2].dtype != dtype) return nullptr;
        return visit_floating(dtype, [&](auto tag) { return max_grad<typename decltype(tag)::type>(r); });
    };
    add_sum_pooling(registry);
}

}  // namespace norch
