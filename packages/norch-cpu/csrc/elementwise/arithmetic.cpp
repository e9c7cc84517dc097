// Unary, binary and comparison loops in plain arithmetic.
#include "common/arithmetic_ops.h"
#include "elementwise/loop.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

// Which loop an op has for a type; null for None.
template <class F>
struct Unary {
    template <class T>
    static constexpr Loop loop = unary_loop<T, F>;
};
template <class F>
struct Binary {
    template <class T>
    static constexpr Loop loop = binary_loop<T, T, F>;
};
template <class F>
struct Ternary {
    template <class T>
    static constexpr Loop loop = ternary_loop<T, F>;
};
template <class F>
struct Comparison {
    template <class T>
    static constexpr Loop loop = binary_loop<uint8_t, T, F>;
};
/// Division of integers looks for zeros first: nothing is written before the error.
template <class F>
struct Division {
    template <class T>
    static constexpr Loop loop = [](char* const* p, unsigned broadcast, int64_t n) {
        const T* b = reinterpret_cast<const T*>(p[2]);
        bool any_zero = false;
        for (int64_t i = 0; i < (broadcast & 4 ? 1 : n); ++i) any_zero |= b[i] == 0;
        if (any_zero) throw ZeroDivision();
        binary_loop<T, T, F>(p, broadcast, n);
    };
};
struct NoLoop {
    template <class T>
    static constexpr Loop loop = nullptr;
};
template <>
struct Unary<None> : NoLoop {};
template <>
struct Binary<None> : NoLoop {};
template <>
struct Ternary<None> : NoLoop {};

/// A kernel by category: the loop of bools, of integers, of floats, which are computed in float32 or float64.
template <class Bool, class Integer, class Floating, int PS>
KernelPtr by_category(const Request& request) {
    const DType dtype = request.operands.back().dtype;
    const Loop loop = visit(dtype, []<class S>(Tag<S>) -> Loop {
        using T = compute_t<S>;
        if constexpr (std::is_same_v<T, bool>) return Bool::template loop<uint8_t>;
        else if constexpr (std::is_integral_v<T>) return Integer::template loop<T>;
        else return Floating::template loop<T>;
    });
    return loop ? elementwise_kernel(request, loop, PS * 1e-3 * double(size_of(dtype)) / 4) : nullptr;
}

struct Make {
    template <class Bool, class Integer, class Floating, int PS = 150>
    static KernelPtr unary(const Request& request) {
        return by_category<Unary<Bool>, Unary<Integer>, Unary<Floating>, PS>(request);
    }
    template <class Bool, class Integer, class Floating, int PS = 150>
    static KernelPtr binary(const Request& request) {
        return by_category<Binary<Bool>, Binary<Integer>, Binary<Floating>, PS>(request);
    }
    template <class Bool, class Integer, class Floating>
    static KernelPtr ternary(const Request& request) {
        return by_category<Ternary<Bool>, Ternary<Integer>, Ternary<Floating>, 150>(request);
    }
    template <class F>
    static KernelPtr division(const Request& request) {
        return by_category<NoLoop, Division<F>, Binary<F>, 5000>(request);
    }
    template <class F>
    static KernelPtr comparison(const Request& request) {
        return by_category<Comparison<F>, Comparison<F>, Comparison<F>, 150>(request);
    }
};

}  // namespace

void add_arithmetic(Registry& registry) {
    add_arithmetic_ops<Make>(registry);
    registry["pow"] = [](const Request& request) {
        if (is_floating(request.operands[0].dtype)) return floating_pow(request);
        return Make::binary<None, IntegerPower, None, 5000>(request);
    };
}

}  // namespace norch::elementwise
