// copy between two different dtypes.
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

template <class To, class From, bool to_bool = false>
struct Cast {
    using In = From;
    using Out = To;
    static constexpr int INPUTS = 1;

    template <int K>
    __device__ void operator()(computed<To> (&y)[K], const computed<From> (&x)[1][K]) const {
#pragma unroll
        for (int i = 0; i < K; ++i) {
            if constexpr (to_bool) {
                y[i] = x[0][i] != computed<From>(0);
            } else if constexpr (std::is_floating_point_v<computed<From>> && std::is_integral_v<To>) {
                // C leaves a float beyond the integer's range open; by way of a wider integer small ones wrap around.
                using Promoted = std::conditional_t<(sizeof(To) < 4), int32_t, To>;
                y[i] = To(Promoted(x[0][i]));
            } else {
                y[i] = computed<To>(x[0][i]);
            }
        }
    }
};

}  // namespace

KernelPtr cast(const Request& request) {
    const bool to_bool = request.operands[0].dtype == DType::boolean;
    return visit_device(request.operands[1].dtype, [&]<class From>(Tag<From>) -> KernelPtr {
        if (to_bool) return map(request, Cast<uint8_t, From, true>{});
        return visit_device(request.operands[0].dtype, [&]<class To>(Tag<To>) -> KernelPtr {
            return map(request, Cast<To, From>{});
        });
    });
}

}  // namespace norch::elementwise
