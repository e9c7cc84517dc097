// What kernels of normalisation share: sums of several things at once, and operands brought to contiguous memory.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "lines.h"

namespace norch {

constexpr int64_t SUM_BLOCK = 4096;  // elements summed as they are; sums of such blocks go on in double

/// f(0) + ... + f(n - 1)
template <class C, class F>
inline double total(int64_t n, const F& f) {
    double sum = 0;
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK)
        sum += sum_of<C>(std::min(SUM_BLOCK, n - begin), [&](int64_t i) { return f(begin + i); });
    return sum;
}

/// What the gradient of a normalised row needs: the square of what x is off the mean, the gradient, and their product.
struct Moments {
    double square = 0, grad = 0, product = 0;
};

template <int LANES, class C, class F>
inline void add_moments(int64_t n, const F& f, Moments& sums) {
    C square[LANES] = {}, grad[LANES] = {}, product[LANES] = {};
    auto add = [&](int64_t i, int j) {
        const auto [g, x] = f(i);
        square[j] += x * x;
        grad[j] += g;
        product[j] += g * x;
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        NORCH_INDEPENDENT
        for (int j = 0; j < LANES; ++j) add(i + j, j);
    }
    for (int j = 0; i < n; ++i, ++j) add(i, j);
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; ++j) {
            square[j] += square[j + half];
            grad[j] += grad[j + half];
            product[j] += product[j + half];
        }
    sums.square += square[0];
    sums.grad += grad[0];
    sums.product += product[0];
}

/// A gradient and what x is off the mean.
template <class C>
struct Pair {
    C g, x;
};

/// Adds the moments of n elements, f(i) being the Pair of element i.
template <class C, class F>
inline void add_moments(int64_t n, const F& f, Moments& sums) {
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        int64_t count = std::min(SUM_BLOCK, n - begin);
        auto shifted = [&](int64_t i) { return f(begin + i); };
        if (count < 64) add_moments<8, C>(count, shifted, sums);
        else add_moments<32, C>(count, shifted, sums);
    }
}

/// A kernel for contiguous operands of type C, and the copies of those that are not.
class Staged final : public Kernel {
public:
    static constexpr int MOST = 8;
    using Body = std::function<void(char* const*)>;

    Staged(const Request& request, int outputs, DType compute, double ns, Body body)
        : outputs_(outputs), count_(int(request.operands.size())), body_(std::move(body)) {
        work = ns;
        Registry copying;
        add_copying(copying);
        for (int i = 0; i < count_; ++i) {
            const Operand& given = request.operands[i];
            if (given.dtype == compute && given.is_contiguous()) continue;
            Operand whole{compute, given.shape, given.strides};
            int64_t stride = 1;
            for (int d = given.ndim() - 1; d >= 0; --d) {
                whole.strides[d] = stride;
                stride *= std::max<int64_t>(given.shape[d], 1);
            }
            bytes_[i] = given.numel() * size_of(compute);
            Request copy{"copy", {whole, given}, {}};
            if (i < outputs) std::swap(copy.operands[0], copy.operands[1]);
            copies_[i] = copying.at("copy")(copy);
            work += copies_[i]->work;
        }
    }

    void run(char* const* data, const Scalar*) const override {
        char* whole[MOST];
        std::optional<Scratch<>> scratch[MOST];
        for (int i = 0; i < count_; ++i) {
            whole[i] = data[i];
            if (!copies_[i]) continue;
            scratch[i].emplace(bytes_[i]);
            whole[i] = scratch[i]->data();
            if (i >= outputs_ && bytes_[i]) copies_[i]->run(std::array{whole[i], data[i]}.data(), nothing_);
        }
        body_(whole);
        for (int i = 0; i < outputs_; ++i)
            if (copies_[i] && bytes_[i]) copies_[i]->run(std::array{data[i], whole[i]}.data(), nothing_);
    }

private:
    int outputs_, count_;
    Body body_;
    KernelPtr copies_[MOST];
    int64_t bytes_[MOST] = {};
    static constexpr Scalar nothing_[2] = {};
};

/// Whether the operands are floating, and none holds numbers that the compute dtype of `like` does not.
inline bool fits(const Request& request, const Operand& like) {
    if (!is_floating(like.dtype) || int(request.operands.size()) > Staged::MOST) return false;
    int64_t most = like.dtype == DType::f64 ? 8 : 4;
    for (const Operand& o : request.operands)
        if (o.is_scalar || !is_floating(o.dtype) || size_of(o.dtype) > most) return false;
    return true;
}

/// Calls make(Tag<C>, compute dtype) for the type that an operand is computed in.
template <class F>
KernelPtr by_compute_type(const Operand& like, const F& make) {
    return like.dtype == DType::f64 ? make(Tag<double>{}, DType::f64) : make(Tag<float>{}, DType::f32);
}

void add_channel_normalization(Registry&);  // channelnorm.cpp: batch_norm, group_norm

}  // namespace norch
