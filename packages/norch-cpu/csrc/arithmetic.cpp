// Unary, binary and comparison loops in plain arithmetic.
#include <cmath>
#include <limits>
#include <type_traits>

#include "loop.h"
#include "transcendental.h"

namespace norch {
namespace {

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
    static T apply(T a, T b) {
        return T(wrapping_t<T>(a) + wrapping_t<T>(b));
    }
};
struct Sub {
    template <class T>
    static T apply(T a, T b) {
        return T(wrapping_t<T>(a) - wrapping_t<T>(b));
    }
};
struct Mul {
    template <class T>
    static T apply(T a, T b) {
        if constexpr (sizeof(T) == 2) return T(uint32_t(a) * uint32_t(b));  // uint16_t would become a signed int
        else return T(wrapping_t<T>(a) * wrapping_t<T>(b));
    }
};
struct Div {
    template <class T>
    static T apply(T a, T b) {
        return a / b;
    }
};
/// A NaN wins: in a by the test, in b because every comparison with it is false.
struct Maximum {
    template <class T>
    static T apply(T a, T b) {
        return a > b || a != a ? a : b;
    }
};
struct Minimum {
    template <class T>
    static T apply(T a, T b) {
        return a < b || a != a ? a : b;
    }
};
struct And {
    template <class T>
    static T apply(T a, T b) {
        return T(a & b);
    }
};
struct Or {
    template <class T>
    static T apply(T a, T b) {
        return T(a | b);
    }
};
struct Xor {
    template <class T>
    static T apply(T a, T b) {
        return T(a ^ b);
    }
};
struct ShiftLeft {
    template <class T>
    static T apply(T a, T b) {
        constexpr T width = T(8 * sizeof(T));
        return b < 0 || b >= width ? T(0) : T(wrapping_t<T>(a) << b);
    }
};
struct ShiftRight {
    template <class T>
    static T apply(T a, T b) {
        constexpr T width = T(8 * sizeof(T));
        return b < 0 || b >= width ? T(a < 0 ? -1 : 0) : T(a >> b);
    }
};

/// Python's rule: the remainder has the divisor's sign. Floats as in CPython's float_divmod.
struct FloorDivide {
    template <class T>
    static T apply(T a, T b) {
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
    static T apply(T a, T b) {
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
    static T apply(T a, T b) {
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
    static uint8_t apply(T a, T b) {
        return a == b;
    }
};
struct NotEqual {
    template <class T>
    static uint8_t apply(T a, T b) {
        return a != b;
    }
};
struct Less {
    template <class T>
    static uint8_t apply(T a, T b) {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    static uint8_t apply(T a, T b) {
        return a <= b;
    }
};

struct Neg {
    template <class T>
    static T apply(T x) {
        if constexpr (std::is_integral_v<T>) return T(wrapping_t<T>(0) - wrapping_t<T>(x));
        else return -x;
    }
};
struct Abs {
    template <class T>
    static T apply(T x) {
        if constexpr (std::is_unsigned_v<T>) return x;
        else if constexpr (std::is_integral_v<T>) return x < 0 ? Neg::apply(x) : x;
        else return std::fabs(x);
    }
};
struct Sign {
    template <class T>
    static T apply(T x) {
        if constexpr (std::is_integral_v<T>) return T((x > 0) - (x < 0));
        else return x > 0 ? T(1) : x < 0 ? T(-1) : x;  // zeros and NaN are themselves
    }
};
struct Sqrt {
    template <class T>
    static T apply(T x) {
        return std::sqrt(x);
    }
};
struct Floor {
    template <class T>
    static T apply(T x) {
        return std::floor(x);
    }
};
struct Ceil {
    template <class T>
    static T apply(T x) {
        return std::ceil(x);
    }
};
struct Round {
    template <class T>
    static T apply(T x) {
        return std::rint(x);
    }
};
struct Trunc {
    template <class T>
    static T apply(T x) {
        return std::trunc(x);
    }
};
struct BitNot {
    template <class T>
    static T apply(T x) {
        return T(~x);
    }
};
struct LogicalNot {
    template <class T>
    static T apply(T x) {
        return T(x ^ 1);
    }
};
struct Identity {
    template <class T>
    static T apply(T x) {
        return x;
    }
};

/// Which loop an op has for a dtype: f(Tag<T>) for the types that loops are compiled for.
template <class F>
Loop floating_loop(DType dtype, const F& f) {
    return dtype == DType::f64 ? f(Tag<double>{}) : f(Tag<float>{});
}
template <class F>
Loop integer_loop(DType dtype, const F& f) {
    switch (dtype) {
        case DType::i64: return f(Tag<int64_t>{});
        case DType::i32: return f(Tag<int32_t>{});
        case DType::i16: return f(Tag<int16_t>{});
        case DType::i8: return f(Tag<int8_t>{});
        case DType::u8: return f(Tag<uint8_t>{});
        default: return nullptr;
    }
}

template <class F>
struct Unary {
    template <class T>
    Loop operator()(Tag<T>) const {
        return unary_loop<T, F>;
    }
};
template <class F>
struct Binary {
    template <class T>
    Loop operator()(Tag<T>) const {
        return binary_loop<T, T, F>;
    }
};
template <class F>
struct Comparison {
    template <class T>
    Loop operator()(Tag<T>) const {
        return binary_loop<uint8_t, T, F>;
    }
};
/// Division of integers looks for zeros first: nothing is written before the error.
template <class F>
struct Division {
    template <class T>
    Loop operator()(Tag<T>) const {
        return [](char* const* p, unsigned single, int64_t n) {
            const T* b = reinterpret_cast<const T*>(p[2]);
            bool any_zero = false;
            for (int64_t i = 0; i < (single & 4 ? 1 : n); ++i) any_zero |= b[i] == 0;
            if (any_zero) throw ZeroDivision();
            binary_loop<T, T, F>(p, single, n);
        };
    }
};
struct None {
    template <class T>
    Loop operator()(Tag<T>) const {
        return nullptr;
    }
};

/// A kernel by category: the loop of bools (which are bytes), of integers, of floats; None where there is none.
template <class Bool, class Integer, class Floating>
KernelPtr by_category(const Request& request, double ns = 0.15) {
    DType dtype = request.operands.back().dtype;
    Loop loop = is_floating(dtype)          ? floating_loop(dtype, Floating{})
                : dtype == DType::boolean ? Bool{}(Tag<uint8_t>{})
                                          : integer_loop(dtype, Integer{});
    return loop ? elementwise(request, loop, ns * double(size_of(dtype)) / 4) : nullptr;
}

template <class F>
KernelPtr number(const Request& request) {
    return by_category<None, Binary<F>, Binary<F>>(request);
}
template <class Bool, class F>
KernelPtr number_or_bool(const Request& request) {
    return by_category<Binary<Bool>, Binary<F>, Binary<F>>(request);
}
template <class F>
KernelPtr bits(const Request& request) {
    return by_category<Binary<F>, Binary<F>, None>(request);
}
template <class F>
KernelPtr compare(const Request& request) {
    return by_category<Comparison<F>, Comparison<F>, Comparison<F>>(request);
}
template <class F>
KernelPtr compare_swapped(const Request& request) {
    Request swapped = request;
    std::swap(swapped.operands[1], swapped.operands[2]);
    KernelPtr inner = compare<F>(swapped);
    double work = inner->work;
    struct Swapped final : Kernel {
        void run(char* const* data, const Scalar* scalars) const override {
            char* const exchanged[3] = {data[0], data[2], data[1]};
            const Scalar exchanged_scalars[3] = {scalars[0], scalars[2], scalars[1]};
            inner->run(exchanged, exchanged_scalars);
        }
        KernelPtr inner;
    };
    auto out = std::make_unique<Swapped>();
    out->inner = std::move(inner);
    out->work = work;
    return out;
}
template <class F>
KernelPtr rounding(const Request& request) {
    return by_category<Unary<Identity>, Unary<Identity>, Unary<F>>(request);
}
KernelPtr power(const Request& request) {
    if (is_floating(request.operands[0].dtype)) return floating_pow(request);
    return by_category<None, Binary<IntegerPower>, None>(request, 5);
}

}  // namespace

void add_arithmetic(Registry& registry) {
    registry["add"] = number_or_bool<Or, Add>;
    registry["sub"] = number<Sub>;
    registry["mul"] = number_or_bool<And, Mul>;
    registry["div"] = [](const Request& r) { return by_category<None, None, Binary<Div>>(r); };
    registry["floor_divide"] = [](const Request& r) {
        return by_category<None, Division<FloorDivide>, Binary<FloorDivide>>(r, 5);
    };
    registry["remainder"] = [](const Request& r) {
        return by_category<None, Division<Remainder>, Binary<Remainder>>(r, 5);
    };
    registry["pow"] = power;
    registry["maximum"] = number_or_bool<Or, Maximum>;
    registry["minimum"] = number_or_bool<And, Minimum>;
    registry["bitwise_and"] = bits<And>;
    registry["bitwise_or"] = bits<Or>;
    registry["bitwise_xor"] = bits<Xor>;
    registry["bitwise_left_shift"] = [](const Request& r) { return by_category<None, Binary<ShiftLeft>, None>(r); };
    registry["bitwise_right_shift"] = [](const Request& r) { return by_category<None, Binary<ShiftRight>, None>(r); };
    registry["eq"] = compare<Equal>;
    registry["ne"] = compare<NotEqual>;
    registry["lt"] = compare<Less>;
    registry["le"] = compare<LessEqual>;
    registry["gt"] = compare_swapped<Less>;
    registry["ge"] = compare_swapped<LessEqual>;
    registry["neg"] = [](const Request& r) { return by_category<Unary<Identity>, Unary<Neg>, Unary<Neg>>(r); };
    registry["abs"] = [](const Request& r) { return by_category<Unary<Identity>, Unary<Abs>, Unary<Abs>>(r); };
    registry["sign"] = [](const Request& r) { return by_category<Unary<Identity>, Unary<Sign>, Unary<Sign>>(r); };
    registry["sqrt"] = [](const Request& r) { return by_category<None, None, Unary<Sqrt>>(r, 0.4); };
    registry["floor"] = rounding<Floor>;
    registry["ceil"] = rounding<Ceil>;
    registry["round"] = rounding<Round>;
    registry["trunc"] = rounding<Trunc>;
    registry["bitwise_not"] = [](const Request& r) {
        return by_category<Unary<LogicalNot>, Unary<BitNot>, None>(r);
    };
}

}  // namespace norch
