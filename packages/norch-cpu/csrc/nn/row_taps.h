// Taps along rows, for convolutions whose vectors are channels: each column of a row is loaded once for all that see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/dtype.h"
#include "matmul/transpose.h"
#include "runtime/simd.h"
#include "runtime/widen.h"

namespace norch::nn {

/// The taps that a pixel of the result has within the source: where in the source, and which.
struct Reach {
    std::vector<int64_t> at, tap;
    size_t count = 0;
};

/// For X places and V vectors of channels: bias[c] + the sum over taps of source[c] * weights[tap][c]. The places are
/// `step` apart in the source.
template <int X, int V>
void sum_taps(const float* source, int64_t step, const Reach& reach, const float* weights, int64_t channels, const float* bias,
              float* out) {
    constexpr int L = SIMD_WIDTH<float>;
    vector_t<float, L> sums[X][V];
    NORCH_UNROLL
    for (int v = 0; v < V; ++v) {
        sums[0][v] = bias ? load_vector<L>(bias + v * L) : vector_t<float, L>{};
        NORCH_UNROLL
        for (int x = 1; x < X; ++x) sums[x][v] = sums[0][v];
    }
    for (size_t k = 0; k < reach.count; ++k) {
        const float* seen = source + reach.at[k];
        const float* w = weights + reach.tap[k] * channels;
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
inline void pack_taps(const float* weights, int64_t channels, int64_t taps, int64_t turned, float* packed, int64_t width) {
    matmul::transpose(weights, taps, channels, taps, packed, width);
    for (int64_t first = 0; turned && first < taps; first += turned)
        for (int64_t a = first, b = first + turned - 1; a < b; ++a, --b)
            std::swap_ranges(packed + a * width, packed + a * width + channels, packed + b * width);
}

/// What a row of K taps, `sum_window` below, sees of the column P of its places.
template <int P, int K, int S, class V, size_t X, int... PLACE>
NORCH_INLINE void add_column(V seen, const V (&taps)[K], V (&sums)[X], std::integer_sequence<int, PLACE...>) {
    const auto add = [&]<int x>() NORCH_INLINE_LAMBDA {
        if constexpr (constexpr int k = P - x * S; k >= 0 && k < K) sums[x] += seen * taps[k];
    };
    (add.template operator()<PLACE>(), ...);
}

/// A row of places, and what it sees of the source: `column` elements from one column to the next.
struct WindowRow {
    const char* source;  // a column for each place and tap, of which only those from `low` to `high` are there
    int64_t column;
    int low, high;
    int places;  // that are stored
    char* out;
};

/// What the columns of a row of X places add to their sums, where `at(p)` is column p of those from `low` to `high` that are
/// there: it is loaded once for all of the K taps that see it.
template <int S, int K, class V, size_t X, class At>
NORCH_INLINE void add_columns(int low, int high, const V (&taps)[K], V (&sums)[X], const At& at) {
    const auto step = [&]<int P>() NORCH_INLINE_LAMBDA {
        if (P >= low && P < high) add_column<P, K, S>(at(P), taps, sums, std::make_integer_sequence<int, int(X)>());
    };
    [&]<int... P>(std::integer_sequence<int, P...>) NORCH_INLINE_LAMBDA {
        (step.template operator()<P>(), ...);
    }(std::make_integer_sequence<int, (int(X) - 1) * S + K>());
}

/// `sum_taps` of one vector of channels in X places of a row whose K taps are side by side, S columns on from place to place.
template <int K, int S, int X, class T>
void sum_window(const WindowRow& row, const Reach& rows, const float* weights, int64_t channels, const float* bias) {
    constexpr int L = SIMD_WIDTH<float>;
    using V = vector_t<float, L>;
    const int low = row.low, high = row.high;
    const int64_t column = row.column;
    V sums[X];
    sums[0] = bias ? load_vector<L>(bias) : V{};
    NORCH_UNROLL
    for (int x = 1; x < X; ++x) sums[x] = sums[0];
    for (size_t i = 0; i < rows.count; ++i) {
        const T* seen = reinterpret_cast<const T*>(row.source) + rows.at[i];
        const float* w = weights + rows.tap[i] * channels;
        V taps[K];
        NORCH_UNROLL
        for (int k = 0; k < K; ++k) taps[k] = load_vector<L>(w + k * channels);
        add_columns<S>(low, high, taps, sums, [&](int p) NORCH_INLINE_LAMBDA { return V(widen<L>(seen + p * column)); });
    }
    T* const out = reinterpret_cast<T*>(row.out);
    NORCH_UNROLL
    for (int x = 0; x < X; ++x)
        if (x < row.places) store_narrow<L>(out + x * channels, sums[x]);
}

/// `sum_window` for rows of some taps, or none.
struct Window {
    decltype(&sum_window<3, 1, 7, float>) kernel = nullptr;
    int64_t most = 0, span = 0;  // its places, and columns that it may see
    int64_t size = 0;            // of an element

    Window() = default;
    Window(DType dtype, int64_t taps, int64_t step, int64_t gap) : size(size_of(dtype)) {
        if (gap != 1) return;
        if (taps == 3 && step == 1) take<3, 1>(dtype);
        if (taps == 3 && step == 2) take<3, 2>(dtype);
        if (taps == 5 && step == 1) take<5, 1>(dtype);
        if (taps == 5 && step == 2) take<5, 2>(dtype);
        if (taps == 7 && step == 1) take<7, 1>(dtype);
    }
    explicit operator bool() const { return kernel; }

    /// A row of `columns` places, of all vectors of channels, of which there is one at least. The first place's first tap is
    /// `left` columns before the source's row, which has `width`.
    void sum_row(const char* source, int64_t column, int64_t left, int64_t step, int64_t width, const Reach& rows,
                 const float* weights, int64_t channels, const float* bias, int64_t columns, char* out) const {
        constexpr int L = SIMD_WIDTH<float>;
        for (int64_t c = 0; c < channels; c += L) {
            const int64_t at = std::min(c, channels - L);
            for (int64_t x = 0, places; x < columns; x += places) {
                places = std::min(columns - x, most);
                const int64_t first = x * step - left;
                const WindowRow row{source + (first * column + at) * size, column, int(std::max<int64_t>(0, -first)),
                                    int(std::min(width - first, span)), int(places), out + (x * channels + at) * size};
                kernel(row, rows, weights + at, channels, bias ? bias + at : nullptr);
            }
        }
    }

private:
    template <int K, int S>
    void take(DType dtype) {
        if (dtype == DType::f32) take<K, S, float>();
        if constexpr (VECTOR_BYTES > 16 && K == 3)
            if (dtype == DType::bf16) take<K, S, bfloat16>();
    }
    template <int K, int S, class T>
    void take() {
        constexpr int X = SIMD_WIDTH<float> == 16 && S == 1 ? 14 : 7;  // of 32 registers, or 16
        kernel = sum_window<K, S, X, T>, most = X, span = (X - 1) * S + K;
    }
};

/// Rows of gradients, and what their taps see of the source, for the gradient of a depthwise weight.
struct Places {
    const float *grad, *source;      // a row of each
    int64_t rows, grad_row, source_row;  // and so many more, so far apart
    int64_t columns, width;          // of the rows
    int64_t channels, column;        // elements from a column to the next: of the gradients, and of the source
    int64_t step, gap, left;         // in columns: from place to place, from tap to tap, before the source's row
    int64_t begin, end;              // places that have all taps
};

/// sums[tap][c] += the sum over places of grad[c] * source[c], for K taps of a row from `first` on and a vector of channels
/// from c on, of which the first `done` are left as they are.
template <int K, int L>
void sum_products(const Places& p, int64_t first, int64_t c, int done, float* sums) {
    using V = vector_t<float, L>;
    constexpr int TOGETHER = VECTOR_BYTES == 64 || K <= 5 ? 2 : 1;  // places, as far as there are registers
    V totals[TOGETHER][K] = {};
    const int64_t step = p.step * p.column, gap = p.gap * p.column, from = first * p.gap - p.left;
    for (int64_t y = 0; y < p.rows; ++y) {
        const float *grad = p.grad + y * p.grad_row + c, *source = p.source + y * p.source_row + from * p.column + c;
        for (int64_t i = 0; i < p.columns; ++i) {
            for (; i >= p.begin && i + TOGETHER <= p.end; i += TOGETHER) {
                NORCH_UNROLL
                for (int t = 0; t < TOGETHER; ++t) {
                    const V own = load_vector<L>(grad + (i + t) * p.channels);
                    const float* seen = source + (i + t) * step;
                    NORCH_UNROLL
                    for (int k = 0; k < K; ++k) totals[t][k] += load_vector<L>(seen + k * gap) * own;
                }
            }
            if (i == p.columns) break;
            const V own = load_vector<L>(grad + i * p.channels);
            NORCH_UNROLL
            for (int k = 0; k < K; ++k)
                if (uint64_t(i * p.step + from + k * p.gap) < uint64_t(p.width))
                    totals[0][k] += load_vector<L>(source + i * step + k * gap) * own;
        }
    }
    const auto is_done = first_lanes<float, L>(done);
    NORCH_UNROLL
    for (int k = 0; k < K; ++k) {
        NORCH_UNROLL
        for (int t = 1; t < TOGETHER; ++t) totals[0][k] += totals[t][k];
        const V before = load_vector<L>(sums + k * p.channels);
        store_vector(sums + k * p.channels, is_done ? before : before + totals[0][k]);
    }
}

/// The same for all taps of a row, and all channels, of which there are four at least.
inline void sum_products_of_row(const Places& p, int64_t taps, float* sums) {
    constexpr int L = SIMD_WIDTH<float>;
    constexpr int HALF = std::min(L, 8), QUARTER = 4;
    const int64_t lanes = p.channels >= L ? L : p.channels >= HALF ? HALF : QUARTER;
    for (int64_t c = 0; c < p.channels; c += lanes) {
        const int64_t at = std::min(c, p.channels - lanes);
        for (int64_t k = 0, here; k < taps; k += here) {
            here = lanes < L ? 1 : taps - k == 7 ? 7 : taps - k == 3 ? 3 : taps - k >= 5 ? 5 : 1;
            const auto kernel = here == 7   ? sum_products<7, L>
                                : here == 5 ? sum_products<5, L>
                                : here == 3 ? sum_products<3, L>
                                : lanes == L ? sum_products<1, L>
                                : lanes == HALF ? sum_products<1, HALF>
                                                : sum_products<1, QUARTER>;
            kernel(p, k, at, int(c - at), sums + k * p.channels + at);
        }
    }
}

/// Adds to the first of `parts`, each of so many sums, the others in their order.
inline void add_parts(float* sums, int64_t parts, int64_t size) {
    for (int64_t part = 1; part < parts; ++part) {
        const float* const more = sums + part * size;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < size; ++i) sums[i] += more[i];
    }
}

}  // namespace norch::nn
