// Unary, binary and comparison loops in plain arithmetic.
#include "common/arithmetic_ops.h"
#include "elementwise/divisor.h"
#include "elementwise/loop.h"
#include "elementwise/narrow.h"
#include "elementwise/remainder.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

// Which loop an op has for a type; null for None.
struct WidenedAlways {
    static Loop narrow(DType) { return nullptr; }
};
/// Neg and Abs of 16-bit floats, whose sign is a bit.
template <class F>
void sign_bit_loop(char* const* p, unsigned, int64_t n) {
    uint16_t* out = reinterpret_cast<uint16_t*>(p[0]);
    const uint16_t* x = reinterpret_cast<const uint16_t*>(p[1]);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = std::is_same_v<F, Neg> ? x[i] ^ 0x8000 : x[i] & 0x7fff;
}
template <class F>
struct Unary {
    template <class T>
    static constexpr Loop loop = unary_loop<T, F>;
    static Loop narrow(DType dtype) {
        return is_half(dtype) && (std::is_same_v<F, Neg> || std::is_same_v<F, Abs>) ? sign_bit_loop<F> : nullptr;
    }
};
template <class F>
constexpr bool IS_COMMON = std::is_same_v<F, Add> || std::is_same_v<F, Sub> || std::is_same_v<F, Mul> || std::is_same_v<F, Div>;
template <class F>
struct NarrowBinary {
    template <class S>
    struct Of {
        static constexpr Loop loop = narrow_binary_loop<S, F>;
    };
};
template <class F>
struct Binary {
    template <class T>
    static constexpr Loop loop = binary_loop<T, T, F>;
    static Loop narrow(DType dtype) {
        using G = std::conditional_t<IS_COMMON<F>, F, Add>;  // others are not compiled
        return IS_COMMON<F> ? narrow_of<NarrowBinary<G>::template Of>(dtype) : nullptr;
    }
};
/// Shifts are rare: one loop each.
template <class F>
struct Shift : WidenedAlways {
    template <class T>
    static constexpr Loop loop = [](char* const* p, unsigned broadcast, int64_t n) {
        apply_alike<T>(p, broadcast, n, [](T a, T b) NORCH_INLINE_LAMBDA { return F::apply(a, b); });
    };
};
template <>
struct Binary<ShiftLeft> : Shift<ShiftLeft> {};
template <>
struct Binary<ShiftRight> : Shift<ShiftRight> {};
template <class F>
struct Ternary : WidenedAlways {
    template <class T>
    static constexpr Loop loop = ternary_loop<T, F>;
};
template <class F>
struct Comparison : WidenedAlways {
    template <class T>
    static constexpr Loop loop = binary_loop<uint8_t, T, F>;
};
template <>
struct Comparison<Greater> : WidenedAlways {
    template <class T>
    static constexpr Loop loop = swapped_loop<uint8_t, T, Less>;
};
template <>
struct Comparison<GreaterEqual> : WidenedAlways {
    template <class T>
    static constexpr Loop loop = swapped_loop<uint8_t, T, LessEqual>;
};
template <class F>
void divide_by_one(char* const* p, int64_t n, const Divisor divisor) {
    int64_t* out = reinterpret_cast<int64_t*>(p[0]);
    const int64_t* a = reinterpret_cast<const int64_t*>(p[1]);
    for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<F, FloorDivide>) out[i] = divisor.quotient(a[i]);
        else out[i] = divisor.remainder(a[i]);
    }
}
/// Division of integers looks for zeros first: nothing is written before the error.
template <class F>
struct Division : WidenedAlways {
    template <class T>
    static constexpr Loop loop = [](char* const* p, unsigned broadcast, int64_t n) {
        const T* b = reinterpret_cast<const T*>(p[2]);
        const int64_t n_a = broadcast & 2 ? 1 : n, n_b = broadcast & 4 ? 1 : n;
        bool any_zero = false;
        for (int64_t i = 0; i < n_b; ++i) any_zero |= b[i] == 0;
        if (any_zero) throw ZeroDivision();
        if constexpr (std::is_same_v<T, int64_t> && !std::is_same_v<F, Fmod>)
            if (broadcast & 4 && *b > 0) return divide_by_one<F>(p, n, Divisor(*b));
        if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>)
            if (AsDoubles<T>::HAS_VECTORS && AsDoubles<T>::fits(reinterpret_cast<const T*>(p[1]), b, n_b, n_a))
                return divide_as_doubles<T, F>(p, broadcast, n);
        binary_loop<T, T, F>(p, broadcast, n);
    };
};
template <class F>
struct Mod : WidenedAlways {
    template <class T>
    static constexpr Loop loop = mod_loop<T, F>;
};
struct NoLoop : WidenedAlways {
    template <class T>
    static constexpr Loop loop = nullptr;
};
template <>
struct Unary<None> : NoLoop {};
template <>
struct Binary<None> : NoLoop {};
template <>
struct Ternary<None> : NoLoop {};

NORCH_UNARY(Fraction, x - std::trunc(x))

/// A kernel by category: the loop of bools, of integers, of floats, which are computed in float32 or float64.
template <class Bool, class Integer, class Floating, int PS>
[[gnu::cold]] KernelPtr by_category(const Request& request) {
    const DType dtype = request.operands.back().dtype;
    const Loop loop = visit(dtype, []<class S>(Tag<S>) -> Loop {
        using T = compute_t<S>;
        if constexpr (std::is_same_v<T, bool>) return Bool::template loop<uint8_t>;
        else if constexpr (std::is_integral_v<T>) return Integer::template loop<T>;
        else return Floating::template loop<T>;
    });
    const Loop narrow = of_one_dtype(request) ? Floating::narrow(dtype) : nullptr;
    return loop ? elementwise_kernel(request, loop, PS * 1e-3 * double(size_of(dtype)) / 4, 0, narrow) : nullptr;
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
        return by_category<NoLoop, Division<F>, Mod<F>, 2000>(request);
    }
    template <class F>
    static KernelPtr comparison(const Request& request) {
        return by_category<Comparison<F>, Comparison<F>, Comparison<F>, 150>(request);
    }
};

}  // namespace

void add_arithmetic(Registry& registry) {
    add_arithmetic_ops<Make>(registry);
    registry["frac"] = Make::unary<None, None, Fraction>;
    registry["fmod"] = Make::division<Fmod>;
    registry["pow"] = [](const Request& request) {
        if (is_floating(request.operands[0].dtype)) return floating_pow(request);
        return Make::binary<None, IntegerPower, None, 5000>(request);
    };
}

}  // namespace norch::elementwise
