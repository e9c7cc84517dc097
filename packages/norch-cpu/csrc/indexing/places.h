// What gather and scatter share: places that an index says, along a dim of a tensor.
#pragma once

#include <cstdint>

#include "indexing/bounds.h"
#include "runtime/simd.h"

namespace norch::indexing {

/// Byte strides of the three operands of a loop.
struct Strides {
    int64_t tensor, index, other;
};

template <class T>
inline T& at(char* data, int64_t offset) {
    return *reinterpret_cast<T*>(data + offset);
}
template <class T>
inline const T& at(const char* data, int64_t offset) {
    return *reinterpret_cast<const T*>(data + offset);
}

/// Calls f(i, index[i] from the start), in order. Of four at a time hardly ever one counts from the end.
template <class F>
NORCH_INLINE void each_place(const int64_t* index, int64_t n, int64_t size, const F& f) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        int64_t a = index[i], b = index[i + 1], c = index[i + 2], d = index[i + 3];
        if (__builtin_expect((a | b | c | d) < 0, 0))
            a = wrapped(a, size), b = wrapped(b, size), c = wrapped(c, size), d = wrapped(d, size);
        f(i, a), f(i + 1, b), f(i + 2, c), f(i + 3, d);
    }
    for (; i < n; ++i) f(i, wrapped(index[i], size));
}

}  // namespace norch::indexing
