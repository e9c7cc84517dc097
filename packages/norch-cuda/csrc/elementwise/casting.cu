// copy between two different dtypes. One kernel a target: it asks for the source's dtype once for some elements, which
// costs nothing beside the memory, where one for each pair would be a tenth of the module.
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

template <class F>
__device__ inline void with_type(DType dtype, const F& f) {
    switch (dtype) {
        case DType::f64: return f(Tag<double>{});
        case DType::f32: return f(Tag<float>{});
        case DType::f16: return f(Tag<__half>{});
        case DType::bf16: return f(Tag<__nv_bfloat16>{});
        case DType::i64: return f(Tag<int64_t>{});
        case DType::i32: return f(Tag<int32_t>{});
        case DType::i16: return f(Tag<int16_t>{});
        case DType::i8: return f(Tag<int8_t>{});
        case DType::u8:
        case DType::boolean: return f(Tag<uint8_t>{});
    }
}

template <class To, bool TO_BOOL, class From>
__device__ inline computed<To> converted(From x) {
    if constexpr (TO_BOOL) {
        return x != From(0);
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        // C leaves a float beyond the integer's range open; by way of a wider integer small ones wrap around.
        using Promoted = std::conditional_t<(sizeof(To) < 4), int32_t, To>;
        return To(Promoted(x));
    } else {
        return computed<To>(x);
    }
}

template <class To, bool TO_BOOL = false>
struct Cast {
    using In = To;
    using Out = To;
    static constexpr int INPUTS = 1, VEC = 4;
    DType from;

    template <int VEC, int K>
    __device__ void load_first(computed<To> (&x)[K], int at, const char* data, bool is_broadcast, uint32_t left) const {
        with_type(from, [&]<class From>(Tag<From>) {
            computed<From> given[VEC];
            load_packet<From, VEC>(given, 0, data, is_broadcast, left);
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[at + j] = converted<To, TO_BOOL>(given[j]);
        });
    }

    template <int K>
    __device__ void operator()(computed<To> (&y)[K], const computed<To> (&x)[1][K]) const {
#pragma unroll
        for (int i = 0; i < K; ++i) y[i] = x[0][i];
    }
};

}  // namespace

KernelPtr cast(const Request& request) {
    const DType to = request.operands[0].dtype, from = request.operands[1].dtype;
    if (to == DType::boolean) return map(request, Cast<uint8_t, true>{from});
    return visit_device(to, [&]<class To>(Tag<To>) -> KernelPtr { return map(request, Cast<To>{from}); });
}

}  // namespace norch::elementwise
