// Sums of some rows of a table, a few vectors of columns at a time.
#pragma once

#include <cstdint>

#include "runtime/simd.h"
#include "runtime/widen.h"

namespace norch::indexing {

/// Which rows are added up. factors: what each is multiplied by, or null.
template <class S>
struct Bag {
    const int64_t* rows;
    int64_t count, known;  // of `known` from the first on the rows may be asked for ahead
    int64_t padding = -1;  // a row that does not count, or -1
    const S* factors = nullptr;
};

/// What lies in VECTORS vectors from column `first` on, added up; 16-bit floats in float32.
template <int VECTORS, int LANES, bool SCALED, class S>
inline void sum_columns(const S* table, const Bag<S>& bag, int64_t features, int64_t first, S* out) {
    using T = compute_t<S>;
    constexpr int64_t AHEAD = 6, LINE = 64 / int64_t(sizeof(S));
    vector_t<T, LANES> sums[VECTORS] = {};
    for (int64_t i = 0; i < bag.count; ++i) {
        if (i + AHEAD < bag.known)
            for (int64_t j = 0; j < VECTORS * LANES; j += LINE)
                __builtin_prefetch(table + bag.rows[i + AHEAD] * features + first + j);
        if (bag.rows[i] == bag.padding) continue;
        const S* row = table + bag.rows[i] * features + first;
        const T factor = SCALED ? load(bag.factors[i]) : T(1);
        NORCH_UNROLL
        for (int k = 0; k < VECTORS; ++k) {
            const auto x = widen<LANES>(row + k * LANES);
            if constexpr (SCALED) sums[k] += factor * x;
            else sums[k] += x;
        }
    }
    NORCH_UNROLL
    for (int k = 0; k < VECTORS; ++k) {
        if constexpr (std::is_same_v<S, T>) store_vector(out + first + k * LANES, sums[k]);
        else store_narrow<LANES>(out + first + k * LANES, sums[k]);
    }
}

template <bool SCALED, class S>
void sum_rows(const S* table, const Bag<S>& bag, int64_t features, S* out) {
    using T = compute_t<S>;
    constexpr int LANES = SIMD_WIDTH<T>;
    constexpr bool IS_NARROW = !std::is_same_v<S, T>;
    constexpr int MANY = IS_NARROW ? 4 : 8;
    int64_t j = 0;
    for (; j + MANY * LANES <= features; j += MANY * LANES) sum_columns<MANY, LANES, SCALED>(table, bag, features, j, out);
    for (; j + LANES <= features; j += LANES) sum_columns<1, LANES, SCALED>(table, bag, features, j, out);
    if constexpr (LANES > 4 && !IS_NARROW)
        for (; j + 4 <= features; j += 4) sum_columns<1, 4, SCALED>(table, bag, features, j, out);
    for (; j < features; ++j) {
        T sum = 0;
        for (int64_t i = 0; i < bag.count; ++i) {
            if (bag.rows[i] == bag.padding) continue;
            const T x = load(table[bag.rows[i] * features + j]);
            sum += SCALED ? load(bag.factors[i]) * x : x;
        }
        out[j] = store<S>(sum);
    }
}

}  // namespace norch::indexing
