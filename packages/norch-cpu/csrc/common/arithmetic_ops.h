// What the ops of plain arithmetic do to one element, on any processor: T is what a dtype is computed in.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define NORCH_FN __host__ __device__
#else
#define NORCH_FN inline __attribute__((always_inline))
#endif

/// An op as a type: `Name::apply(x)` or `Name::apply(a, b)` is the formula.
#define NORCH_UNARY(Name, formula)                \
    struct Name {                                 \
        template <class T>                        \
        NORCH_FN static T apply(T x) {            \
            return formula;                       \
        }                                         \
    };
#define NORCH_BINARY(Out, Name, formula)          \
    struct Name {                                 \
        template <class T>                        \
        NORCH_FN static Out apply(T a, T b) {     \
            return formula;                       \
        }                                         \
    };

namespace norch {

/// Integers are computed without a sign, where overflow wraps around.
template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
    using type = T;
};
template <class T>
struct Wrapping<T, true> {
    using type = std::make_unsigned_t<T>;
};
template <class T>
using wrapping_t = typename Wrapping<T>::type;

NORCH_BINARY(T, Add, T(wrapping_t<T>(a) + wrapping_t<T>(b)))
NORCH_BINARY(T, Sub, T(wrapping_t<T>(a) - wrapping_t<T>(b)))
struct Mul {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (sizeof(T) == 2) return T(uint32_t(a) * uint32_t(b));  // uint16_t would become a signed int
        else return T(wrapping_t<T>(a) * wrapping_t<T>(b));
    }
};
NORCH_BINARY(T, Div, a / b)
/// A NaN wins: in a by the test, in b because every comparison with it is false.
NORCH_BINARY(T, Maximum, a > b || a != a ? a : b)
NORCH_BINARY(T, Minimum, a < b || a != a ? a : b)
struct Clamp {
    template <class T>
    NORCH_FN static T apply(T x, T low, T high) {
        // NaN in x fails both tests and stays. Bounds are tested for it last: Maximum's and Minimum's tests one after the
        // other do not vectorise.
        const T least = low >= x ? low : x, most = high <= least ? high : least;
        const T low_or_most = low != low ? low : most;
        return high != high ? high : low_or_most;
    }
};
struct AddScaled {
    template <class T>
    NORCH_FN static T apply(T a, T b, T scale) {
        return a + b * scale;
    }
};
NORCH_BINARY(T, And, T(a & b))
NORCH_BINARY(T, Or, T(a | b))
NORCH_BINARY(T, Xor, T(a ^ b))
struct ShiftLeft {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        constexpr T width = T(8 * sizeof(T));
        return b < 0 || b >= width ? T(0) : T(wrapping_t<T>(a) << b);
    }
};
struct ShiftRight {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        constexpr T width = T(8 * sizeof(T));
        return b < 0 || b >= width ? T(a < 0 ? -1 : 0) : T(a >> b);
    }
};

/// Python's rule: the remainder has the divisor's sign. Floats as in CPython's float_divmod, `of_mod` from what std::fmod
/// gives and free of branches.
struct FloorDivide {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            if (std::is_signed_v<T> && b == T(-1)) return T(wrapping_t<T>(0) - wrapping_t<T>(a));
            return of_quotient(a, b, T(a / b));
        } else {
            return of_mod(a, b, std::fmod(a, b));
        }
    }
    template <class T>
    NORCH_FN static T of_quotient(T a, T b, T quotient) {
        const T rest = T(a - quotient * b);
        return std::is_signed_v<T> && (rest != 0) & ((rest < 0) != (b < 0)) ? T(quotient - 1) : quotient;
    }
    template <class T>
    NORCH_FN static T of_mod(T a, T b, T mod) {
        const T ratio = a / b, less = (mod != 0) & ((b < 0) != (mod < 0)) ? T(1) : T(0);
        const T quotient = (a - mod) / b - less, floored = std::floor(quotient);
        const T nearest = quotient - floored > T(0.5) ? floored + 1 : floored;
        const T signed_zero = quotient == 0 ? std::copysign(T(0), ratio) : nearest;
        return b == 0 ? ratio : signed_zero;
    }
};
struct Remainder {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            return std::is_signed_v<T> && b == T(-1) ? T(0) : of_quotient(a, b, T(a / b));
        } else {
            return of_mod(a, b, std::fmod(a, b));
        }
    }
    template <class T>
    NORCH_FN static T of_quotient(T a, T b, T quotient) {
        const T rest = T(a - quotient * b);
        return std::is_signed_v<T> && (rest != 0) & ((rest < 0) != (b < 0)) ? T(rest + b) : rest;
    }
    template <class T>
    NORCH_FN static T of_mod(T, T b, T mod) {
        const T sum = mod + b, moved = (b < 0) != (mod < 0) ? sum : mod;
        return mod == 0 ? std::copysign(T(0), b) : moved;
    }
};
/// C's: the remainder has the dividend's sign.
struct Fmod {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return std::is_signed_v<T> && b == T(-1) ? T(0) : of_quotient(a, b, T(a / b));
    }
    template <class T>
    NORCH_FN static T of_quotient(T a, T b, T quotient) {
        return T(a - quotient * b);
    }
    template <class T>
    NORCH_FN static T of_mod(T, T, T mod) {
        return mod;
    }
};
struct IntegerPower {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if (b < 0) {  // the truncated quotient: 0, or 1 and -1 for those bases
            if (a == 1) return 1;
            return a == T(-1) ? (b % 2 == 0 ? T(1) : T(-1)) : T(0);
        }
        uint64_t result = 1, base = uint64_t(a);
        for (uint64_t n = uint64_t(b); n; n >>= 1) {
            if (n & 1) result *= base;
            base *= base;
        }
        return T(result);
    }
};

