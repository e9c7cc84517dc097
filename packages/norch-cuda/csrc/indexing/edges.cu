// pad_edges and its gradient: a thread for each element of the result finds where in the other tensor it comes from, or
// all places that it was put to.
#include <algorithm>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {
namespace edges {

constexpr int DIMS = 6, UNROLL = 4, GRAD_UNROLL = 2;

enum class Mode { circular, replicate, reflect };

/// A dim of n elements, of which `before` and more behind the last make `size`, in the tensor of either.
struct Dim {
    FastDivide result;  // the result's size
    int n, size, before, inner, outer;
};

struct Plan {
    Dim dims[DIMS];  // innermost first
    int ndim = 0;
    uint32_t count = 1;  // of the result
    Mode mode;
};

/// The places along the dims of element i of a result.
template <class F>
__device__ inline void each_dim(const Plan& p, uint32_t i, const F& f) {
#pragma unroll
    for (int d = 0; d < DIMS; ++d) {
        if (d == p.ndim) break;
        const uint32_t rest = d + 1 == p.ndim ? 0 : p.dims[d].result.quotient(i);
        f(d, int(i - rest * p.dims[d].result.divisor));
        i = rest;
    }
}

__device__ inline int wrapped(int place, int n) {
    if (unsigned(place) < unsigned(n)) return place;
    place %= n;
    return place < 0 ? place + n : place;
}

/// Which of the n elements stands at a place.
__device__ inline int element_at(Mode mode, const Dim& dim, int place) {
    place -= dim.before;
    const int last = dim.n - 1;
    if (mode == Mode::replicate) return min(max(place, 0), last);
    if (mode == Mode::reflect) return last - abs(last - abs(place));
    return wrapped(place, dim.n);
}

/// Where an element was put to, in rising order: `first`, then `step` on, then by `next` each.
struct Places {
    int first = 0, count = 1, step = 1, next = 1;

