// What is written for later goes past the caches.
#pragma once

#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "common/dtype.h"
#include "runtime/simd.h"

namespace norch {

/// Where whole lines of the cache are written past it: their size, else 0.
#if defined(__AVX512F__)
constexpr int64_t STREAMED_BYTES = 64;
#else
constexpr int64_t STREAMED_BYTES = 0;
#endif

/// Writes a line past the caches, which then need not read it first. `to` is aligned to it.
template <class V>
NORCH_INLINE void stream_vector([[maybe_unused]] char* to, [[maybe_unused]] V line) {
#if defined(__AVX512F__)
    static_assert(sizeof line == STREAMED_BYTES);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bit_cast<__m512i>(line));
#endif
}

/// Has other threads see what was so written before anything that this one writes later.
inline void end_streams() {
#if defined(__AVX512F__)
    _mm_sfence();
#endif
}

}  // namespace norch
