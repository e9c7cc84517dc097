#include "indexing/keys.h"

#include <algorithm>

#include "indexing/order.h"
#include "runtime/simd.h"

namespace norch::indexing {

template <class T>
uint64_t keys_of(const T* x, int64_t n, uint64_t flip, void* out) {
    using U = unsigned_t<T>;
    U* const keys = static_cast<U*>(out);
    U least = U(~U(0));
    for (int64_t i = 0; i < n; ++i) {
        keys[i] = U(key_of(x[i]) ^ U(flip));
        least = std::min(least, keys[i]);
    }
    return least;
}

#define NORCH_KEYS(T) template uint64_t keys_of(const T*, int64_t, uint64_t, void*);
NORCH_KEYS(bool)
NORCH_KEYS(uint8_t)
NORCH_KEYS(int8_t)
NORCH_KEYS(int16_t)
NORCH_KEYS(int32_t)
NORCH_KEYS(int64_t)
NORCH_KEYS(half)
NORCH_KEYS(bfloat16)
NORCH_KEYS(float)
NORCH_KEYS(double)

}  // namespace norch::indexing
