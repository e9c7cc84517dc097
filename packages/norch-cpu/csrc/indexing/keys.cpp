#include "indexing/keys.h"

#include <algorithm>

#include "indexing/order.h"
#include "runtime/simd.h"

namespace norch::indexing {
namespace {

template <class T>
void keys_of(const char* data, int64_t n, uint64_t flip, uint64_t* keys) {
    const T* x = reinterpret_cast<const T*>(data);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) keys[i] = unsigned_t<T>(key_of(x[i]) ^ unsigned_t<T>(flip));
}

template <class T>
uint64_t least_of(const char* data, int64_t n, uint64_t flip) {
    using U = unsigned_t<T>;
    const T* x = reinterpret_cast<const T*>(data);
    U least = U(~U(0));
    for (int64_t i = 0; i < n; ++i) least = std::min(least, U(key_of(x[i]) ^ U(flip)));
    return least;
}

}  // namespace

KeyLoops key_loops(DType dtype) {
    return visit(dtype, []<class T>(Tag<T>) { return KeyLoops{keys_of<T>, least_of<T>}; });
}

}  // namespace norch::indexing
