// Steps of optimisers: one pass over all parameters of a group.
#include <algorithm>
#include <cmath>

#include "loop.h"
#include "threads.h"

namespace norch {
namespace {

/// The hyperparameters of a step, derived from the scalar operands. `lr` and `root` hold the factors that undo the bias
/// of Adam's averages.
template <class C>
struct Sgd {
    C lr, decay, momentum, fresh;
};
template <class C>
struct Adam {
    C lr, decay, kept, beta1, fresh1, beta2, fresh2, eps, root;
};

template <class T, bool Maximize>
inline compute_t<T> gradient(T g) {
    return Maximize ? -load(g) : load(g);
}

template <class T, bool Maximize, bool Decays>
void sgd_plain(T* p, const T* g, int64_t n, Sgd<compute_t<T>> h) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        compute_t<T> d = gradient<T, Maximize>(g[i]), x = load(p[i]);
        if (Decays) d += h.decay * x;
        p[i] = store<T>(x - h.lr * d);
    }
}

template <class T, bool Maximize, bool Decays, bool Nesterov>
void sgd_momentum(T* p, T* b, const T* g, int64_t n, Sgd<compute_t<T>> h) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        compute_t<T> d = gradient<T, Maximize>(g[i]), x = load(p[i]);
        if (Decays) d += h.decay * x;
        compute_t<T> built = h.momentum * load(b[i]) + h.fresh * d;
        b[i] = store<T>(built);
        p[i] = store<T>(x - h.lr * (Nesterov ? d + h.momentum * built : built));
    }
}

template <class T, bool Maximize, bool Decays, bool Decoupled>
void adam(T* p, T* m, T* v, const T* g, int64_t n, Adam<compute_t<T>> h) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
        compute_t<T> d = gradient<T, Maximize>(g[i]), x = load(p[i]);
        if (Decays && Decoupled) x *= h.kept;
        if (Decays && !Decoupled) d += h.decay * x;
        compute_t<T> first = h.beta1 * load(m[i]) + h.fresh1 * d;
        compute_t<T> second = h.beta2 * load(v[i]) + h.fresh2 * d * d;
        m[i] = store<T>(first);
        v[i] = store<T>(second);
        p[i] = store<T>(x - h.lr * first / (std::sqrt(second) * h.root + h.eps));
    }
}

/// Where each parameter begins in the row of all of them.
std::vector<int64_t> starts_of(const Request& request, int64_t count) {
    std::vector<int64_t> starts(size_t(count) + 1);
    for (int64_t i = 0; i < count; ++i) starts[i + 1] = starts[i] + request.operands[i].numel();
    return starts;
}

/// Whether the operands are as a step needs them: `lists` lists of `count` contiguous tensors, then scalars.
bool suits(const Request& request, int64_t count, int64_t lists, int64_t scalars) {
    const auto& operands = request.operands;
    if (count < 1 || int64_t(operands.size()) != count * lists + scalars) return false;
    for (int64_t i = 0; i < int64_t(operands.size()); ++i) {
        const Operand& o = operands[i];
        if (o.is_scalar != (i >= count * lists)) return false;
        if (o.is_scalar ? !is_floating(o.dtype)
                        : o.dtype != operands[0].dtype || !o.is_contiguous() ||
                              o.numel() != operands[i % count].numel())
            return false;
    }
    return is_floating(operands[0].dtype);
}

