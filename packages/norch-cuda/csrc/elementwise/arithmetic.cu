// Unary, binary and comparison kernels in plain arithmetic.
#include "elementwise/elementwise.cuh"
#include "elementwise/transcendental.h"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

enum class Op {
    neg, abs, sign, sqrt, floor, ceil, round, trunc, bitwise_not, logical_not, identity,
    add, sub, mul, div, maximum, minimum, floor_divide, remainder, pow, bit_and, bit_or, bit_xor, left, right,
    eq, ne, lt, le, gt, ge,
};

template <class T>
struct Unary {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 1;
    Op op;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[1][K]) const {
        switch (op) {
            case Op::neg: NORCH_EACH(Neg::apply(x[0][i]))
            case Op::abs: NORCH_EACH(Abs::apply(x[0][i]))
            case Op::sign: NORCH_EACH(Sign::apply(x[0][i]))
            case Op::logical_not: NORCH_EACH(computed<T>(x[0][i] == computed<T>(0)))
            default: {
                if constexpr (std::is_integral_v<T>) {
                    switch (op) {
                        case Op::bitwise_not: NORCH_EACH(BitNot::apply(x[0][i]))
                        default: NORCH_EACH(x[0][i])
                    }
                } else {
                    switch (op) {
                        case Op::sqrt: NORCH_EACH(Sqrt::apply(x[0][i]))
                        case Op::floor: NORCH_EACH(Floor::apply(x[0][i]))
                        case Op::ceil: NORCH_EACH(Ceil::apply(x[0][i]))
                        case Op::round: NORCH_EACH(Round::apply(x[0][i]))
                        case Op::trunc: NORCH_EACH(Trunc::apply(x[0][i]))
                        default: NORCH_EACH(x[0][i])
                    }
                }
            }
        }
    }
};

template <class T>
struct Binary {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 2;
    Op op;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[2][K]) const {
        switch (op) {
            case Op::add: NORCH_EACH(Add::apply(x[0][i], x[1][i]))
            case Op::sub: NORCH_EACH(Sub::apply(x[0][i], x[1][i]))
            case Op::mul: NORCH_EACH(Mul::apply(x[0][i], x[1][i]))
            case Op::maximum: NORCH_EACH(Maximum::apply(x[0][i], x[1][i]))
            case Op::minimum: NORCH_EACH(Minimum::apply(x[0][i], x[1][i]))
            default: {
                if constexpr (std::is_integral_v<T>) {
                    switch (op) {
                        case Op::bit_and: NORCH_EACH(And::apply(x[0][i], x[1][i]))
                        case Op::bit_or: NORCH_EACH(Or::apply(x[0][i], x[1][i]))
                        default: NORCH_EACH(Xor::apply(x[0][i], x[1][i]))
                    }
                } else {
                    NORCH_EACH(Div::apply(x[0][i], x[1][i]))
                }
            }
        }
    }
};

/// Division with a remainder, powers and shifts: apart from the others, since they take many registers.
template <class T>
struct LongBinary {
    using In = T;
    using Out = T;
    static constexpr int INPUTS = 2;
    Op op;

    template <int K>
    __device__ void operator()(computed<T> (&y)[K], const computed<T> (&x)[2][K]) const {
        if constexpr (std::is_integral_v<T>) {
            switch (op) {
                // What an integer divided by 0 is, is left open here; it must not trap.
                case Op::floor_divide: NORCH_EACH(x[1][i] == 0 ? T(0) : FloorDivide::apply(x[0][i], x[1][i]))
                case Op::remainder: NORCH_EACH(x[1][i] == 0 ? T(0) : Remainder::apply(x[0][i], x[1][i]))
                case Op::pow: NORCH_EACH(IntegerPower::apply(x[0][i], x[1][i]))
                case Op::left: NORCH_EACH(ShiftLeft::apply(x[0][i], x[1][i]))
                default: NORCH_EACH(ShiftRight::apply(x[0][i], x[1][i]))
            }
        } else {
            switch (op) {
                case Op::floor_divide: NORCH_EACH(FloorDivide::apply(x[0][i], x[1][i]))
                default: NORCH_EACH(Remainder::apply(x[0][i], x[1][i]))
            }
        }
    }
};

