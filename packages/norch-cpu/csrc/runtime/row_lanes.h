// Rows that become the lanes of vectors, and back: element j of all rows is vector j.
#pragma once

#include <cstdint>
#include <cstring>

#include "runtime/simd.h"

namespace norch {

/// As many rows as a vector has lanes; of those beyond `count`, which stand for no row, others are read again.
template <class T>
struct RowLanes {
    static constexpr int L = SIMD_WIDTH<T>, W = 16 / int(sizeof(T)), GROUPS = L / W;
    using V = vector_t<T, L>;
    using Quarter = vector_t<T, W>;  // 16 bytes, within which lanes change places at the least cost

    T* at[L];
    int64_t along;  // from one element to the next
    int count, first = 0;  // rows before the first are not written

    /// Whether the rows lie `apart` from each other.
    bool lie(int64_t apart) const {
        for (int i = 1; i < L; ++i)
            if (at[i] != at[0] + i * apart) return false;
        return true;
    }
    bool is_full() const { return count == L && first == 0; }

    /// put(j, vector) for each j < n.
    template <class Put>
    NORCH_INLINE void read(int64_t n, const Put& put) const {
        int64_t j = 0;
        if (lie(1)) {
            for (; j < n; ++j) put(j, load_vector<L>(at[0] + j * along));
        } else if (lie(2)) {  // one of two parts
            for (; j < n; ++j) put(j, every_second<L>(at[0] + j * along));
        } else if (along == 1) {
            j = read_squares<1>(n, put);
        } else if (along == 2) {
            j = read_squares<2>(n, put);
        }
        for (; j < n; ++j) {
            V v;
            for (int i = 0; i < L; ++i) v[i] = at[i][j * along];
            put(j, v);
        }
    }

    /// Element j is vector get(j), for each j < n.
    template <class Get>
    NORCH_INLINE void write(int64_t n, const Get& get) const {
        int64_t j = 0;
        if (lie(1) && is_full()) {
            for (; j < n; ++j) store_vector(at[0] + j * along, get(j));
        } else if (along == 1) {
            j = is_full() ? write_squares<true>(n, get) : write_squares<false>(n, get);
        }
        for (; j < n; ++j) {
            const V v = get(j);
            for (int i = first; i < count; ++i) at[i][j * along] = v[i];
        }
    }

private:
    template <int... I>
    static NORCH_INLINE V joined(const Quarter* parts, std::integer_sequence<int, I...>) {
        V out;
        if constexpr (GROUPS == 1) out = parts[0];
        else if constexpr (GROUPS == 2) out = __builtin_shufflevector(parts[0], parts[1], I...);
        else {
            using Half = vector_t<T, L / 2>;
            constexpr auto half = std::make_integer_sequence<int, L / 2>();
            const Half low = paired(parts[0], parts[1], half), high = paired(parts[2], parts[3], half);
            out = __builtin_shufflevector(low, high, I...);
        }
        return out;
    }
    template <int... I>
    static NORCH_INLINE vector_t<T, 2 * W> paired(Quarter a, Quarter b, std::integer_sequence<int, I...>) {
        return __builtin_shufflevector(a, b, I...);
    }

    template <int LANES, class U, int... I>
    static NORCH_INLINE U every_second(U low, U high, std::integer_sequence<int, I...>) {
        return __builtin_shufflevector(low, high, (2 * I < LANES ? 2 * I : 2 * I + 1)...);
    }
    /// p[0], p[2], ...: of nothing behind the last of them is read.
    template <int LANES>
    static NORCH_INLINE vector_t<T, LANES> every_second(const T* p) {
        constexpr auto lanes = std::make_integer_sequence<int, LANES>();
        return every_second<LANES>(load_vector<LANES>(p), load_vector<LANES>(p + LANES - 1), lanes);
    }

    template <int STEP, class Put>
    NORCH_INLINE int64_t read_squares(int64_t n, const Put& put) const {
        int64_t j = 0;
        for (; j + W <= n; j += W) {
            V rows[W];
            NORCH_UNROLL
            for (int i = 0; i < W; ++i) {
                Quarter parts[GROUPS];
                NORCH_UNROLL
                for (int g = 0; g < GROUPS; ++g) {
                    const T* const from = at[g * W + i] + j * STEP;
                    if constexpr (STEP == 1) parts[g] = load_vector<W>(from);
                    else parts[g] = every_second<W>(from);
                }
                rows[i] = joined(parts, std::make_integer_sequence<int, L>());
            }
            transpose(rows);
            NORCH_UNROLL
            for (int i = 0; i < W; ++i) put(j + i, rows[i]);
        }
        return j;
    }

    template <bool ALL, class Get>
    NORCH_INLINE int64_t write_squares(int64_t n, const Get& get) const {
        int64_t j = 0;
        for (; j + W <= n; j += W) {
            V rows[W];
            NORCH_UNROLL
            for (int i = 0; i < W; ++i) rows[i] = get(j + i);
            transpose(rows);
            NORCH_UNROLL
            for (int i = 0; i < L; ++i) {  // copied by bytes, since GCC shuffles the upper lanes to take them
                const char* const from = reinterpret_cast<const char*>(&rows[i % W]) + i / W * sizeof(Quarter);
                if (ALL || (i >= first && i < count)) std::memcpy(at[i] + j, from, sizeof(Quarter));
            }
        }
        return j;
    }

    template <bool HIGH, int... I>
    static NORCH_INLINE V in_turn(V a, V b, std::integer_sequence<int, I...>) {
        return __builtin_shufflevector(a, b, (I / W * W + (HIGH ? W / 2 : 0) + I % W / 2 + (I % 2 ? L : 0))...);
    }
    /// Squares of W * W, one in each 16 bytes of W vectors.
    static NORCH_INLINE void transpose(V* rows) {
        constexpr auto lanes = std::make_integer_sequence<int, L>();
        NORCH_UNROLL
        for (int stage = 1; stage < W; stage *= 2) {
            V next[W];
            NORCH_UNROLL
            for (int i = 0; i < W / 2; ++i) {
                next[2 * i] = in_turn<false>(rows[i], rows[i + W / 2], lanes);
                next[2 * i + 1] = in_turn<true>(rows[i], rows[i + W / 2], lanes);
            }
            NORCH_UNROLL
            for (int i = 0; i < W; ++i) rows[i] = next[i];
        }
    }
};

}  // namespace norch
