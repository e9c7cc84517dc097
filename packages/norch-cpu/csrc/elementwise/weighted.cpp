// addcmul, addcdiv and lerp. Compiled without contraction to multiply-adds (CMakeLists.txt): the bits of norch's formulas.
#include <cmath>

#include "elementwise/loop.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

struct Addcmul {
    template <class T>
    static T apply(T x, T a, T b, T value) {
        return x + a * value * b;
    }
};
struct Addcdiv {
    template <class T>
    static T apply(T x, T a, T b, T value) {
        return x + a * value / b;
    }
};
/// By a weight near 0, and by what is left to 1 of one near 1: exact at both ends.
struct LerpFromStart {
    template <class T>
    static T apply(T a, T b, T weight, T) {
        return a + (b - a) * weight;
    }
};
struct LerpFromEnd {
    template <class T>
    static T apply(T a, T b, T rest, T) {
        return b - (b - a) * rest;
    }
};
struct LerpByTensor {
    template <class T>
    static T apply(T a, T b, T weight, T) {
        const bool is_small = std::fabs(weight) < T(0.5);
        const T step = (b - a) * (is_small ? weight : 1 - weight), from_start = a + step, from_end = b - step;
        return is_small ? from_start : from_end;
    }
};

template <class T>
using Row = void (*)(T* out, const T* a, const T* b, const T* c, T number, int64_t n);

template <class T, class F>
void row(T* out, const T* a, const T* b, const T* c, T number, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = F::apply(a[i], b[i], c[i], number);
}

/// One element for all is repeated.
template <class T>
void in_blocks(char* const* p, unsigned broadcast, T number, int64_t n, Row<T> row) {
    constexpr int64_t BLOCK = 256;
    T repeated[3][BLOCK];
    const T* in[3];
    int64_t step[3];
    for (int k = 0; k < 3; ++k) {
        in[k] = reinterpret_cast<const T*>(p[k + 1]);
        step[k] = 1;
        if (!(broadcast >> k & 2)) continue;
        std::fill_n(repeated[k], std::min(n, BLOCK), *in[k]);
        in[k] = repeated[k], step[k] = 0;
    }
    const int64_t block = broadcast & 14 ? BLOCK : n;
    for (int64_t i = 0; i < n; i += block)
        row(reinterpret_cast<T*>(p[0]) + i, in[0] + i * step[0], in[1] + i * step[1], in[2] + i * step[2], number,
            std::min(n - i, block));
}

/// PLACE: where the number is that formulas take, or 0.
template <class T, class F, int PLACE>
void loop(char* const* p, unsigned broadcast, int64_t n) {
    in_blocks(p, broadcast, PLACE ? *reinterpret_cast<const T*>(p[PLACE]) : T(0), n, row<T, F>);
}
/// The weight, or what is left to 1, is a number.
template <class T, class F, int PLACE>
void lerp_loop(char* const* p, unsigned broadcast, int64_t n) {
    char* const given[] = {p[0], p[1], p[2], p[PLACE]};
    in_blocks(given, broadcast | 8, T(0), n, row<T, F>);
}

/// Integers are left to norch's formulas.
[[gnu::cold]] KernelPtr weighted(const Request& request, Loop in_float, Loop in_double) {
    const DType dtype = request.operands[0].dtype;
    if (!is_floating(dtype)) return nullptr;
    return elementwise_kernel(request, dtype == DType::f64 ? in_double : in_float, 0.04 * double(size_of(dtype)));
}

template <class F, int PLACE>
[[gnu::cold]] KernelPtr make(const Request& request) {
    return weighted(request, loop<float, F, PLACE>, loop<double, F, PLACE>);
}

[[gnu::cold]] KernelPtr lerp(const Request& request) {
    if (request.attrs.flag("is_small"))
        return weighted(request, lerp_loop<float, LerpFromStart, 3>, lerp_loop<double, LerpFromStart, 3>);
    return weighted(request, lerp_loop<float, LerpFromEnd, 4>, lerp_loop<double, LerpFromEnd, 4>);
}

}  // namespace

void add_weighted(Registry& registry) {
    registry["addcmul"] = make<Addcmul, 4>;
    registry["addcdiv"] = make<Addcdiv, 4>;
    registry["lerp"] = lerp;
    registry["lerp_by_tensor"] = make<LerpByTensor, 0>;
}

}  // namespace norch::elementwise
