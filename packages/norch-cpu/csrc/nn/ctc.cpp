// ctc_alphas and ctc_grad: how likely each state of a target is after each step, and the way back, a sample at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/kernel.h"
#include "elementwise/functions.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

/// Stands for log(0): sums of it stay finite.
template <class T>
constexpr T NEVER = T(-1e30);

/// A batch of targets. States are blank, label, blank, ..., blank; places have two more, before them.
struct Batch {
    int64_t steps, count, classes, longest, blank;

    Batch(int64_t steps, const Operand& labels, int64_t classes, const Attrs& attrs)
        : steps(steps), count(labels.shape[0]), classes(classes), longest(labels.shape[1]), blank(attrs.integer("blank")) {}
    int64_t states() const { return 2 * longest + 1; }
    int64_t places() const { return 2 * longest + 3; }
    /// States in whole vectors.
    template <class T>
    int64_t width() const {
        return (states() + SIMD_WIDTH<T> - 1) / SIMD_WIDTH<T> * SIMD_WIDTH<T>;
    }
    double ns() const { return double(steps * states()) * 4; }
};

/// What a state costs that is reached past another: nothing for a label that differs from the last.
template <class T>
void find_costs(const Batch& b, const int64_t* labels, T* cost, int64_t width) {
    std::fill_n(cost, width, NEVER<T>);
    for (int64_t i = 0; i < b.longest; ++i)
        if (i == 0 || labels[i] != labels[i - 1]) cost[2 * i + 1] = T(0);
}

/// log(exp(a) + exp(b)); NaN where one is.
template <class T>
T log_sum(T a, T b) {
    const T most = a > b ? a : b;
    return most + std::log(std::exp(a - most) + std::exp(b - most));
}

/// next[s] = the logarithm of the sum of the three paths to a state, and what it emits.
template <class T>
__attribute__((noinline)) void step(const T* last, const T* cost, const T* emitted, T* next, int64_t width) {
    NORCH_INDEPENDENT
    for (int64_t s = 0; s < width; ++s) {
        const T a = last[s] + cost[s], b = last[s + 1], c = last[s + 2];
        const T ab = a > b ? a : b, most = ab > c ? ab : c;
        next[s] = most + math::log(math::exp(a - most) + math::exp(b - most) + math::exp(c - most)) + emitted[s];
    }
}

/// The shares of the three paths to a state, times `here`.
template <class T>
__attribute__((noinline)) void share(const T* last, const T* cost, const T* here, T* from, int64_t stride, int64_t width) {
    T *const x = from, *const y = from + stride + 1, *const z = from + 2 * stride + 2;
    NORCH_INDEPENDENT
    for (int64_t s = 0; s < width; ++s) {
        const T a = last[s] + cost[s], b = last[s + 1], c = last[s + 2];
        const T ab = a > b ? a : b, most = ab > c ? ab : c;
        const T p = math::exp(a - most), q = math::exp(b - most), r = math::exp(c - most);
        const T factor = here[s] / (p + q + r);
        x[s] = p * factor, y[s] = q * factor, z[s] = r * factor;
    }
}

template <class T>
[[gnu::cold]] KernelPtr alphas(const Request& r) {
    const Operand& logs = r.operands[2];
    const Batch b(logs.shape[0], r.operands[3], logs.shape[2], r.attrs);
    const auto strides = logs.strides;
    return parallel_kernel(b.count, b.ns(), [=](char* const* data, int64_t begin, int64_t end) {
        const int64_t width = b.width<T>(), row = b.count * b.places();
        Scratch<T> cost(width), emitted(width), last(width + 2), next(width);
        for (int64_t n = begin; n < end; ++n) {
            const int64_t* const labels = reinterpret_cast<const int64_t*>(data[3]) + n * b.longest;
            for (int64_t i = 0; i < b.longest; ++i)
                if (labels[i] < 0 || labels[i] >= b.classes) throw IndexOutOfBounds(labels[i], b.classes);
            const int64_t time = std::clamp<int64_t>(reinterpret_cast<const int64_t*>(data[4])[n], 0, b.steps);
            const int64_t size = std::clamp<int64_t>(reinterpret_cast<const int64_t*>(data[5])[n], 0, b.longest);
            find_costs(b, labels, cost.data(), width);
            std::fill_n(emitted.data(), width, T(0));
            std::fill_n(last.data(), width + 2, NEVER<T>);
            last[1] = T(0);
            T* out = reinterpret_cast<T*>(data[1]) + n * b.places();
            std::copy_n(last.data(), b.places(), out);
            for (int64_t t = 0; t < time; ++t) {
                const T* const log = reinterpret_cast<const T*>(data[2]) + t * strides[0] + n * strides[1];
                const auto emission = [&](int64_t label) {
                    const T value = log[label * strides[2]];
                    return value < NEVER<T> ? NEVER<T> : value;
                };
                const T blank = emission(b.blank);
                for (int64_t i = 0; i < b.longest; ++i) emitted[2 * i] = blank, emitted[2 * i + 1] = emission(labels[i]);
                emitted[2 * b.longest] = blank;
                step(last.data(), cost.data(), emitted.data(), next.data(), width);
                last[1] = NEVER<T>;
                std::copy_n(next.data(), width, last.data() + 2);
                std::copy_n(last.data(), b.places(), out += row);
            }
            const T chance = log_sum(last[2 * size + 1], last[2 * size + 2]);
            reinterpret_cast<T*>(data[0])[n] = chance <= NEVER<T> / 2 ? std::numeric_limits<T>::infinity() : -chance;
            for (int64_t t = time; t < b.steps; ++t) std::fill_n(out += row, b.places(), NEVER<T>);
        }
    });
}

