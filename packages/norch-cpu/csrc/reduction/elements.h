// How the elements of each dtype become numbers that loops are compiled for, and back.
#pragma once

#include <type_traits>

#include "common/dtype.h"
#include "reduction/fold_plan.h"
#include "runtime/tile.h"
#include "runtime/widen.h"

namespace norch::reduction {

/// T is a dtype's type, S the one that loops see.
template <class T, class S = T>
struct ElementsOf {
    using A = compute_t<S>;
    static constexpr int64_t SIZE = sizeof(T);

    static S seen(T x) {
        if constexpr (std::is_same_v<S, T>) return x;
        else return S(load(x));
    }

    /// With SQUARES the numbers' squares.
    template <bool SQUARES>
    static void load_row(void* to, const char* x, int64_t stride, int64_t n) {
        S* out = static_cast<S*>(to);
        const auto at = [](const T* p) NORCH_INLINE_LAMBDA {
            if constexpr (SQUARES) return S(seen(*p) * seen(*p));
            else return seen(*p);
        };
        if (stride == SIZE) {
            const T* from = reinterpret_cast<const T*>(x);
            if constexpr (!SQUARES && std::is_same_v<S, float> && (std::is_same_v<T, bfloat16> || (HAS_HALF && std::is_same_v<T, half>))) return widen_row(from, n, out);
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) out[j] = at(from + j);
        } else if (!SQUARES && std::is_same_v<S, float> && std::is_same_v<T, float> && stride == 2 * SIZE) {
            copy_tile({static_cast<char*>(to), 0, SIZE}, {const_cast<char*>(x), 0, stride}, 1, n, SIZE);
        } else {
            for (int64_t j = 0; j < n; ++j) out[j] = at(reinterpret_cast<const T*>(x + j * stride));
        }
    }

    static void store_row(char* out, int64_t stride, const void* from, int64_t n) {
        const A* x = static_cast<const A*>(from);
        if (stride == SIZE) {
            T* to = reinterpret_cast<T*>(out);
            if constexpr (std::is_same_v<T, bfloat16> || (HAS_HALF && std::is_same_v<T, half>)) return narrow_row(x, n, to);
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) to[j] = store<T>(compute_t<T>(x[j]));
        } else {
            for (int64_t j = 0; j < n; ++j) *reinterpret_cast<T*>(out + j * stride) = store<T>(compute_t<T>(x[j]));
        }
    }

    static constexpr Elements all = {SIZE, std::is_same_v<S, T>, load_row<false>, store_row};
    static constexpr Elements squares = {SIZE, false, load_row<true>, store_row, true};
};

}  // namespace norch::reduction
