// Products whose columns fill no vector: sums of a row or a few stay in registers, and many products follow each other.
#pragma once

#include <cstdint>

#include "matmul/gemm.h"
#include "runtime/simd.h"

namespace norch::matmul {

constexpr int64_t SMALL_COLUMNS = 4, SMALL_STEPS = 4, SMALL_ELEMENTS = 64;

/// `count` products, each factor and result so many elements after the one before.
struct Repeated {
    int64_t count, a, b, c;
};

/// R rows by N columns of c[i][j] = start[j] + the sum over p of a[i][p] * b[p][j]; start may be null.
template <class T, int R, int N>
inline void multiply_few(int64_t k, const T* a, MatrixStrides sa, const T* b, MatrixStrides sb, const T* start, T* c,
                         MatrixStrides sc) {
    T sums[R][N] = {};
    for (int64_t p = 0; p < k; ++p, a += sa.column, b += sb.row) {
        NORCH_UNROLL
        for (int r = 0; r < R; ++r) {
            NORCH_UNROLL
            for (int j = 0; j < N; ++j) sums[r][j] += a[r * sa.row] * b[j * sb.column];
        }
    }
    NORCH_UNROLL
    for (int r = 0; r < R; ++r) {
        NORCH_UNROLL
        for (int j = 0; j < N; ++j) c[r * sc.row + j * sc.column] = (start ? start[j] : T(0)) + sums[r][j];
    }
}

/// Products of m rows and N columns.
template <class T, int N>
void multiply_small(Repeated times, int64_t m, int64_t k, const T* a, MatrixStrides sa, const T* b, MatrixStrides sb,
                    const T* start, T* c, MatrixStrides sc) {
    constexpr int R = SMALL_COLUMNS / N;
    for (int64_t t = 0; t < times.count; ++t, a += times.a, b += times.b, c += times.c) {
        int64_t i = 0;
        for (; i + R <= m; i += R) multiply_few<T, R, N>(k, a + i * sa.row, sa, b, sb, start, c + i * sc.row, sc);
        for (; i < m; ++i) multiply_few<T, 1, N>(k, a + i * sa.row, sa, b, sb, start, c + i * sc.row, sc);
    }
}

}  // namespace norch::matmul
