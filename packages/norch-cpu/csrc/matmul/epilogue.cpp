#include "matmul/epilogue.h"

#include <stdexcept>

#include "common/activation_ops.h"
#include "elementwise/functions.h"
#include "runtime/simd.h"

namespace norch::matmul {
namespace {

template <class T, class Op>
void apply(T* x, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) x[i] = Op::template apply<Functions>(x[i], Constants<T>{});
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
