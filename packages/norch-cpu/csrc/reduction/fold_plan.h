// What the drivers of reductions and their loops have in common.
#pragma once

#include "reduction/plan.h"

namespace norch::reduction {

constexpr int64_t CHUNK_ROWS = 256;  // rows that are added up before their sum goes to a wider type
constexpr int64_t BLOCK = 1024;      // columns that are added up at a time

/// Elements of a row that are folded without a detour by a wider type; `lanes` are of eight vectors.
constexpr int64_t most_direct(bool is_contiguous, int64_t lanes) { return is_contiguous ? 16 * lanes : 128; }

/// `count` rows of n elements, `stride` bytes apart; the steps are from row to row.
struct ShortRows {
    char* out;
    const char* x;
    int64_t out_step, x_step, stride, n, count;
};

/// A reduction whose inner loop is over kept elements.
struct ColumnPlan {
    ReductionPlan plan;
    int64_t columns, rows;
    int64_t merged = 1, left_over = 0;  // how many rows make a wide one, and how many then remain
    int64_t blocks, block, chunks;
    bool contiguous, in_place, in_registers;
};

/// The loops of an operation on a dtype. Partial results are narrow, or where many were added up, wide.
struct FoldLoops {
    int64_t size, narrow, wide;  // bytes of an element, and of partial results
    int64_t lanes;               // of eight vectors
    bool has_tile;               // whether so many columns can stay in registers

    void (*short_rows)(const ShortRows&);
    /// A wide partial result of n elements of each of some rows, from where the odometer is.
    void (*rows)(void* partial, const char* x, Odometer& at, int64_t rows, int64_t stride, int64_t n);
    /// *out = n wide partial results; what no elements give where n is 0.
    void (*combine)(char* out, const void* partials, int64_t n);

    /// Narrow partial results of n columns of rows [first, last).
    void (*accumulate)(const ColumnPlan&, void* partials, const char* x, int64_t first, int64_t last, int64_t n);
    /// n columns of the output, from the input, or from what `chunks` calls of accumulate left.
    void (*columns)(const ColumnPlan&, char* out, const char* x, int64_t n);
    void (*combine_columns)(const ColumnPlan&, char* out, const char* x, const void* partials, int64_t n);
};

/// The kernel of a reduction with these loops.
KernelPtr fold_kernel(const Request& request, const FoldLoops& loops);

}  // namespace norch::reduction
