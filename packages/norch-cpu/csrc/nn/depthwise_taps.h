// The taps of depthwise convolutions whose channels lie side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/simd.h"

namespace norch::nn {

/// The taps that a pixel of the result has within the source: where in the source, and which.
struct Reach {
    std::vector<int64_t> at, tap;
    size_t count = 0;
};

/// For X places and V vectors of channels: bias[c] + the sum over taps of source[c] * weights[tap][c]. The places are
/// `step` apart in the source.
template <int X, int V, class T>
void sum_taps(const T* source, int64_t step, const Reach& reach, const T* weights, int64_t channels, const T* bias, T* out) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> sums[X][V];
    NORCH_UNROLL
    for (int v = 0; v < V; ++v) {
        sums[0][v] = bias ? load_vector<L>(bias + v * L) : vector_t<T, L>{};
        NORCH_UNROLL
        for (int x = 1; x < X; ++x) sums[x][v] = sums[0][v];
    }
    for (size_t k = 0; k < reach.count; ++k) {
        const T* seen = source + reach.at[k];
        const T* w = weights + reach.tap[k] * channels;
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) {
            const auto weight = load_vector<L>(w + v * L);
            NORCH_UNROLL
            for (int x = 0; x < X; ++x) sums[x][v] += load_vector<L>(seen + x * step + v * L) * weight;
        }
    }
    NORCH_UNROLL
    for (int x = 0; x < X; ++x) {
        NORCH_UNROLL
        for (int v = 0; v < V; ++v) store_vector(out + x * channels + v * L, sums[x][v]);
    }
}

}  // namespace norch::nn
