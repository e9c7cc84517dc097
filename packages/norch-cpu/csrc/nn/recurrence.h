// Steps of recurrent layers: which rows and which hidden units a thread computes, and weights packed for many steps.
#pragma once

#include <algorithm>

#include "common/recurrence.h"
#include "matmul/gemm_pack.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace norch::nn {

/// The kernel of recurrence_grad.
KernelPtr recurrence_grad(const Request& request);

/// Hidden units that are computed together, as one tile's vectors.
template <class T>
constexpr int64_t UNITS = matmul::TILE_VECTORS * SIMD_WIDTH<T>;

template <class T>
int64_t chunks_of(int64_t hidden) {
    return (hidden + UNITS<T> - 1) / UNITS<T>;
}

/// Packing reads and writes all weights once: it pays where a tile's worth of rows meets them several times.
inline bool packs(const Recurrence& r) { return r.steps >= 4 && r.batch > 4; }

/// Whether threads share the batch, each going through all steps on its own; else they share the units of each step.
inline bool shares_batch(const Recurrence& r) { return r.batch >= 4 * num_threads(); }

/// About what the product of one row with the recurrent weights costs.
template <class T>
double row_ns(const Recurrence& r) {
    return double(r.hidden) * double(r.width()) / (SIMD_WIDTH<T> * 5.0) + 2.0 * double(r.width());
}

/// Calls body(first row, last row) for parts of the batch, or once for all of it.
template <class T, class Body>
void for_rows(const Recurrence& r, const Body& body) {
    if (shares_batch(r))
        parallel_for(r.batch, double(r.steps) * row_ns<T>(r), body, 4);
    else
        body(0, r.batch);
}

/// c[i] = start[i] + a[i] @ panel for rows of a (`k` elements each) and a panel of UNITS columns.
template <class T>
void multiply_panel(const T* a, int64_t a_row, int64_t rows, int64_t k, const T* panel, const T* start,
                    int64_t start_row, T* c, int64_t c_row) {
    constexpr int L = SIMD_WIDTH<T>;
    matmul::for_tiles(rows, matmul::tile_kernel<T, L, matmul::TILE_VECTORS>,
                      [&](int64_t i, matmul::TileKernel<T> kernel, int64_t) {
                          matmul::TileInput<T> in{a + i * a_row, a_row, 1, panel, UNITS<T>, k, start + i * start_row,
                                                  start_row};
                          kernel(in, c + i * c_row, c_row);
                      });
}

template <class T>
const T* as(char* const* data, int operand) {
    return operand < 0 ? nullptr : reinterpret_cast<const T*>(data[operand]);
}
template <class T>
T* into(char* const* data, int operand) {
    return operand < 0 ? nullptr : reinterpret_cast<T*>(data[operand]);
}

}  // namespace norch::nn
