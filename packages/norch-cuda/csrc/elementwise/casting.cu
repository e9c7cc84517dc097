// copy between two different dtypes. One kernel a group of targets, since one for each pair would be a tenth of the module.
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

template <class To, bool TO_BOOL, class From>
__device__ inline computed<To> converted(From x) {
    if constexpr (TO_BOOL) return x != From(0);
    else return computed<To>(x);  // a float as a small integer by way of a wider one, so that it wraps around
}

template <class To, bool TO_BOOL = false>
struct Cast {
    using In = To;
    using Out = To;
    static constexpr int INPUTS = 1, VEC = 4;
    DType from;

    template <int VEC, int K>
    __device__ void load_first(computed<To> (&x)[K], int at, const char* data, bool is_broadcast) const {
        with_type<Anything>(from, [&]<class From>(Tag<From>) {
            computed<From> given[VEC];
            load_packet<From, VEC>(given, 0, data, is_broadcast);
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
    return visit_groups(to, [&]<class To>(Tag<To>) -> KernelPtr { return map(request, Cast<To>{from}); });
}

}  // namespace norch::elementwise
