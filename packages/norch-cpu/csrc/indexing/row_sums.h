// Sums of some rows of a table, a few vectors of columns at a time.
#pragma once

#include <cstdint>

#include "runtime/simd.h"

namespace norch::indexing {

/// Which rows are added up. factors: what each is multiplied by, or null.
template <class T>
struct Bag {
    const int64_t* rows;
    int64_t count, known;  // of `known` from the first on the rows may be asked for ahead
    int64_t padding = -1;  // a row that does not count, or -1
    const T* factors = nullptr;
};

/// What lies in VECTORS vectors from column `first` on, added up.
template <int VECTORS, int LANES, bool SCALED, class T>
inline void sum_columns(const T* table, const Bag<T>& bag, int64_t features, int64_t first, T* out) {
    constexpr int64_t AHEAD = 6, LINE = 64 / int64_t(sizeof(T));
    vector_t<T, LANES> sums[VECTORS] = {};
    for (int64_t i = 0; i < bag.count; ++i) {
        if (i + AHEAD < bag.known)
            for (int64_t j = 0; j < VECTORS * LANES; j += LINE)
                __builtin_prefetch(table + bag.rows[i + AHEAD] * features + first + j);
        if (bag.rows[i] == bag.padding) continue;
        const T* row = table + bag.rows[i] * features + first;
        const T factor = SCALED ? bag.factors[i] : T(1);
        NORCH_UNROLL
        for (int k = 0; k < VECTORS; ++k) {
            const auto x = load_vector<LANES>(row + k * LANES);
            if constexpr (SCALED) sums[k] += factor * x;
            else sums[k] += x;
        }
    }
    NORCH_UNROLL
    for (int k = 0; k < VECTORS; ++k) store_vector(out + first + k * LANES, sums[k]);
}

template <bool SCALED, class T>
void sum_rows(const T* table, const Bag<T>& bag, int64_t features, T* out) {
    constexpr int LANES = SIMD_WIDTH<T>;
    int64_t j = 0;
    for (; j + 8 * LANES <= features; j += 8 * LANES) sum_columns<8, LANES, SCALED>(table, bag, features, j, out);
    for (; j + LANES <= features; j += LANES) sum_columns<1, LANES, SCALED>(table, bag, features, j, out);
    if constexpr (LANES > 4)
        for (; j + 4 <= features; j += 4) sum_columns<1, 4, SCALED>(table, bag, features, j, out);
    for (; j < features; ++j) {
        T sum = 0;
        for (int64_t i = 0; i < bag.count; ++i) {
            if (bag.rows[i] == bag.padding) continue;
            const T x = table[bag.rows[i] * features + j];
            sum += SCALED ? bag.factors[i] * x : x;
        }
        out[j] = sum;
    }
}

}  // namespace norch::indexing