template <class T>
struct Comparison {
    using In = T;
    using Out = uint8_t;
    static constexpr int INPUTS = 2;
    Op op;

    template <int K>
    __device__ void operator()(uint8_t (&y)[K], const computed<T> (&x)[2][K]) const {
        switch (op) {
            case Op::eq: NORCH_EACH(x[0][i] == x[1][i])
            case Op::ne: NORCH_EACH(x[0][i] != x[1][i])
            case Op::lt: NORCH_EACH(x[0][i] < x[1][i])
            case Op::le: NORCH_EACH(x[0][i] <= x[1][i])
            case Op::gt: NORCH_EACH(x[0][i] > x[1][i])
            default: NORCH_EACH(x[0][i] >= x[1][i])
        }
    }
};

template <template <class> class Family>
KernelPtr make(const Request& request, Op op) {
    return visit_device(request.operands.back().dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return map(request, Family<T>{op});
    });
}

template <Op op>
KernelPtr unary(const Request& request) {
    return make<Unary>(request, op);
}
template <Op op>
KernelPtr binary(const Request& request) {
    return make<Binary>(request, op);
}
template <Op op>
KernelPtr long_binary(const Request& request) {
    return make<LongBinary>(request, op);
}
template <Op op>
KernelPtr comparison(const Request& request) {
    return make<Comparison>(request, op);
}
/// Integers are whole already.
template <Op op>
KernelPtr rounding(const Request& request) {
    return make<Unary>(request, is_floating(request.operands[0].dtype) ? op : Op::identity);
}
/// On bools: another op.
template <Op op, Op on_bool>
KernelPtr binary_or_bool(const Request& request) {
    return make<Binary>(request, request.operands[0].dtype == DType::boolean ? on_bool : op);
}
KernelPtr bitwise_not(const Request& request) {
    return make<Unary>(request, request.operands[0].dtype == DType::boolean ? Op::logical_not : Op::bitwise_not);
}
KernelPtr pow(const Request& request) {
    return is_floating(request.operands[0].dtype) ? floating_pow(request) : make<LongBinary>(request, Op::pow);
}

}  // namespace

void add_arithmetic(Registry& registry) {
    registry["neg"] = unary<Op::neg>;
    registry["abs"] = unary<Op::abs>;
    registry["sign"] = unary<Op::sign>;
    registry["sqrt"] = unary<Op::sqrt>;
    registry["floor"] = rounding<Op::floor>;
    registry["ceil"] = rounding<Op::ceil>;
    registry["round"] = rounding<Op::round>;
    registry["trunc"] = rounding<Op::trunc>;
    registry["bitwise_not"] = bitwise_not;
    registry["add"] = binary_or_bool<Op::add, Op::bit_or>;
    registry["sub"] = binary<Op::sub>;
    registry["mul"] = binary_or_bool<Op::mul, Op::bit_and>;
    registry["div"] = binary<Op::div>;
    registry["maximum"] = binary<Op::maximum>;
    registry["minimum"] = binary<Op::minimum>;
    registry["floor_divide"] = long_binary<Op::floor_divide>;
    registry["remainder"] = long_binary<Op::remainder>;
    registry["pow"] = pow;
    registry["bitwise_and"] = binary<Op::bit_and>;
    registry["bitwise_or"] = binary<Op::bit_or>;
    registry["bitwise_xor"] = binary<Op::bit_xor>;
    registry["bitwise_left_shift"] = long_binary<Op::left>;
    registry["bitwise_right_shift"] = long_binary<Op::right>;
    registry["eq"] = comparison<Op::eq>;
    registry["ne"] = comparison<Op::ne>;
    registry["lt"] = comparison<Op::lt>;
    registry["le"] = comparison<Op::le>;
    registry["gt"] = comparison<Op::gt>;
    registry["ge"] = comparison<Op::ge>;
}

}  // namespace norch::elementwise
