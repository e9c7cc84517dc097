// Unary, binary and comparison loops in plain arithmetic.
#include <limits>

#include "common/arithmetic_ops.h"
#include "elementwise/loop.h"
#include "elementwise/transcendental.h"

namespace norch::elementwise {
namespace {

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
    return loop ? elementwise_kernel(request, loop, ns * double(size_of(dtype)) / 4) : nullptr;
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

}  // namespace norch::elementwise