NORCH_BINARY(uint8_t, Equal, a == b)
NORCH_BINARY(uint8_t, NotEqual, a != b)
NORCH_BINARY(uint8_t, Less, a < b)
NORCH_BINARY(uint8_t, LessEqual, a <= b)
NORCH_BINARY(uint8_t, Greater, a > b)
NORCH_BINARY(uint8_t, GreaterEqual, a >= b)

struct Neg {
    template <class T>
    NORCH_FN static T apply(T x) {
        if constexpr (std::is_integral_v<T>) return T(wrapping_t<T>(0) - wrapping_t<T>(x));
        else return -x;
    }
};
struct Abs {
    template <class T>
    NORCH_FN static T apply(T x) {
        if constexpr (std::is_unsigned_v<T>) return x;
        else if constexpr (std::is_integral_v<T>) return x < 0 ? Neg::apply(x) : x;
        else return std::fabs(x);
    }
};
struct Sign {
    template <class T>
    NORCH_FN static T apply(T x) {
        if constexpr (std::is_integral_v<T>) return T((x > 0) - (x < 0));
        else return x > 0 ? T(1) : x < 0 ? T(-1) : x + T(0);  // -0 becomes 0, NaN stays
    }
};
NORCH_UNARY(Sqrt, std::sqrt(x))
NORCH_UNARY(Floor, std::floor(x))
NORCH_UNARY(Ceil, std::ceil(x))
NORCH_UNARY(Round, std::rint(x))
NORCH_UNARY(Trunc, std::trunc(x))
NORCH_UNARY(BitNot, T(~x))
NORCH_UNARY(LogicalNot, T(x ^ 1))
NORCH_UNARY(Identity, x)

/// Where a category of dtypes has no kernel.
struct None {};

/// Adds the ops of plain arithmetic. `Make` makes their kernels, each by the category of the dtype: bools (which are
/// bytes), integers, floats. The last number is what an element costs a core, in picoseconds.
template <class Make, class Registry>
void add_arithmetic_ops(Registry& registry) {
    registry["neg"] = Make::template unary<Identity, Neg, Neg>;
    registry["abs"] = Make::template unary<Identity, Abs, Abs>;
    registry["sign"] = Make::template unary<Identity, Sign, Sign>;
    registry["sqrt"] = Make::template unary<None, None, Sqrt, 400>;
    registry["floor"] = Make::template unary<Identity, Identity, Floor>;
    registry["ceil"] = Make::template unary<Identity, Identity, Ceil>;
    registry["round"] = Make::template unary<Identity, Identity, Round>;
    registry["trunc"] = Make::template unary<Identity, Identity, Trunc>;
    registry["bitwise_not"] = Make::template unary<LogicalNot, BitNot, None>;
    registry["add"] = Make::template binary<Or, Add, Add>;
    registry["sub"] = Make::template binary<None, Sub, Sub>;
    registry["mul"] = Make::template binary<And, Mul, Mul>;
    registry["div"] = Make::template binary<None, None, Div>;
    registry["maximum"] = Make::template binary<Or, Maximum, Maximum>;
    registry["minimum"] = Make::template binary<And, Minimum, Minimum>;
    registry["clamp"] = Make::template ternary<None, Clamp, Clamp>;
    registry["axpy"] = Make::template ternary<None, None, AddScaled>;
    registry["floor_divide"] = Make::template division<FloorDivide>;
    registry["remainder"] = Make::template division<Remainder>;
    registry["bitwise_and"] = Make::template binary<And, And, None>;
    registry["bitwise_or"] = Make::template binary<Or, Or, None>;
    registry["bitwise_xor"] = Make::template binary<Xor, Xor, None>;
    registry["bitwise_left_shift"] = Make::template binary<None, ShiftLeft, None>;
    registry["bitwise_right_shift"] = Make::template binary<None, ShiftRight, None>;
    registry["eq"] = Make::template comparison<Equal>;
    registry["ne"] = Make::template comparison<NotEqual>;
    registry["lt"] = Make::template comparison<Less>;
    registry["le"] = Make::template comparison<LessEqual>;
    registry["gt"] = Make::template comparison<Greater>;
    registry["ge"] = Make::template comparison<GreaterEqual>;
}

}  // namespace norch