template <class T>
[[gnu::cold]] KernelPtr grads(const Request& r) {
    const Operand& out = r.operands[0];
    const Batch b(out.shape[0], r.operands[2], out.shape[2], r.attrs);
    return parallel_kernel(b.count, b.ns(), [=](char* const* data, int64_t begin, int64_t end) {
        const int64_t width = b.width<T>(), row = b.count * b.places(), stride = width + 2;
        // What came from each of three places lies behind as many zeros as it is shifted by, and before the rest.
        Scratch<T> cost(width), last(width + 2), at(width + 2), from(3 * stride);
        for (int64_t n = begin; n < end; ++n) {
            const int64_t* const labels = reinterpret_cast<const int64_t*>(data[2]) + n * b.longest;
            for (int64_t i = 0; i < b.longest; ++i)
                if (labels[i] < 0 || labels[i] >= b.classes) throw IndexOutOfBounds(labels[i], b.classes);
            const int64_t time = std::clamp<int64_t>(reinterpret_cast<const int64_t*>(data[3])[n], 0, b.steps);
            const int64_t size = std::clamp<int64_t>(reinterpret_cast<const int64_t*>(data[4])[n], 0, b.longest);
            find_costs(b, labels, cost.data(), width);
            std::fill_n(last.data(), width + 2, NEVER<T>);
            std::fill_n(at.data(), width + 2, T(0));
            std::fill_n(from.data(), 3 * stride, T(0));
            const T* alpha = reinterpret_cast<const T*>(data[5]) + time * row + n * b.places();
            const T one = alpha[2 * size + 1], two = alpha[2 * size + 2], chance = log_sum(one, two);
            const T weight = chance <= NEVER<T> / 2 ? T(0) : -reinterpret_cast<const T*>(data[1])[n];
            const T share_of_two = 1 / (1 + std::exp(one - two));
            at[2 * size + 1] = weight * (1 - share_of_two), at[2 * size + 2] = weight * share_of_two;
            T* const grad = reinterpret_cast<T*>(data[0]) + n * b.classes;
            for (int64_t t = time; t < b.steps; ++t) std::fill_n(grad + t * b.count * b.classes, b.classes, T(0));
            for (int64_t t = time - 1; t >= 0; --t) {
                T* const to = grad + t * b.count * b.classes;
                std::fill_n(to, b.classes, T(0));
                const T* const here = at.data() + 2;
                T blank = here[2 * b.longest];
                for (int64_t i = 0; i < b.longest; ++i) blank += here[2 * i], to[labels[i]] += here[2 * i + 1];
                to[b.blank] += blank;
                alpha -= row;
                std::copy_n(alpha, b.places(), last.data());
                share(last.data(), cost.data(), here, from.data(), stride, width);
                const T *const x = from.data(), *const y = x + stride, *const z = y + stride;
                NORCH_INDEPENDENT
                for (int64_t p = 0; p < width + 2; ++p) at[p] = x[p] + y[p] + z[p];
            }
        }
    });
}

/// `operands`: which must lie row by row.
template <class F>
[[gnu::cold]] KernelPtr floating(const Request& r, std::initializer_list<size_t> operands, const F& make) {
    for (size_t i : operands)
        if (!r.operands[i].is_contiguous()) return nullptr;
    const DType dtype = r.operands[0].dtype;
    if (r.operands[1].dtype != dtype) return nullptr;
    return dtype == DType::f32 ? make(float()) : dtype == DType::f64 ? make(double()) : nullptr;
}

}  // namespace

void add_ctc(Registry& registry) {
    registry["ctc_alphas"] = [](const Request& r) {
        return floating(r, {0, 1, 3, 4, 5}, [&]<class T>(T) { return alphas<T>(r); });
    };
    registry["ctc_grad"] = [](const Request& r) {
        return floating(r, {0, 1, 2, 3, 4, 5}, [&]<class T>(T) { return grads<T>(r); });
    };
}

}  // namespace norch::nn