    Places() = default;
    __device__ Places(Mode mode, const Dim& dim, int i) : first(i + dim.before) {
        const int last = dim.n - 1, end = dim.size - 1;
        if (mode == Mode::replicate) {
            if (i == last) count = dim.size - first;
            if (i == 0) count += first, first = 0;
        } else if (mode == Mode::reflect) {
            const bool has_low = i > 0 && i <= dim.before, has_high = i < last && first + 2 * (last - i) <= end;
            next = 2 * (last - i);
            step = has_low ? 2 * i : next;
            if (has_low) first = dim.before - i;
            count += has_low + has_high;
        } else {
            first = wrapped(first, dim.n);
            step = next = dim.n;
            count = first > end ? 0 : first + dim.n > end ? 1 : (end - first) / dim.n + 1;
        }
    }
    __device__ int at(int k) const { return k == 0 ? first : first + step + (k - 1) * next; }
};

template <class P>
__global__ void __launch_bounds__(THREADS) pad_kernel(const __grid_constant__ Plan p, P* out, const P* x) {
    const uint32_t start = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    P value[UNROLL];
    int to[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const uint32_t i = start + u * THREADS;
        if (i >= p.count) continue;
        int from = 0;
        to[u] = 0;
        each_dim(p, i, [&](int d, int place) {
            from += element_at(p.mode, p.dims[d], place) * p.dims[d].inner;
            to[u] += place * p.dims[d].outer;
        });
        value[u] = x[from];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        if (start + u * THREADS < p.count) out[to[u]] = value[u];
}

/// Calls f(where) for each place of all dims, the innermost dim's first.
template <int D, class F>
__device__ inline void each_place(const Plan& p, const Places (&places)[DIMS], int at, const F& f) {
    if constexpr (D < 0) {
        f(at);
    } else {
#pragma unroll 1
        for (int k = 0; k < places[D].count; ++k)
            each_place<D - 1>(p, places, at + places[D].at(k) * p.dims[D].outer, f);
    }
}

/// Most elements were put to one place: those are read at once, the others' places one by one.
template <class T>
__global__ void __launch_bounds__(THREADS) pad_grad_kernel(const __grid_constant__ Plan p, T* out, const T* grad) {
    const uint32_t start = blockIdx.x * (THREADS * GRAD_UNROLL) + threadIdx.x;
    computed<T> sum[GRAD_UNROLL];
    int to[GRAD_UNROLL], total[GRAD_UNROLL];
#pragma unroll
    for (int u = 0; u < GRAD_UNROLL; ++u) {
        const uint32_t i = start + u * THREADS;
        if (i >= p.count) continue;
        int from = 0;
        to[u] = 0, total[u] = 1;
        each_dim(p, i, [&](int d, int element) {
            const Places places(p.mode, p.dims[d], element);
            to[u] += element * p.dims[d].inner;
            from += places.first * p.dims[d].outer;
            total[u] *= places.count;
        });
        sum[u] = total[u] == 1 ? upcast(grad[from]) : computed<T>(0);
    }
#pragma unroll
    for (int u = 0; u < GRAD_UNROLL; ++u) {
        const uint32_t i = start + u * THREADS;
        if (i >= p.count) continue;
        if (total[u] > 1) {
            Places places[DIMS];
            each_dim(p, i, [&](int d, int element) { places[d] = Places(p.mode, p.dims[d], element); });
            each_place<DIMS - 1>(p, places, 0, [&](int at) { sum[u] += upcast(grad[at]); });
        }
        out[to[u]] = downcast<T>(sum[u]);
    }
}

/// Sets `plan` for tensors without and with edges, of which the former or (`is_grown`) the latter is the result; returns
/// false where there are too many dims or elements.
bool make_plan(const Request& r, const Operand& inner, const Operand& outer, bool is_grown, Plan& plan) {
    constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS * UNROLL;
    const auto &before = r.attrs.integers("before"), &after = r.attrs.integers("after");
    const auto& mode = r.attrs.text("mode");
    plan.mode = mode == "circular" ? Mode::circular : mode == "reflect" ? Mode::reflect : Mode::replicate;
    for (const Operand* o : {&inner, &outer}) {
        int64_t span = 1;  // of memory, in elements
        for (size_t d = 0; d < o->shape.size(); ++d) span += std::max<int64_t>(o->shape[d] - 1, 0) * o->strides[d];
        if (o->numel() > LIMIT || span > LIMIT) return false;
    }
    const Operand& result = is_grown ? outer : inner;
    std::vector<size_t> order;
    for (size_t d = result.shape.size(); d-- > 0;)
        if (inner.shape[d] != 1 || outer.shape[d] != 1) order.push_back(d);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return result.strides[a] < result.strides[b]; });
    bool was_kept = false;  // the last dim had no edges
    int64_t count = 1;
    for (size_t d : order) {
        const Dim dim{FastDivide(uint32_t(std::max<int64_t>(result.shape[d], 1))), int(inner.shape[d]), int(outer.shape[d]),
                      int(before[d]), int(inner.strides[d]), int(outer.strides[d])};
        const bool is_kept = before[d] == 0 && after[d] == 0;
        Dim* const last = plan.ndim ? &plan.dims[plan.ndim - 1] : nullptr;
        count *= result.shape[d];
        if (is_kept && was_kept && dim.inner == int64_t(last->inner) * last->n && dim.outer == int64_t(last->outer) * last->size) {
            last->n *= dim.n, last->size *= dim.size;
            last->result = FastDivide(uint32_t(std::max(last->n, 1)));
            continue;
        }
        if (plan.ndim == DIMS) return false;
        plan.dims[plan.ndim++] = dim;
        was_kept = is_kept;
    }
    plan.count = uint32_t(count);
    return true;
}

KernelPtr pad(const Request& r) {
    const Operand &out = r.operands[0], &x = r.operands[1];
    Plan plan;
    if (out.dtype != x.dtype || !make_plan(r, x, out, true, plan)) return nullptr;
    const int64_t itemsize = size_of(out.dtype);
    if (x.numel() == 0 && out.numel() > 0) return nullptr;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (plan.count == 0) return;
        visit_bits(itemsize, [&]<class P>(Tag<P>) {
            launch_kernel("pad", pad_kernel<P>, unsigned(ceil_div(plan.count, THREADS * UNROLL)), THREADS, plan,
                          reinterpret_cast<P*>(data[0]), reinterpret_cast<const P*>(data[1]));
        });
    });
}

KernelPtr pad_grad(const Request& r) {
    const Operand &out = r.operands[0], &grad = r.operands[1];
    Plan plan;
    if (out.dtype != grad.dtype || !is_floating(out.dtype) || !make_plan(r, out, grad, false, plan)) return nullptr;
    return visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            if (plan.count == 0) return;
            launch_kernel("a gradient of pad", pad_grad_kernel<T>, unsigned(ceil_div(plan.count, THREADS * GRAD_UNROLL)),
                          THREADS, plan, reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]));
        });
    });
}

}  // namespace edges
}  // namespace

void add_edges(Registry& registry) {
    registry["pad_edges"] = edges::pad;
    registry["pad_edges_grad"] = edges::pad_grad;
}

}  // namespace norch::indexing
