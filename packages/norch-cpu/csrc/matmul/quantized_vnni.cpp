#include "matmul/quantized.h"

#if defined(__AVX512BW__)
#include <immintrin.h>

#include <cstring>

#include "common/dtype.h"
#include "runtime/simd.h"

// From here on functions may use what `has_vnni` has found.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512vnni")
#endif

#define NORCH_VNNI 1
#define NORCH_DOTS vnni
#include "matmul/quantized_dots.h"

namespace norch::matmul {

DotRows vnni_dot_rows_of(Format format) { return vnni::chosen(format); }

}  // namespace norch::matmul

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
