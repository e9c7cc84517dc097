// The taps of depthwise convolutions whose channels lie side by side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "matmul/transpose.h"
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

/// The weights of all channels by tap, from one tap to the next `width` elements; of every `turned` taps, if any, the last
/// comes first.
template <class T>
void pack_taps(const T* weights, int64_t channels, int64_t taps, int64_t turned, T* packed, int64_t width) {
    matmul::transpose(weights, taps, channels, taps, packed, width);
    for (int64_t first = 0; turned && first < taps; first += turned)
        for (int64_t a = first, b = first + turned - 1; a < b; ++a, --b)
            std::swap_ranges(packed + a * width, packed + a * width + channels, packed + b * width);
}

/// What a row of K taps, `Window` below, sees of the column P of its places.
template <int P, int K, int S, class V, size_t X, int... PLACE>
NORCH_INLINE void add_column(V seen, const V (&taps)[K], V (&sums)[X], std::integer_sequence<int, PLACE...>) {
    const auto add = [&]<int x>() NORCH_INLINE_LAMBDA {
        if constexpr (constexpr int k = P - x * S; k >= 0 && k < K) sums[x] += seen * taps[k];
    };
    (add.template operator()<PLACE>(), ...);
}

/// `sum_taps` of one vector of channels in X places of a row whose K taps are side by side, S columns on from place to
/// place: each column is loaded once for all taps that see it. Only columns from `low` to `high` are in the source, and
/// only the first `places` are stored.
template <int K, int S, int X, class T>
void sum_window(const T* source, int64_t column, int low, int high, const Reach& rows, const T* weights, int64_t channels,
                const T* bias, int places, T* out) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    V sums[X];
    sums[0] = bias ? load_vector<L>(bias) : V{};
    NORCH_UNROLL
    for (int x = 1; x < X; ++x) sums[x] = sums[0];
    for (size_t i = 0; i < rows.count; ++i) {
        const T* seen = source + rows.at[i];
        const T* w = weights + rows.tap[i] * channels;
        V taps[K];
        NORCH_UNROLL
        for (int k = 0; k < K; ++k) taps[k] = load_vector<L>(w + k * channels);
        const auto step = [&]<int P>() NORCH_INLINE_LAMBDA {
            if (P >= low && P < high)
                add_column<P, K, S>(load_vector<L>(seen), taps, sums, std::make_integer_sequence<int, X>());
            seen += column;
        };
        [&]<int... P>(std::integer_sequence<int, P...>) NORCH_INLINE_LAMBDA {
            (step.template operator()<P>(), ...);
        }(std::make_integer_sequence<int, (X - 1) * S + K>());
    }
    NORCH_UNROLL
    for (int x = 0; x < X; ++x)
        if (x < places) store_vector(out + x * channels, sums[x]);
}

/// `sum_window` for rows of some taps, or none: `wide` where there are more places than `NARROW`.
template <class T>
struct Window {
    using Kernel = decltype(&sum_window<3, 1, 7, T>);
    static constexpr int64_t NARROW = 7;

    Kernel narrow = nullptr, wide = nullptr;
    int64_t most = 0, span = 0;  // places of a wide one, and columns that it may see

    Window() = default;
    Window(int64_t taps, int64_t step, int64_t gap) {
        if (gap != 1 || !std::is_same_v<T, float>) return;
        if (taps == 3 && step == 1) take<3, 1>();
        if (taps == 3 && step == 2) take<3, 2>();
        if (taps == 5 && step == 1) take<5, 1>();
        if (taps == 5 && step == 2) take<5, 2>();
        if (taps == 7 && step == 1) take<7, 1>();
    }
    explicit operator bool() const { return narrow; }

    /// A row of `columns` places, of all vectors of channels, of which there is one at least. The first place's first tap is
    /// `left` columns before the source's row, which has `width`.
    void sum_row(const T* source, int64_t column, int64_t left, int64_t step, int64_t width, const Reach& rows, const T* weights,
                 int64_t channels, const T* bias, int64_t columns, T* out) const {
        constexpr int L = SIMD_WIDTH<T>;
        for (int64_t c = 0; c < channels; c += L) {
            const int64_t at = std::min(c, channels - L);
            for (int64_t x = 0, places; x < columns; x += places) {
                const auto kernel = columns - x > NARROW ? wide : narrow;
                places = std::min(columns - x, kernel == wide ? most : NARROW);
                const int64_t first = x * step - left;
                kernel(source + first * column + at, column, int(std::max<int64_t>(0, -first)), int(std::min(width - first, span)),
                       rows, weights + at, channels, bias ? bias + at : nullptr, int(places), out + x * channels + at);
            }
        }
    }

private:
    template <int K, int S>
    void take() {
        constexpr int X = SIMD_WIDTH<float> == 16 && S == 1 ? 2 * NARROW : NARROW;  // where there are 32 registers
        narrow = sum_window<K, S, NARROW, T>, wide = sum_window<K, S, X, T>, most = X, span = (X - 1) * S + K;
    }
};

}  // namespace norch::nn
