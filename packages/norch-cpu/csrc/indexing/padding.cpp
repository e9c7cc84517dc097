// pad_edges and its gradient: elements put around a tensor that are its own, or moved around in it.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/kernel.h"
#include "indexing/places.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::indexing {
namespace {

/// Which element of a dim of n stands at each place, from `before` ahead of it to `after` behind it.
std::vector<int64_t> places_of(int64_t n, int64_t before, int64_t after, const std::string& mode) {
    std::vector<int64_t> places(size_t(n + before + after));
    for (int64_t i = -before; i < n + after; ++i) {
        int64_t at = i;
        if (mode == "replicate") at = std::clamp<int64_t>(i, 0, n - 1);
        else if (mode == "circular") at = (i % n + n) % n;
        else at = (n - 1) - std::abs((n - 1) - std::abs(i));
        if (at < 0 || at >= n) throw std::invalid_argument("pad_edges by more than there is");
        places[size_t(i + before)] = at;
    }
    return places;
}

/// The padded tensor and what it is made of, dim by dim, the last the one in which the padded one lies without gaps. The
/// first `shared` dims are not padded.
struct Padding {
    struct Dim {
        std::vector<int64_t> places;  // bytes into the tensor that is padded
        int64_t step;                 // bytes in the padded one
        int64_t first, begin, end;    // element `first` and those behind it stand at places begin to end
    };
    std::vector<Dim> dims;
    int shared = 0;
    int64_t rows_shared = 1, rows = 1;
    int64_t inner_step = 0;  // bytes between elements of the tensor that is padded
    bool is_circular = false;

    static bool make(const Operand& padded, const Operand& x, const Attrs& attrs, Padding& out) {
        const int nd = x.ndim();
        const std::vector<int64_t>&before = attrs.integers("before"), &after = attrs.integers("after");
        const std::string& mode = attrs.text("mode");
        const int64_t size = size_of(x.dtype);
        out.is_circular = mode == "circular";
        std::vector<int> order(static_cast<size_t>(nd));
        std::iota(order.begin(), order.end(), 0);
        const auto is_padded = [&](int d) { return before.at(size_t(d)) || after.at(size_t(d)); };
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return padded.strides[size_t(a)] > padded.strides[size_t(b)]; });
        if (!nd || padded.strides[size_t(order.back())] != 1) return false;
        std::stable_partition(order.begin(), order.end() - 1, [&](int d) { return !is_padded(d); });
        for (int d : order) {
            const auto i = size_t(d);
            Dim dim{places_of(x.shape[i], before[i], after[i], mode), padded.strides[i] * size,
                    std::max<int64_t>(-before[i], 0), std::max<int64_t>(before[i], 0),
                    before[i] + x.shape[i] + std::min<int64_t>(after[i], 0)};
            for (int64_t& place : dim.places) place *= x.strides[i] * size;
            const bool is_last = d == order.back();
            if (is_last) out.inner_step = x.strides[i] * size;
            else out.rows *= int64_t(dim.places.size());
            if (!is_last && !is_padded(d)) ++out.shared, out.rows_shared *= x.shape[i];
            out.dims.push_back(std::move(dim));
        }
        return true;
    }

    /// Moves to row `row` of dims first to last.
    void move(char*& padded, char*& x, int first, int last, int64_t row) const {
        for (int d = last - 1; d >= first; --d) {
            const Dim& dim = dims[size_t(d)];
            const auto n = int64_t(dim.places.size());
            padded += row % n * dim.step;
            x += dim.places[size_t(row % n)];
            row /= n;
        }
    }

    /// Calls body(padded, x) for rows begin to end of dims first to last.
    template <class Body>
    void walk(char* padded, char* x, int first, int last, int64_t begin, int64_t end, const Body& body) const {
        if (first == last) return body(padded, x);
        const Dim& dim = dims[size_t(last - 1)];
        const auto n = int64_t(dim.places.size());
        while (begin < end) {
            char *to = padded, *from = x;
            move(to, from, first, last - 1, begin / n);
            const int64_t at = begin % n, stop = std::min(n, at + end - begin);
            for (int64_t i = at; i < stop; ++i) body(to + i * dim.step, from + dim.places[size_t(i)]);
            begin += stop - at;
        }
    }
};

