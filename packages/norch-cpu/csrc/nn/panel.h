// The innermost loops of convolution: sums of elements found by offsets times rows of a packed panel. T is float or
// double.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/simd.h"

namespace norch::nn {

/// The vectors of a panel that are computed together: the sums of several rows of them stay in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MAX_VECTORS = 4;
#else
constexpr int MAX_VECTORS = 2;
#endif

/// Some channels that are computed together, as one panel of whole vectors.
struct Block {
    int64_t first, channels;
    int vectors;

    template <class T>
    int64_t width() const {
        return int64_t(vectors) * SIMD_WIDTH<T>;
    }
};

/// Cuts `channels` into blocks of at most MAX_VECTORS vectors, of about one size: `wanted` of them or more, if that leaves each
/// two vectors.
template <class T>
std::vector<Block> blocks_of(int64_t channels, int64_t wanted = 1);

/// out[r][v] = start[r][v] + the sum over t of x[rows[r] + steps[t]] * panel[t][v], for v in the panel's `vectors`
/// vectors. start_stride may be 0 (one row for all); start may be out, with out's stride, which is the panel's width.
template <class T>
void multiply_gathered(const T* x, const int64_t* rows, int64_t row_count, const int64_t* steps, int64_t step_count,
                       const T* panel, int vectors, const T* start, int64_t start_stride, T* out);

}  // namespace norch::nn