/// Calls body(i, begin, n) for pieces of all parameters: n elements of parameter i from element `begin` on.
template <class Body>
void for_pieces(const std::vector<int64_t>& starts, double ns, const Body& body) {
    parallel_for(
        starts.back(), ns,
        [&](int64_t begin, int64_t end) {
            size_t i = size_t(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
            for (; begin < end; ++i) {
                int64_t stop = std::min(end, starts[i + 1]);
                if (stop > begin) body(i, begin - starts[i], stop - begin);
                begin = std::max(begin, stop);
            }
        },
        64);
}

template <class T>
T* at(char* data, int64_t element) {
    return reinterpret_cast<T*>(data) + element;
}

/// Calls f(std::bool_constant...) with the value of each flag.
template <class F>
auto with_flag(bool flag, const F& f) {
    return flag ? f(std::true_type{}) : f(std::false_type{});
}

/// What an element costs, in ns: mostly the memory that is read and written.
double cost(DType dtype, int64_t lists) { return 0.06 * double(lists) * double(size_of(dtype)) / 4; }

template <class T, bool Momentum, bool Nesterov, bool Maximize>
KernelPtr sgd_kernel(const Request& request, int64_t count) {
    using C = compute_t<T>;
    double ns = cost(request.operands[0].dtype, Momentum ? 5 : 3);
    auto starts = starts_of(request, count);
    double work = ns * double(starts.back());
    return make_kernel(work, [=](char* const* data, const Scalar* scalars) {
        const Scalar* s = scalars + count * (Momentum ? 3 : 2);
        double momentum = s[2].f;
        Sgd<C> h{C(s[0].f), C(s[1].f), C(momentum), C(1 - s[3].f)};
        with_flag(s[1].f != 0, [&](auto decays) {
            for_pieces(starts, ns, [&](size_t i, int64_t begin, int64_t n) {
                T* p = at<T>(data[i], begin);
                const T* g = at<T>(data[i + size_t(count) * (Momentum ? 2 : 1)], begin);
                if constexpr (Momentum)
                    sgd_momentum<T, Maximize, decltype(decays)::value, Nesterov>(
                        p, at<T>(data[i + size_t(count)], begin), g, n, h);
                else
                    sgd_plain<T, Maximize, decltype(decays)::value>(p, g, n, h);
            });
        });
    });
}

template <class T, bool Decoupled, bool Maximize>
KernelPtr adam_kernel(const Request& request, int64_t count) {
    using C = compute_t<T>;
    double ns = cost(request.operands[0].dtype, 7);
    auto starts = starts_of(request, count);
    double work = ns * double(starts.back());
    return make_kernel(work, [=](char* const* data, const Scalar* scalars) {
        const Scalar* s = scalars + count * 4;
        double lr = s[0].f, decay = s[1].f, beta1 = s[2].f, beta2 = s[3].f;
        Adam<C> h{C(lr / s[5].f), C(decay), C(1 - lr * decay), C(beta1),
                  C(1 - beta1),   C(beta2), C(1 - beta2),      C(s[4].f), C(1 / std::sqrt(s[6].f))};
        with_flag(decay != 0, [&](auto decays) {
            for_pieces(starts, ns, [&](size_t i, int64_t begin, int64_t n) {
                size_t c = size_t(count);
                adam<T, Maximize, decltype(decays)::value, Decoupled>(at<T>(data[i], begin), at<T>(data[i + c], begin),
                                                                      at<T>(data[i + 2 * c], begin),
                                                                      at<T>(data[i + 3 * c], begin), n, h);
            });
        });
    });
}

KernelPtr sgd_step(const Request& request) {
    int64_t count = request.attrs.integer("count");
    bool momentum = request.attrs.flag("momentum"), nesterov = request.attrs.flag("nesterov");
    if (!suits(request, count, momentum ? 3 : 2, 4)) return nullptr;
    return visit_floating(request.operands[0].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_flag(request.attrs.flag("maximize"), [&](auto up) {
            constexpr bool maximize = decltype(up)::value;
            if (!momentum) return sgd_kernel<T, false, false, maximize>(request, count);
            return nesterov ? sgd_kernel<T, true, true, maximize>(request, count)
                            : sgd_kernel<T, true, false, maximize>(request, count);
        });
    });
}

KernelPtr adam_step(const Request& request) {
    int64_t count = request.attrs.integer("count");
    if (!suits(request, count, 4, 7)) return nullptr;
    return visit_floating(request.operands[0].dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_flag(request.attrs.flag("maximize"), [&](auto up) {
            constexpr bool maximize = decltype(up)::value;
            return request.attrs.flag("decoupled") ? adam_kernel<T, true, maximize>(request, count)
                                                   : adam_kernel<T, false, maximize>(request, count);
        });
    });
}

}  // namespace

void add_optimizers(Registry& registry) {
    registry["sgd_step"] = sgd_step;
    registry["adam_step"] = adam_step;
}

}  // namespace norch