template <class T>
void pad_row(T* out, char* x, const Padding& p) {
    const Padding::Dim& dim = p.dims.back();
    const int64_t n = int64_t(dim.places.size()), begin = dim.begin, inside = dim.end - begin;
    const char* from = x + dim.first * p.inner_step;
    if (p.inner_step == int64_t(sizeof(T))) {
        std::memcpy(out + begin, from, size_t(inside) * sizeof(T));
        if (p.is_circular) {  // what is put around lies together as well
            if (begin) std::memcpy(out, x + dim.places.front(), size_t(begin) * sizeof(T));
            if (n > dim.end) std::memcpy(out + dim.end, x + dim.places[size_t(dim.end)], size_t(n - dim.end) * sizeof(T));
            return;
        }
    } else {
        for (int64_t i = 0; i < inside; ++i) out[begin + i] = at<T>(from, i * p.inner_step);
    }
    for (int64_t i = 0; i < begin; ++i) out[i] = at<T>(x, dim.places[size_t(i)]);
    for (int64_t i = dim.end; i < n; ++i) out[i] = at<T>(x, dim.places[size_t(i)]);
}

template <class T>
void add_row(const T* g, char* x, const Padding& p) {
    const Padding::Dim& dim = p.dims.back();
    const int64_t n = int64_t(dim.places.size()), begin = dim.begin, inside = dim.end - begin;
    char* const first = x + dim.first * p.inner_step;
    if (p.inner_step == int64_t(sizeof(T))) {
        T* to = reinterpret_cast<T*>(first);
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < inside; ++i) to[i] += g[begin + i];
    } else {
        for (int64_t i = 0; i < inside; ++i) at<T>(first, i * p.inner_step) += g[begin + i];
    }
    for (int64_t i = 0; i < begin; ++i) at<T>(x, dim.places[size_t(i)]) += g[i];
    for (int64_t i = dim.end; i < n; ++i) at<T>(x, dim.places[size_t(i)]) += g[i];
}

[[gnu::cold]] KernelPtr pad_edges(const Request& request) {
    const Operand &out = request.operands[0], &x = request.operands[1];
    Padding padding;
    if (!out.numel() || !Padding::make(out, x, request.attrs, padding)) return nullptr;
    const int outer = int(padding.dims.size()) - 1;
    const double ns = 0.04 * double(size_of(x.dtype)) * double(padding.dims.back().places.size()) + 8;
    return visit_bits(size_of(x.dtype), [&]<class T>(Tag<T>) {
        return parallel_kernel(padding.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
            padding.walk(data[0], data[1], 0, outer, begin, end,
                         [&](char* to, char* from) { pad_row(reinterpret_cast<T*>(to), from, padding); });
        });
    });
}

/// Whether an output, no elements of which share memory, lies there without gaps.
[[gnu::cold]] bool is_dense(const Operand& out) {
    int64_t span = 1;
    for (size_t d = 0; d < out.shape.size(); ++d) span += (out.shape[d] - 1) * out.strides[d];
    return span == out.numel();
}

template <class T>
[[gnu::cold]] KernelPtr make_pad_edges_grad(const Operand& out, const Operand& grad, const Attrs& attrs) {
    Padding padding;
    if (!is_dense(out) || !grad.numel() || !Padding::make(grad, out, attrs, padding)) return nullptr;
    const int outer = int(padding.dims.size()) - 1;
    const int64_t inside = padding.rows / padding.rows_shared, zeros = out.numel() * int64_t(sizeof(T));
    const double ns = double(inside) * (0.1 * double(sizeof(T)) * double(padding.dims.back().places.size()) + 8);
    return make_kernel(ns * double(padding.rows_shared), [=](char* const* data, const Scalar*) {
        std::memset(data[0], 0, size_t(zeros));
        parallel_for(padding.rows_shared, ns, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                char *to = data[0], *from = data[1];
                padding.move(from, to, 0, padding.shared, i);
                padding.walk(from, to, padding.shared, outer, 0, inside,
                             [&](char* g, char* x) { add_row(reinterpret_cast<const T*>(g), x, padding); });
            }
        });
    });
}

[[gnu::cold]] KernelPtr pad_edges_grad(const Request& request) {
    const Operand &out = request.operands[0], &grad = request.operands[1];
    if (grad.dtype == DType::f32) return make_pad_edges_grad<float>(out, grad, request.attrs);
    if (grad.dtype == DType::f64) return make_pad_edges_grad<double>(out, grad, request.attrs);
    return nullptr;
}

}  // namespace

void add_padding(Registry& registry) {
    registry["pad_edges"] = pad_edges;
    registry["pad_edges_grad"] = pad_edges_grad;
}

}  // namespace norch::indexing
