// Algorithms on one matrix that lies row by row, each row a whole number of vectors apart from the next. What is behind
// the last column up to a whole vector is computed with, and of no meaning.
#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace norch::linalg {

/// The elements from one row to the next: an odd number of cache lines, so that a column is spread over the cache.
inline int64_t padded(int64_t columns, DType dtype) {
    const int64_t line = 64 / size_of(dtype);
    return ((columns + line - 1) / line | 1) * line;
}

/// Element (i, j) of a matrix lies at data + i * row + j * step.
template <class T>
struct Strided {
    const T* data;
    int64_t row, step;
    Strided from(int64_t i, int64_t j) const { return {data + i * row + j * step, row, step}; }
};

/// c (m, n) -= a (m, k) @ b (k, n).
template <class T>
void subtract_product(T* c, int64_t c_row, Strided<T> a, const T* b, int64_t b_row, int64_t m, int64_t n, int64_t k);

/// The X with a @ X = x in place of x (n, columns), for a lower or an upper triangle of `a`.
template <class T>
void solve_triangle(bool upper, bool unitriangular, Strided<T> a, int64_t n, T* x, int64_t x_row, int64_t columns);

/// P @ a = L @ U in place of a (m, n), without the ones of L's diagonal. Row j was exchanged for row pivots[j], which
/// counts from 1. Returns which pivot was 0 first, from 1, or 0.
template <class T>
int32_t factorise(T* a, int64_t row, int64_t m, int64_t n, int32_t* pivots);

/// What `factorise` did to the rows of its matrix, done to another (., n).
template <class T>
void exchange_rows(T* a, int64_t row, int64_t n, const int32_t* pivots, int64_t count);

/// The upper U with U.T @ U = a in place of a's upper triangle; the lower is of no meaning. Returns the order of the first
/// minor that is not positive, or 0.
template <class T>
int32_t factorise_positive(T* a, int64_t row, int64_t n);

}  // namespace norch::linalg
