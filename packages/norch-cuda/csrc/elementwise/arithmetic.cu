// Unary, binary and comparison kernels in plain arithmetic.
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

/// What an integer divided by 0 is, is left open here; it must not trap.
template <class Op>
struct OrZero {
    template <class T>
    NORCH_FN static T apply(T a, T b) {
        if constexpr (std::is_integral_v<T>) return b == 0 ? T(0) : Op::apply(a, b);
        else return Op::apply(a, b);
    }
};

NORCH_BINARY(T, FloatFmod, ::fmod(a, b))

/// The ops for what a group is computed in.
template <class C, class ForIntegers, class ForFloats>
using by_type = std::conditional_t<std::is_integral_v<C>, ForIntegers, ForFloats>;

template <class C>
using UnaryOps = by_type<C, OpList<Neg, Abs, Sign, BitNot, LogicalNot, Identity>,
                         OpList<Neg, Abs, Sign, Sqrt, Floor, Ceil, Round, Trunc>>;
template <class C>
using BinaryOps = by_type<C, OpList<Add, Sub, Mul, Maximum, Minimum, And, Or, Xor>,
                          OpList<Add, Sub, Mul, Maximum, Minimum, Div>>;
template <class C>
using TernaryOps = by_type<C, OpList<Clamp>, OpList<Clamp, AddScaled>>;
/// Division with a remainder, powers and shifts: apart from the others, since they take many registers.
template <class C>
using LongOps = by_type<C, OpList<OrZero<FloorDivide>, OrZero<Remainder>, OrZero<Fmod>, IntegerPower, ShiftLeft, ShiftRight>,
                        OpList<OrZero<FloorDivide>, OrZero<Remainder>, FloatFmod>>;
template <class>
using ComparisonOps = OpList<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual>;

template <template <class> class Ops, int INPUTS, class Bool, class Integer, class Floating, bool IS_COMPARISON = false>
KernelPtr by_category(const Request& request) {
    const DType dtype = request.operands.back().dtype;
    return visit_groups(dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        using List = Ops<computed<T>>;
        const int op = is_floating(dtype)            ? List::template index<Floating>()
                       : dtype == DType::boolean ? List::template index<Bool>()
                                                 : List::template index<Integer>();
        if (op < 0) return nullptr;
        return map(request, OneOf<T, std::conditional_t<IS_COMPARISON, uint8_t, T>, INPUTS, List>(op));
    });
}

struct Make {
    template <class Bool, class Integer, class Floating, int = 0>
    static KernelPtr unary(const Request& request) {
        return by_category<UnaryOps, 1, Bool, Integer, Floating>(request);
    }
    template <class Bool, class Integer, class Floating, int = 0>
    static KernelPtr binary(const Request& request) {
        if constexpr (LongOps<int>::index<Integer>() >= 0) return by_category<LongOps, 2, Bool, Integer, Floating>(request);
        else return by_category<BinaryOps, 2, Bool, Integer, Floating>(request);
    }
    template <class Bool, class Integer, class Floating>
    static KernelPtr ternary(const Request& request) {
        return by_category<TernaryOps, 3, Bool, Integer, Floating>(request);
    }
    template <class F>
    static KernelPtr division(const Request& request) {
        return binary<None, OrZero<F>, OrZero<F>>(request);
    }
    template <class F>
    static KernelPtr comparison(const Request& request) {
        return by_category<ComparisonOps, 2, F, F, F, true>(request);
    }
};

}  // namespace

void add_arithmetic(Registry& registry) {
    add_arithmetic_ops<Make>(registry);
    registry["fmod"] = Make::binary<None, OrZero<Fmod>, FloatFmod>;
    registry["pow"] = [](const Request& request) {
        if (is_floating(request.operands[0].dtype)) return floating_pow(request);
        return Make::binary<None, IntegerPower, None>(request);
    };
}

}  // namespace norch::elementwise
