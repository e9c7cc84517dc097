// Brings factors into the blocks that matmul/tiles.h multiplies.
#include "matmul/tiles.h"

#ifdef NORCH_TILES
#include <immintrin.h>

#include <algorithm>
#include <type_traits>

#include "matmul/transpose.h"
#include "runtime/widen.h"

// Only called where `multiplies_blocks` says so.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16"))), apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512bf16")
#endif

namespace norch::matmul {
namespace {

/// Numbers that are packed as they are come in pairs of neighbours; what is converted, as two vectors of 16 steps.
template <class S>
constexpr bool IS_KEPT = std::is_same_v<S, uint16_t>;
template <class S>
constexpr int64_t PAIR_STEP = IS_KEPT<S> ? 1 : BLOCK_STEPS / 2;
template <class S>
constexpr int64_t first_of_pair(int64_t pair) {
    return IS_KEPT<S> ? 2 * pair : pair;
}

__m512i load_pairs(const uint16_t* line, int64_t steps) {
    return _mm512_maskz_loadu_epi16(steps >= 32 ? ~0u : (1u << steps) - 1, line);
}

__mmask16 first(int64_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : __mmask16((1u << n) - 1); }

__m512 load_some(const float* p, __mmask16 which) { return _mm512_maskz_loadu_ps(which, p); }
__m512 load_some(const half* p, __mmask16 which) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(which, p)); }

__m512i round_up_half(__m512 x) { return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)); }
__m512 high_half(__m512i x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000)))); }
__m512i pairs_of(__m512i x, __m512i y) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(x, 16), y);
}

/// What becomes NaN where a number has no two parts. By value, so that it stays in registers.
struct Check {
    __m512 x, y;
};

/// One vector of pairs out of two of numbers, in each part.
template <int PARTS>
NORCH_INLINE Check split(__m512 x, __m512 y, Check check, uint32_t* out) {
    if constexpr (PARTS == 1) {
        const __m512i interleaved = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                                     6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        _mm512_store_si512(out, _mm512_permutexvar_epi16(interleaved, bit_cast<__m512i>(_mm512_cvtne2ps_pbh(y, x))));
    } else {
        const __m512i near_x = round_up_half(x), near_y = round_up_half(y);
        _mm512_store_si512(out, pairs_of(near_x, near_y));
        const __m512 rest_x = _mm512_sub_ps(x, high_half(near_x)), rest_y = _mm512_sub_ps(y, high_half(near_y));
        _mm512_store_si512(out + BLOCK, pairs_of(round_up_half(rest_x), round_up_half(rest_y)));
        check.x = _mm512_fmadd_ps(rest_x, _mm512_setzero_ps(), check.x);
        check.y = _mm512_fmadd_ps(rest_y, _mm512_setzero_ps(), check.y);
    }
    return check;
}

/// The pairs of 16 lines that lie next to each other at p and at q.
template <class S, int PARTS>
NORCH_INLINE Check pack_pairs(const S* p, __mmask16 in_p, const S* q, __mmask16 in_q, Check check, uint32_t* out) {
    if constexpr (IS_KEPT<S>) {
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in_p, p));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in_q, q));
        _mm512_store_si512(out, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        return check;
    } else {
        return split<PARTS>(load_some(p, in_p), load_some(q, in_q), check, out);
    }
}

/// One block, whose pairs lie by line where its lines' steps lie together, else by pair. What lies `ahead` elements further
/// is fetched: no processor foresees so many streams.
template <class S, int PARTS>
Check pack_block(const S* x, int64_t line, int64_t step, int64_t lines, int64_t steps, int64_t ahead, Check check,
                 uint32_t* out) {
    if (step == 1) {
        for (int64_t i = 0; i < BLOCK_LINES; ++i, x += line, out += 16) {
            __builtin_prefetch(x + ahead);
            if constexpr (!IS_KEPT<S>) __builtin_prefetch(x + ahead + 16);
            const int64_t here = i < lines ? steps : 0;
            if constexpr (IS_KEPT<S>)
                _mm512_store_si512(out, here ? load_pairs(x, here) : _mm512_setzero_si512());
            else
                check = split<PARTS>(load_some(x, first(here)), load_some(x + 16, first(here - 16)), check, out);
        }
        return check;
    }
    const __mmask16 which = first(lines);
    for (int64_t pair = 0; pair < 16; ++pair, out += 16) {
        const int64_t one = first_of_pair<S>(pair), two = one + PAIR_STEP<S>;
        const S *p = x + one * step, *q = x + two * step;
        __builtin_prefetch(p + ahead);
        __builtin_prefetch(q + ahead);
        check = pack_pairs<S, PARTS>(p, one < steps ? which : 0, q, two < steps ? which : 0, check, out);
    }
    return check;
}

