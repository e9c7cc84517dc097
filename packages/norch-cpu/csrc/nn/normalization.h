// What kernels of normalisation share: sums of several things at once, and operands brought to contiguous memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "common/staging.h"
#include "reduction/reduction.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/tile.h"

namespace norch::nn {

constexpr int64_t SUM_BLOCK = 4096;  // elements summed as they are; sums of such blocks go on in double

/// Several sums that grow together, each in lanes that the compiler turns into vectors.
template <class C, int SUMS, int LANES>
class Lanes {
public:
    Lanes() {
        // A vector at a time: GCC clears a whole array by `rep stos`, which takes as long as adding up a short row.
        for (auto& lanes : lanes_)
            for (int i = 0; i < LENGTH; i += AT_ONCE) store_vector(lanes + i, vector_t<C, AT_ONCE>{});
    }
    /// Adds f(0), ..., f(n - 1), each a std::array of SUMS numbers.
    template <class F>
    void add(int64_t n, const F& f) {
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) add_vector<LANES>(i, f);
        for (; i + SIMD_WIDTH<C> <= n; i += SIMD_WIDTH<C>) add_vector<SIMD_WIDTH<C>>(i, f);
        for (int j = 0; i < n; ++i, ++j) add_one(i, j, f);
    }
    double sum(int k) const {
        // A vector of four by name: of a tree, or a loop of four, the compiler makes scalar code.
        using Four __attribute__((vector_size(4 * sizeof(C)))) = C;
        Four sum = {}, next;
        for (int i = 0; i < LANES; i += 4) {
            std::memcpy(&next, lanes_[k] + i, sizeof next);
            sum += next;
        }
        return double((sum[0] + sum[2]) + (sum[1] + sum[3]));
    }

private:
    template <int N, class F>
    void add_vector(int64_t i, const F& f) {
        NORCH_INDEPENDENT
        for (int j = 0; j < N; ++j) add_one(i + j, j, f);
    }
    template <class F>
    void add_one(int64_t i, int j, const F& f) {
        const std::array<C, SUMS> values = f(i);
        lanes_[0][j] += values[0];
        if constexpr (SUMS > 1) lanes_[1][j] += values[1];
        if constexpr (SUMS > 2) lanes_[2][j] += values[2];
    }

    static constexpr int LENGTH = LANES < 4 ? 4 : LANES, AT_ONCE = std::min(LENGTH, SIMD_WIDTH<C>);
    C lanes_[SUMS][LENGTH];
};

template <int SUMS, int LANES, class C, class F>
inline void add_block(int64_t n, const F& f, double* sums) {
    Lanes<C, SUMS, LANES> lanes;
    lanes.add(n, f);
    for (int k = 0; k < SUMS; ++k) sums[k] += lanes.sum(k);
}

/// sums[k] += f(0)[k] + ... + f(n - 1)[k]
template <int SUMS, class C, class F>
inline void add_sums(int64_t n, const F& f, double* sums) {
    constexpr int LANES = (SUMS == 1 ? 4 : 2) * SIMD_WIDTH<C>;
    if (n < LANES) return add_block<SUMS, SIMD_WIDTH<C>, C>(n, f, sums);
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK)
        add_block<SUMS, LANES, C>(std::min(SUM_BLOCK, n - begin), [&](int64_t i) { return f(begin + i); }, sums);
}

/// f(0) + ... + f(n - 1)
template <class C, class F>
inline double total(int64_t n, const F& f) {
    double sum = 0;
    add_sums<1, C>(n, [&](int64_t i) { return std::array<C, 1>{f(i)}; }, &sum);
    return sum;
}

/// A mean in two parts: rounding takes more of a large one than small deviations are. It is found from the numbers less
/// one of them, whose sum is small then.
template <class C>
struct Mean {
    Mean() = default;
    explicit Mean(double mean) : rounded(C(mean)), off(mean - double(rounded)) {}
    /// The variance, of the mean of squares of numbers less `rounded`.
    double variance(double square) const {
        const double out = square - off * off;
        return out < 0 ? 0 : out;
    }
    /// The sum of gradients times numbers less the mean, of that with numbers less `rounded`.
    double product(double sum, double grads) const { return sum - off * grads; }

    C rounded = 0;
    double off = 0;
};

template <class C>
Mean<C> mean_of(const C* x, int64_t n) {
    const C first = *x;
    return Mean<C>(first + total<C>(n, [=](int64_t i) { return x[i] - first; }) / double(n));
}

template <class C>
struct Statistics {
    Mean<C> centre;
    double variance;
};

/// Two passes, so that a mean that is large next to the deviation does no harm.
template <class C>
Statistics<C> statistics(const C* x, int64_t n) {
    const Mean<C> centre = mean_of(x, n);
    const C mean = centre.rounded;
    const double square = total<C>(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / double(n);
    return {centre, centre.variance(square)};
}

/// What the gradient of normalised numbers needs: the sums of their squares, of the gradient, and of the products.
template <class C>
std::array<C, 3> moments(C x, C g) {
    return {x * x, g, g * x};
}
enum { SQUARE, GRAD, PRODUCT };

/// The kernel of `body` for operands that are contiguous and of the compute dtype.
template <class Body>
[[gnu::cold]] KernelPtr staged(const Request& request, int outputs, DType compute, double ns, const Body& body) {
    const std::vector<DType> wanted(request.operands.size(), compute);
    return Staged::make(request, outputs, wanted, make_kernel(ns, [body](char* const* data, const Scalar*) { body(data); }));
}

/// Calls make(Tag<C>, compute dtype) for the type that an operand is computed in.
template <class F>
[[gnu::cold]] KernelPtr by_compute_type(const Operand& like, const F& make) {
    return like.dtype == DType::f64 ? make(Tag<double>{}, DType::f64) : make(Tag<float>{}, DType::f32);
}

/// Whether the operands lie without gaps, are floating, and none holds numbers that what `like` is computed in does not.
inline bool are_plain(const Request& request, const Operand& like) {
    if (!fits(request, like)) return false;
    for (const Operand& o : request.operands)
        if (!o.is_contiguous()) return false;
    return true;
}

/// A vector of parameters as C: itself, a copy, or null where there is none.
template <class C>
class Parameter {
public:
    Parameter(const char* data, DType dtype, int64_t n) {
        constexpr DType wanted = sizeof(C) == 8 ? DType::f64 : DType::f32;
        data_ = reinterpret_cast<const C*>(data);
        if (!data || dtype == wanted) return;
        copy_.emplace(n);
        convert_line(data, dtype, n, reinterpret_cast<char*>(copy_->data()), wanted);
        data_ = copy_->data();
    }
    const C* data() const { return data_; }

private:
    std::optional<Scratch<C>> copy_;
    const C* data_;
};

/// group_norm, or its gradient, of images whose channels lie next to each other, else null. outputs: how many; images: inputs.
KernelPtr group_norm_last(const Request& request, int outputs, int images);  // groupnorm_last.cpp

void add_channel_normalization(Registry&);  // channelnorm.cpp: batch_norm
void add_running_normalization(Registry&);  // runningnorm.cpp: batch_norm with statistics that are given
void add_group_normalization(Registry&);    // groupnorm.cpp

}  // namespace norch::nn
