// Products of one vector, or very few, and a matrix: what counts is that the matrix is read once, as it lies in memory.
#pragma once

#include <cstdint>

#include "gemm_tile.h"
#include "loop.h"

namespace norch {

/// y += x @ b for b's rows of n elements. Eight rows at a time are read side by side, and y a time for all of them.
template <class T>
void add_rows(const T* x, int64_t x_step, const T* b, int64_t b_row, int64_t k, int64_t n, T* y) {
    int64_t p = 0;
    for (; p + 8 <= k; p += 8, x += 8 * x_step, b += 8 * b_row) {
        const T x0 = x[0], x1 = x[x_step], x2 = x[2 * x_step], x3 = x[3 * x_step];
        const T x4 = x[4 * x_step], x5 = x[5 * x_step], x6 = x[6 * x_step], x7 = x[7 * x_step];
        const T *b1 = b + b_row, *b2 = b1 + b_row, *b3 = b2 + b_row;
        const T *b4 = b3 + b_row, *b5 = b4 + b_row, *b6 = b5 + b_row, *b7 = b6 + b_row;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) {
            T sum = y[j] + x0 * b[j];
            sum += x1 * b1[j];
            sum += x2 * b2[j];
            sum += x3 * b3[j];
            sum += x4 * b4[j];
            sum += x5 * b5[j];
            sum += x6 * b6[j];
            y[j] = sum + x7 * b7[j];
        }
    }
    for (; p < k; ++p, x += x_step, b += b_row) {
        const T value = *x;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) y[j] += value * b[j];
    }
}

constexpr int MAX_DOT_ROWS = 4;

/// The dot products of R vectors with C others, k elements each next to each other.
template <class T, int R, int C>
void dot_tile(const T* a, int64_t a_row, const T* b, int64_t b_row, int64_t k, T* out, int64_t out_row,
              int64_t out_column) {
    constexpr int L = FULL_VECTOR<T>;
    vector_t<T, L> sums[R][C] = {};
    int64_t p = 0;
    do {  // k is at least L
        vector_t<T, L> factors[R];
        NORCH_UNROLL
        for (int r = 0; r < R; ++r) factors[r] = load_vector<L>(a + r * a_row + p);
        NORCH_UNROLL
        for (int c = 0; c < C; ++c) {
            const vector_t<T, L> value = load_vector<L>(b + c * b_row + p);
            NORCH_UNROLL
            for (int r = 0; r < R; ++r) sums[r][c] += factors[r] * value;
        }
        p += L;
    } while (p + L <= k);
    for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) {
            T lanes[L];
            store_vector(lanes, sums[r][c]);
            for (int width = L / 2; width; width /= 2)
                for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
            T sum = lanes[0];
            for (int64_t q = p; q < k; ++q) sum += a[r * a_row + q] * b[c * b_row + q];
            out[r * out_row + c * out_column] = sum;
        }
    }
}

/// out[r][c] = the dot product of a's row r with b's row c, of `rows` (at most MAX_DOT_ROWS) and `columns` of them.
template <class T>
void multiply_dots(const T* a, int64_t a_row, int64_t rows, const T* b, int64_t b_row, int64_t columns, int64_t k,
                   T* out, int64_t out_row, int64_t out_column) {
    const auto run = [&](auto count) {
        constexpr int R = decltype(count)::value;
        int64_t c = 0;
        for (; c + 4 <= columns; c += 4)
            dot_tile<T, R, 4>(a, a_row, b + c * b_row, b_row, k, out + c * out_column, out_row, out_column);
        for (; c < columns; ++c)
            dot_tile<T, R, 1>(a, a_row, b + c * b_row, b_row, k, out + c * out_column, out_row, out_column);
    };
    if (rows == 1) run(std::integral_constant<int, 1>());
    else if (rows == 2) run(std::integral_constant<int, 2>());
    else if (rows == 3) run(std::integral_constant<int, 3>());
    else run(std::integral_constant<int, 4>());
}

}  // namespace norch
