// sum, sum_of_squares, count_nonzero, prod, any, all.
#include "reduction/fold.h"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

template <class Op>
[[gnu::cold]] KernelPtr fold_bool(const Request& request) {
    if (request.operands[1].dtype != DType::boolean) throw std::invalid_argument(request.op + " is of bool only");
    return fold_kernel(request, Fold<uint8_t, Op>::loops, ElementsOf<uint8_t>::all);
}

/// Elements that count 1 where they are not 0, summed up in int32.
template <class T>
struct Nonzero {
    static void load_row(void* to, const char* x, int64_t stride, int64_t n) {
        int32_t* out = static_cast<int32_t*>(to);
        const auto count = [](T x) NORCH_INLINE_LAMBDA { return int32_t(load(x) != 0); };
        if (stride == sizeof(T)) {
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) out[j] = count(reinterpret_cast<const T*>(x)[j]);
        } else {
            for (int64_t j = 0; j < n; ++j) out[j] = count(*reinterpret_cast<const T*>(x + j * stride));
        }
    }
    static constexpr Elements all = {sizeof(T), false, load_row, ElementsOf<int64_t, int32_t>::store_row};
};

[[gnu::cold]] KernelPtr count_nonzero(const Request& request) {
    if (request.operands[1].numel() > INT32_MAX) return nullptr;
    const Elements elements = visit(request.operands[1].dtype, []<class T>(Tag<T>) {
        return Nonzero<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>::all;
    });
    return fold_kernel(request, Fold<int32_t, Sum>::loops, elements);
}

[[gnu::cold]] KernelPtr sum_of_squares(const Request& request) {
    switch (request.operands[1].dtype) {
        case DType::f32: return fold_kernel(request, Fold<float, Sum>::loops, ElementsOf<float>::squares);
        case DType::f64: return fold_kernel(request, Fold<double, Sum>::loops, ElementsOf<double>::squares);
        default: return nullptr;
    }
}

}  // namespace

void add_reductions(Registry& registry) {
    registry["sum"] = fold<Sum>;
    registry["count_nonzero"] = count_nonzero;
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
