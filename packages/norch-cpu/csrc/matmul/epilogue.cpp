#include "matmul/epilogue.h"

#include <cmath>
#include <stdexcept>

#include "elementwise/error_function.h"
#include "elementwise/exponential.h"
#include "elementwise/loop.h"

namespace norch::matmul {
namespace {

struct Relu {
    template <class T>
    static T apply(T x) {
        return x <= T(0) ? T(0) : x;
    }
};
struct Gelu {
    template <class T>
    static T apply(T x) {
        return x * T(0.5) * (math::erf(x * T(M_SQRT1_2)) + T(1));
    }
};
struct Silu {
    template <class T>
    static T apply(T x) {
        return x * math::sigmoid(x);
    }
};
struct Tanh {
    template <class T>
    static T apply(T x) {
        return math::tanh(x);
    }
};
struct Sigmoid {
    template <class T>
    static T apply(T x) {
        return math::sigmoid(x);
    }
};

template <class T, class F>
void apply(T* x, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) x[i] = F::apply(x[i]);
}

}  // namespace

template <class T>
void (*activation_named(const std::string& name))(T* x, int64_t n) {
    if (name == "none") return nullptr;
    if (name == "relu") return apply<T, Relu>;
    if (name == "gelu") return apply<T, Gelu>;
    if (name == "silu") return apply<T, Silu>;
    if (name == "tanh") return apply<T, Tanh>;
    if (name == "sigmoid") return apply<T, Sigmoid>;
    throw std::invalid_argument("unknown activation " + name);
}

template void (*activation_named<float>(const std::string&))(float*, int64_t);
template void (*activation_named<double>(const std::string&))(double*, int64_t);

}  // namespace norch::matmul
