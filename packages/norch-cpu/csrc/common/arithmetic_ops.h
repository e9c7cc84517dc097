// What the ops of plain arithmetic do to one element, on any processor: T is what a dtype is computed in.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define NORCH_FN __host__ __device__
#else
#define NORCH_FN
#endif

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

struct Add {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return T(wrapping_t<T>(a) + wrapping_t<T>(b));
    }
};
struct Sub {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return T(wrapping_t<T>(a) - wrapping_t<T>(b));
    }
};
struct Mul {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (sizeof(T) == 2) return T(uint32_t(a) * uint32_t(b));  // uint16_t would become a signed int
        else return T(wrapping_t<T>(a) * wrapping_t<T>(b));
    }
};
struct Div {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return a / b;
    }
};
/// A NaN wins: in a by the test, in b because every comparison with it is false.
struct Maximum {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return a > b || a != a ? a : b;
    }
};
struct Minimum {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return a < b || a != a ? a : b;
    }
};
struct And {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return T(a & b);
    }
};
struct Or {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return T(a | b);
    }
};
struct Xor {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        return T(a ^ b);
    }
};
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

/// Python's rule: the remainder has the divisor's sign. Floats as in CPython's float_divmod.
struct FloorDivide {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            if (b == T(-1)) return std::is_signed_v<T> ? T(wrapping_t<T>(0) - wrapping_t<T>(a)) : T(a / b);
            T q = T(a / b);
            return std::is_signed_v<T> && a % b != 0 && (a < 0) != (b < 0) ? T(q - 1) : q;
        } else {
            if (b == 0) return a / b;
            T mod = std::fmod(a, b);
            T quotient = (a - mod) / b;
            if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
            if (quotient == 0) return std::copysign(T(0), a / b);
            T floored = std::floor(quotient);
            return quotient - floored > T(0.5) ? floored + 1 : floored;
        }
    }
};
struct Remainder {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) {
            if (b == T(-1)) return std::is_signed_v<T> ? T(0) : T(a % b);
            T mod = T(a % b);
            return std::is_signed_v<T> && mod != 0 && (mod < 0) != (b < 0) ? T(mod + b) : mod;
        } else {
            T mod = std::fmod(a, b);
            if (mod == 0) return std::copysign(T(0), b);
            return (b < 0) != (mod < 0) ? mod + b : mod;
        }
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

struct Equal {
    template <class T>
    NORCH_FN static uint8_t apply(T a, T b) {
        return a == b;
    }
};
struct NotEqual {
    template <class T>
    NORCH_FN static uint8_t apply(T a, T b) {
        return a != b;
    }
};
struct Less {
    template <class T>
    NORCH_FN static uint8_t apply(T a, T b) {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    NORCH_FN static uint8_t apply(T a, T b) {
        return a <= b;
    }
};

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
        else return x > 0 ? T(1) : x < 0 ? T(-1) : x;  // zeros and NaN are themselves
    }
};
struct Sqrt {
    template <class T>
    NORCH_FN static T apply(T x) {
        return std::sqrt(x);
    }
};
struct Floor {
    template <class T>
    NORCH_FN static T apply(T x) {
        return std::floor(x);
    }
};
struct Ceil {
    template <class T>
    NORCH_FN static T apply(T x) {
        return std::ceil(x);
    }
};
struct Round {
    template <class T>
    NORCH_FN static T apply(T x) {
        return std::rint(x);
    }
};
struct Trunc {
    template <class T>
    NORCH_FN static T apply(T x) {
        return std::trunc(x);
    }
};
struct BitNot {
    template <class T>
    NORCH_FN static T apply(T x) {
        return T(~x);
    }
};
struct LogicalNot {
    template <class T>
    NORCH_FN static T apply(T x) {
        return T(x ^ 1);
    }
};
struct Identity {
    template <class T>
    NORCH_FN static T apply(T x) {
        return x;
    }
};

}  // namespace norch
