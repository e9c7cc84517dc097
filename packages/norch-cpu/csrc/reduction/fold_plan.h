// What the drivers of reductions and their loops have in common.
#pragma once

#include "reduction/plan.h"

namespace norch::reduction {

constexpr int64_t CHUNK_ROWS = 256;  // rows that are added up before their sum goes to a wider type
constexpr int64_t BLOCK = 1024;      // columns that are added up at a time

/// How many elements are folded without a detour by a wider type: 64-bit numbers, which have none, in longer chains.
constexpr int64_t max_direct(int64_t lanes, int64_t size) { return lanes * (size == 8 ? 32 : 16); }

/// How elements of a dtype are read for the loops, and written from numbers that they are computed in.
struct Elements {
    int64_t size;
    bool is_seen;  // whether the loops see the elements themselves
    void (*load)(void* to, const char* x, int64_t stride, int64_t n);
    void (*store)(char* out, int64_t stride, const void* from, int64_t n);
    bool are_squares = false;  // of the elements, as the loops see them
};

/// `count` rows of n elements, `stride` bytes apart; the steps are from row to row.
struct ShortRows {
    char* out;
    const char* x;
    int64_t out_step, x_step, stride, n, count;
};

/// A reduction whose inner loop is over kept elements.
struct ColumnPlan {
    ReductionPlan plan;
    Elements elements;
    int64_t columns, rows;
    int64_t merged = 1, left_over = 0;  // how many rows make a wide one, and how many then remain
    int64_t blocks, block, chunks;
    bool in_place, in_registers;
};

/// The loops of an operation on numbers of one type. Partial results are narrow, or where many were added up, wide.
struct FoldLoops {
    int64_t narrow, wide;  // bytes of partial results
    int64_t lanes;         // of eight vectors
    bool has_tile;         // whether so many columns can stay in registers

    void (*short_rows)(const Elements&, const ShortRows&);
    /// A wide partial result of n elements of each of some rows, from where the odometer is.
    void (*rows)(const Elements&, void* partial, const char* x, Odometer& at, int64_t rows, int64_t stride, int64_t n);
    /// *out = n wide partial results; what no elements give where n is 0.
    void (*combine)(const Elements&, char* out, const void* partials, int64_t n);

    /// Narrow partial results of n columns of rows [first, last).
    void (*accumulate)(const ColumnPlan&, void* partials, const char* x, int64_t first, int64_t last, int64_t n);
    /// n columns of the output, from the input, or from what `chunks` calls of accumulate left.
    void (*columns)(const ColumnPlan&, char* out, const char* x, int64_t n);
    void (*combine_columns)(const ColumnPlan&, char* out, const char* x, const void* partials, int64_t n);
};

/// The kernel of a reduction with these loops.
KernelPtr fold_kernel(const Request& request, const FoldLoops& loops, const Elements& elements);

}  // namespace norch::reduction