template <class S, int PARTS>
bool pack_places(const S* x, const int64_t* places, int64_t lines, uint32_t* out) {
    const __mmask16 which = first(lines);
    Check check{_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t pair = 0; pair < 16; ++pair, out += 16) {
        const int64_t one = places[first_of_pair<S>(pair)], two = places[first_of_pair<S>(pair) + PAIR_STEP<S>];
        const bool has_one = one != NOWHERE, has_two = two != NOWHERE;
        check = pack_pairs<S, PARTS>(has_one ? x + one : x, has_one ? which : 0, has_two ? x + two : x, has_two ? which : 0, check, out);
    }
    return !_mm512_cmp_ps_mask(check.x, check.y, _CMP_UNORD_Q);
}

template <class S, int PARTS>
bool pack(const S* x, int64_t line, int64_t step, int64_t lines, int64_t steps, PairOrder order, uint32_t* out,
          int64_t out_line) {
    Check check{_mm512_setzero_ps(), _mm512_setzero_ps()};
    const bool is_loose = step != 1 && line != 1;
    const bool turn = !is_loose && (order == PairOrder::by_line) != (step == 1);
    const int64_t ahead = step != 1    ? (lines < 2048 ? BLOCK_STEPS * step : 4 * BLOCK_LINES)
                          : steps < 1024 ? BLOCK_LINES * line
                                         : 8 * BLOCK_STEPS;
    alignas(64) uint32_t turned[2 * BLOCK];
    alignas(64) S gathered[BLOCK_LINES * BLOCK_STEPS];
    const auto block = [&](int64_t i, int64_t p) {
        const int64_t height = std::min(BLOCK_LINES, lines - i), width = std::min(BLOCK_STEPS, steps - p);
        const S* from = x + i * line + p * step;
        uint32_t* to = out + i / BLOCK_LINES * out_line + p / BLOCK_STEPS * PARTS * BLOCK;
        if (is_loose) {
            const int64_t from_line = order == PairOrder::by_line ? BLOCK_STEPS : 1;
            const int64_t from_step = order == PairOrder::by_line ? 1 : BLOCK_LINES;
            for (int64_t q = 0; q < width; ++q)
                for (int64_t j = 0; j < height; ++j) gathered[j * from_line + q * from_step] = from[j * line + q * step];
            check = pack_block<S, PARTS>(gathered, from_line, from_step, height, width, 0, check, to);
            return;
        }
        check = pack_block<S, PARTS>(from, line, step, height, width, ahead, check, turn ? turned : to);
        if (!turn) return;
        for (int part = 0; part < PARTS; ++part)
            transpose(reinterpret_cast<const float*>(turned) + part * BLOCK, 16, 16, 16,
                      reinterpret_cast<float*>(to) + part * BLOCK, 16);
    };
    // Along what lies together in memory.
    if (step == 1) {
        for (int64_t i = 0; i < lines; i += BLOCK_LINES)
            for (int64_t p = 0; p < steps; p += BLOCK_STEPS) block(i, p);
    } else {
        for (int64_t p = 0; p < steps; p += BLOCK_STEPS)
            for (int64_t i = 0; i < lines; i += BLOCK_LINES) block(i, p);
    }
    return !_mm512_cmp_ps_mask(check.x, check.y, _CMP_UNORD_Q);
}

/// f(x as it is packed, a constant of the number of parts).
template <class S, class F>
bool with_parts(const S* x, Parts parts, const F& f) {
    constexpr std::integral_constant<int, 1> one;
    if constexpr (std::is_same_v<S, bfloat16>) {
        return f(&x->bits, one);
    } else {
        if (parts == Parts::two) return f(x, std::integral_constant<int, 2>());
        if constexpr (std::is_same_v<S, half>) return f(&x->bits, one);
        else return f(x, one);
    }
}

}  // namespace

template <class S>
bool pack_blocks(const S* x, int64_t line, int64_t step, int64_t lines, int64_t steps, Parts parts, PairOrder order,
                 uint32_t* out, int64_t out_line) {
    return with_parts(x, parts, [=]<class P, class N>(const P* p, N) {
        return pack<P, N::value>(p, line, step, lines, steps, order, out, out_line);
    });
}

template <class S>
bool pack_scattered(const S* x, const int64_t* places, int64_t lines, Parts parts, uint32_t* out) {
    return with_parts(x, parts, [=]<class P, class N>(const P* p, N) { return pack_places<P, N::value>(p, places, lines, out); });
}

}  // namespace norch::matmul

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else  // no such instructions

namespace norch::matmul {

template <class S>
bool pack_blocks(const S*, int64_t, int64_t, int64_t, int64_t, Parts, PairOrder, uint32_t*, int64_t) {
    return false;
}
template <class S>
bool pack_scattered(const S*, const int64_t*, int64_t, Parts, uint32_t*) {
    return false;
}

}  // namespace norch::matmul
#endif

namespace norch::matmul {

#define NORCH_PACKED(S)                                                                                                \
    template bool pack_blocks(const S*, int64_t, int64_t, int64_t, int64_t, Parts, PairOrder, uint32_t*, int64_t);      \
    template bool pack_scattered(const S*, const int64_t*, int64_t, Parts, uint32_t*);
NORCH_PACKED(float)
NORCH_PACKED(half)
NORCH_PACKED(bfloat16)

#undef NORCH_PACKED

}  // namespace norch::matmul
