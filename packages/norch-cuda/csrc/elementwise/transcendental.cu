// exp, log, sin and their kin, pow and atan2, for the floating dtypes: CUDA's own functions, of at most 2 to 3 ulp.
#include "elementwise/elementwise.cuh"
#include "elementwise/functions.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace {

#define NORCH_LISTED(name, ...) , ops::name
using Exponential = OpList<Identity NORCH_EXPONENTIAL_OPS(NORCH_LISTED)>;
/// Those that take many registers.
using Trigonometric = OpList<Identity NORCH_PERIODIC_OPS(NORCH_LISTED) NORCH_INVERSE_OPS(NORCH_LISTED)>;

template <class List, int INPUTS, class Op>
KernelPtr make(const Request& request) {
    return visit_floating_groups(request.operands[0].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return map(request, OneOf<T, T, INPUTS, List>(List::template index<Op>()));
    });
}

}  // namespace

KernelPtr floating_pow(const Request& request) { return make<OpList<Pow, Atan2>, 2, Pow>(request); }

void add_transcendental(Registry& registry) {
#define NORCH_ADD(name, ...) registry[#name] = make<Exponential, 1, ops::name>;
    NORCH_EXPONENTIAL_OPS(NORCH_ADD)
#define NORCH_ADD_LONG(name, ...) registry[#name] = make<Trigonometric, 1, ops::name>;
    NORCH_PERIODIC_OPS(NORCH_ADD_LONG)
    NORCH_INVERSE_OPS(NORCH_ADD_LONG)
    registry["atan2"] = make<OpList<Pow, Atan2>, 2, Atan2>;
}

}  // namespace norch::elementwise
