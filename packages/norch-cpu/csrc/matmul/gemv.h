// Products of one vector, or very few, and a matrix: what counts is that the matrix is read once, as it lies in memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "elementwise/loop.h"
#include "matmul/gemm_tile.h"
#include "runtime/widen.h"

namespace norch::matmul {

constexpr double LINE_BYTES_PER_NS = 12;  // what one core reads of a matrix that it multiplies by a vector

/// y += x @ b for b's rows of n elements, T or what is widened to it. Eight rows at a time are read side by side, and y a time for all of them.
template <class T, class S>
void add_rows(const T* x, int64_t x_step, const S* b, int64_t b_row, int64_t k, int64_t n, T* y) {
    constexpr int L = SIMD_WIDTH<T>, ROWS = 8;
    int64_t p = 0;
    for (; p + ROWS <= k; p += ROWS, x += ROWS * x_step, b += ROWS * b_row) {
        int64_t j = 0;
        for (; j + L <= n; j += L) {
            vector_t<T, L> sum = {};
            NORCH_UNROLL
            for (int r = 0; r < ROWS; ++r) {
                const S* row = b + r * b_row + j;
                // Along the row: what is below it lies in the same place of the first cache where rows are pages apart.
                __builtin_prefetch(row + 64);
                sum += widen<L>(row) * x[r * x_step];
            }
            store_vector(y + j, load_vector<L>(y + j) + sum);
        }
        for (; j < n; ++j) {
            T sum = 0;
            for (int r = 0; r < ROWS; ++r) sum += x[r * x_step] * load(b[r * b_row + j]);
            y[j] += sum;
        }
    }
    for (; p < k; ++p, x += x_step, b += b_row) {
        const T value = *x;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) y[j] += value * load(b[j]);
    }
}

/// The sums of every fourth lane.
template <class T, int L>
NORCH_INLINE vector_t<T, 4> fold_to_four(vector_t<T, L> v) {
    if constexpr (L == 4) {
        return v;
    } else {
        const auto halves = [&]<int... I>(std::integer_sequence<int, I...>) {
            return __builtin_shufflevector(v, v, I...) + __builtin_shufflevector(v, v, (I + L / 2)...);
        };
        return fold_to_four<T, L / 2>(halves(std::make_integer_sequence<int, L / 2>()));
    }
}

/// out[i * step] = the sum of the lanes of v[i], and `more[i]`.
template <class T, int L, int C>
void store_sums(const vector_t<T, L> (&v)[C], const T* more, T* out, int64_t step) {
    if constexpr (C % 4 == 0 && L >= 4) {
        NORCH_UNROLL
        for (int c = 0; c < C; c += 4) {
            // Lanes of four side by side, so that one fold serves them all.
            const auto a = interleave<false, L>(v[c], v[c + 2]) + interleave<true, L>(v[c], v[c + 2]);
            const auto b = interleave<false, L>(v[c + 1], v[c + 3]) + interleave<true, L>(v[c + 1], v[c + 3]);
            const auto sums =
                fold_to_four<T, L>(interleave<false, L>(a, b) + interleave<true, L>(a, b)) + load_vector<4>(more + c);
            if (step == 1)
                store_vector(out + c, sums);
            else
                for (int i = 0; i < 4; ++i) out[(c + i) * step] = sums[i];
        }
    } else {
        for (int c = 0; c < C; ++c) {
            T lanes[L];
            store_vector(lanes, v[c]);
            for (int width = L / 2; width; width /= 2)
                for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
            out[c * step] = lanes[0] + more[c];
        }
    }
}

