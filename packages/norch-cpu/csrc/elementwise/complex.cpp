// complex_mul: products of complex numbers, each a pair of elements along the last dim.
#include <algorithm>
#include <type_traits>

#include "common/layout.h"
#include "elementwise/elementwise.h"
#include "runtime/families.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch::elementwise {
namespace {

/// Where the numbers of an operand lie: bytes between them, and from the real part to the imaginary one.
struct Places {
    int64_t step, part;
};

template <class T>
inline T& at(char* data, int64_t offset) {
    return *reinterpret_cast<T*>(data + offset);
}

/// A factor whose numbers are `step` apart, 1 where each part lies by itself, 2 in pairs, 0 for one number.
template <class T>
struct Factor {
    const T *re, *im;
    int64_t step;
};

/// The real and the imaginary parts of some numbers from one on.
template <class T, int L, class V = vector_t<T, L>>
NORCH_INLINE void load_parts(const Factor<T>& f, int64_t i, V& re, V& im) {
    if (f.step == 1) {
        re = load_vector<L>(f.re + i), im = load_vector<L>(f.im + i);
    } else if (f.step == 2) {
        const V low = load_vector<L>(f.re + 2 * i), high = load_vector<L>(f.re + 2 * i + L);
        re = deinterleave<0, L>(low, high), im = deinterleave<1, L>(low, high);
    } else {
        re = *f.re - V{}, im = *f.im - V{};
    }
}

/// out = a b, the imaginary part of b times `sign`; `out` has pairs.
template <class T>
void multiply_parts(T* out, const Factor<T>& a, const Factor<T>& b, T sign, int64_t n) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    int64_t i = 0;
    for (; i + L <= n; i += L) {
        V x, y, c, d;
        load_parts<T, L>(a, i, x, y);
        load_parts<T, L>(b, i, c, d);
        d *= sign;
        const V re = x * c - y * d, im = x * d + y * c;
        store_vector(out + 2 * i, interleave<false, L>(re, im));
        store_vector(out + 2 * i + L, interleave<true, L>(re, im));
    }
    for (; i < n; ++i) {
        const T x = a.re[i * a.step], y = a.im[i * a.step], c = b.re[i * b.step], d = b.im[i * b.step] * sign;
        out[2 * i] = x * c - y * d;
        out[2 * i + 1] = x * d + y * c;
    }
}

template <class T>
void multiply_row(char* out, char* a, char* b, const Places* p, T sign, int64_t n) {
    constexpr int64_t size = sizeof(T);
    const auto is_paired = [&](int i) { return p[i].part == size && (p[i].step == 2 * size || (p[i].step == 0 && i > 0)); };
    const auto is_dense = [&](int i) { return p[i].step == size || p[i].step == 0 || is_paired(i); };
    if (is_paired(0) && is_dense(1) && is_dense(2)) {
        const Factor<T> x{&at<T>(a, 0), &at<T>(a, p[1].part), p[1].step / size};
        const Factor<T> y{&at<T>(b, 0), &at<T>(b, p[2].part), p[2].step / size};
        return multiply_parts(&at<T>(out, 0), x, y, sign, n);
    }
    for (int64_t i = 0; i < n; ++i) {
        const T x = at<T>(a, i * p[1].step), y = at<T>(a, i * p[1].step + p[1].part);
        const T c = at<T>(b, i * p[2].step), d = at<T>(b, i * p[2].step + p[2].part) * sign;
        at<T>(out, i * p[0].step) = x * c - y * d;
        at<T>(out, i * p[0].step + p[0].part) = x * d + y * c;
    }
}

template <class T>
[[gnu::cold]] KernelPtr make_complex_mul(const Request& request) {
    std::vector<Operand> numbers = request.operands;
    Places places[3];
    for (size_t i = 0; i < 3; ++i) {
        if (numbers[i].shape.back() != 2) return nullptr;
        places[i].part = numbers[i].strides.back() * int64_t(sizeof(T));
        numbers[i].shape.pop_back();
        numbers[i].strides.pop_back();
    }
    const Loops loops = collapse(numbers);
    const int outer = std::max(loops.ndim() - 1, 0);
    const int64_t n = loops.ndim() ? loops.shape.back() : 1, rows = n ? loops.numel / n : 0;
    for (size_t i = 0; i < 3; ++i) places[i].step = loops.ndim() ? loops.strides[i].back() : 0;
    const T sign = request.attrs.flag("conj") ? T(-1) : T(1);
    const double ns = 0.1 * double(sizeof(T)) * double(n) + 4;
    return make_kernel(ns * double(rows), [=, a = places[0], b = places[1], c = places[2]](char* const* data, const Scalar*) {
        const Places each[] = {a, b, c};
        parallel_for(rows, ns, [&](int64_t begin, int64_t end) {
            Walker row(loops, outer, data, begin);
            for (int64_t i = begin; i < end; ++i, row.next()) multiply_row<T>(row[0], row[1], row[2], each, sign, n);
        });
    });
}

[[gnu::cold]] KernelPtr complex_mul(const Request& request) {
    switch (request.operands[0].dtype) {
        case DType::f32: return make_complex_mul<float>(request);
        case DType::f64: return make_complex_mul<double>(request);
        default: return nullptr;
    }
}

}  // namespace

void add_complex(Registry& registry) { registry["complex_mul"] = complex_mul; }

}  // namespace norch::elementwise
