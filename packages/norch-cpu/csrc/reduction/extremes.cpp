// amax and amin, apart from the other reductions so that both are compiled at once.
#include "reduction/fold.h"

namespace norch::reduction {
namespace {

/// Short integers, which are rare, with all bits turned over: the largest of these is the smallest of those.
template <class T>
struct Complement {
    static void load_row(void* to, const char* x, int64_t stride, int64_t n) {
        T* out = static_cast<T*>(to);
        if (stride == sizeof(T)) {
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) out[j] = T(~reinterpret_cast<const T*>(x)[j]);
        } else {
            for (int64_t j = 0; j < n; ++j) out[j] = T(~*reinterpret_cast<const T*>(x + j * stride));
        }
    }
    static void store_row(char* out, int64_t stride, const void* from, int64_t n) {
        const T* x = static_cast<const T*>(from);
        for (int64_t j = 0; j < n; ++j) *reinterpret_cast<T*>(out + j * stride) = T(~x[j]);
    }
    static constexpr Elements all = {sizeof(T), false, load_row, store_row};
};

}  // namespace

[[gnu::cold]] KernelPtr amax(const Request& request) { return fold<Largest>(request); }

[[gnu::cold]] KernelPtr amin(const Request& request) {
    return visit(request.operands[1].dtype, [&]<class T>(Tag<T>) {
        using S = std::conditional_t<std::is_same_v<T, bool>, uint8_t, seen_t<Smallest, T>>;
        if constexpr (std::is_integral_v<S> && sizeof(S) < 4) return fold_kernel(request, Fold<S, Largest>::loops, Complement<S>::all);
        else return fold_kernel(request, Fold<S, Smallest>::loops, ElementsOf<T, S>::all);
    });
}

}  // namespace norch::reduction