/// The dot products of R vectors with C others, k elements each next to each other; the others may be narrower than T.
template <class T, int R, int C, class S>
void dot_tile(const T* a, int64_t a_row, const S* b, int64_t b_row, int64_t k, T* out, int64_t out_row,
              int64_t out_column) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> totals[R][C] = {};
    int64_t p = 0;
    do {  // k is at least L
        const int64_t stop = k - L - p < CHUNK_STEPS * L ? k - L + 1 : p + CHUNK_STEPS * L;
        vector_t<T, L> sums[R][C] = {};
        if constexpr (R == 1 && C > 1) {  // additions wait for each other: two sums for each column
            vector_t<T, L> others[C] = {};
            for (; p + L < stop; p += 2 * L) {
                const auto factors = load_vector<L>(a + p), next = load_vector<L>(a + p + L);
                NORCH_UNROLL
                for (int c = 0; c < C; ++c) {
                    const S* x = b + c * b_row + p;
                    sums[0][c] += factors * widen<L>(x);
                    others[c] += next * widen<L>(x + L);
                }
            }
            NORCH_UNROLL
            for (int c = 0; c < C; ++c) sums[0][c] += others[c];
        }
        while (p < stop) {
            vector_t<T, L> factors[R];
            NORCH_UNROLL
            for (int r = 0; r < R; ++r) factors[r] = load_vector<L>(a + r * a_row + p);
            NORCH_UNROLL
            for (int c = 0; c < C; ++c) {
                const vector_t<T, L> value = widen<L>(b + c * b_row + p);
                if constexpr (R > 1) __builtin_prefetch(b + (C + c) * b_row + p);  // what the next tile reads
                NORCH_UNROLL
                for (int r = 0; r < R; ++r) sums[r][c] += factors[r] * value;
            }
            p += L;
        }
        NORCH_UNROLL
        for (int r = 0; r < R; ++r) {
            NORCH_UNROLL
            for (int c = 0; c < C; ++c) totals[r][c] += sums[r][c];
        }
    } while (p + L <= k);
    NORCH_UNROLL
    for (int r = 0; r < R; ++r) {
        T rest[C] = {};
        for (int c = 0; c < C; ++c)
            for (int64_t q = p; q < k; ++q) rest[c] += a[r * a_row + q] * load(b[c * b_row + q]);
        store_sums<T, L, C>(totals[r], rest, out + r * out_row, out_column);
    }
}

constexpr int DOT_ROWS = 4, DOT_COLUMNS = 4;

/// Up to DOT_ROWS of a's rows with all of b's. One row takes b's in as many streams as columns: memory is read faster so than
/// in one stream or in many short ones.
template <class T, int R, class S>
void dot_rows(const T* a, int64_t a_row, const S* b, int64_t b_row, int64_t columns, int64_t k, T* out, int64_t out_row,
              int64_t out_column) {
    constexpr int C = DOT_COLUMNS;
    int64_t c = 0;
    for (int64_t apart; columns - c >= C; c += apart * C) {
        apart = R == 1 ? columns / C : 1;
        for (int64_t i = c; i < c + apart; ++i)
            dot_tile<T, R, C>(a, a_row, b + i * b_row, apart * b_row, k, out + i * out_column, out_row, apart * out_column);
    }
    for (; c < columns; ++c)
        dot_tile<T, R, 1>(a, a_row, b + c * b_row, b_row, k, out + c * out_column, out_row, out_column);
}

/// out[r][c] = the dot product of a's row r with b's row c. Of the two the longer is read once.
template <class T, class S>
void multiply_dots(const T* a, int64_t a_row, int64_t rows, const S* b, int64_t b_row, int64_t columns, int64_t k,
                   T* out, int64_t out_row, int64_t out_column) {
    const int64_t at_once = rows > columns || rows == 1 ? columns : DOT_COLUMNS;
    for (int64_t c = 0; c < columns; c += at_once) {
        const int64_t width = columns - c < at_once ? columns - c : at_once;
        for (int64_t r = 0; r < rows; r += DOT_ROWS) {
            const auto run = rows - r >= 4   ? dot_rows<T, 4, S>
                             : rows - r == 3 ? dot_rows<T, 3, S>
                             : rows - r == 2 ? dot_rows<T, 2, S>
                                             : dot_rows<T, 1, S>;
            run(a + r * a_row, a_row, b + c * b_row, b_row, width, k, out + r * out_row + c * out_column, out_row,
                out_column);
        }
    }
}

}  // namespace norch::matmul
