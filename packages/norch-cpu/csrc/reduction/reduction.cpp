// sum, sum_of_squares, prod, any, all.
#include "reduction/fold.h"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

template <class Op>
KernelPtr fold_bool(const Request& request) {
    if (request.operands[1].dtype != DType::boolean) throw std::invalid_argument(request.op + " is of bool only");
    return fold_kernel(request, Fold<uint8_t, Op>::loops, ElementsOf<uint8_t>::all);
}

KernelPtr sum_of_squares(const Request& request) {
    switch (request.operands[1].dtype) {
        case DType::f32: return fold_kernel(request, Fold<float, Sum>::loops, ElementsOf<float>::squares);
        case DType::f64: return fold_kernel(request, Fold<double, Sum>::loops, ElementsOf<double>::squares);
        default: return nullptr;
    }
}

}  // namespace

void add_reductions(Registry& registry) {
    registry["sum"] = fold<Sum>;
    registry["sum_of_squares"] = sum_of_squares;
    registry["prod"] = fold<Prod>;
    registry["amax"] = amax;
    registry["amin"] = amin;
    registry["any"] = fold_bool<Or>;
    registry["all"] = fold_bool<And>;
    registry["argmax"] = argmax;
    registry["argmin"] = argmin;
}

}  // namespace norch::reduction
