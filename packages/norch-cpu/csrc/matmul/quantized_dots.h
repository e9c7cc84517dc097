// Dot products of vectors rounded to 8 bits with rows of few bits. What includes it chooses by NORCH_VNNI which
// instructions they are made of, and by NORCH_DOTS the namespace that they are in.

#include <algorithm>
#include <cstring>

#include "common/dtype.h"
#include "matmul/quantized.h"
#include "runtime/simd.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace norch::matmul::NORCH_DOTS {
namespace {

NORCH_INLINE float scale_of(const char* block) {
    uint16_t bits;
    std::memcpy(&bits, block, sizeof bits);
#if defined(__F16C__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#else
    return to_float(half{bits});
#endif
}

/// The scales of C blocks that are `row` bytes apart.
template <int C>
NORCH_INLINE void load_scales(const char* w, int64_t row, float* scales) {
#if defined(__F16C__)
    if constexpr (C == 4) {
        const auto bits = [=](int c) NORCH_INLINE_LAMBDA {
            uint16_t of;
            std::memcpy(&of, w + c * row, sizeof of);
            return of;
        };
        __m128i four = _mm_cvtsi32_si128(bits(0));
        four = _mm_insert_epi16(four, bits(1), 1);
        four = _mm_insert_epi16(four, bits(2), 2);
        four = _mm_insert_epi16(four, bits(3), 3);
        _mm_store_ps(scales, _mm_cvtph_ps(four));
        return;
    }
#endif
    for (int c = 0; c < C; ++c) scales[c] = scale_of(w + c * row);
}

#if defined(__AVX2__)
typedef __m256 Sum;

template <Format F>
NORCH_INLINE __m256i load_numbers(const char* p) {
    if constexpr (F != Format::q4_0) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i pairs = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_and_si256(_mm256_srlv_epi64(pairs, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

/// The sums of four products each, of w's magnitude and x with its sign; of q4_0, 8 too much in each w.
template <Format F>
NORCH_INLINE __m256 multiply(__m256i w, __m256i x) {
    if constexpr (F != Format::q4_0) {
        x = _mm256_sign_epi8(x, w);
        w = _mm256_abs_epi8(w);
    }
#if defined(NORCH_VNNI)
    return _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x));
#else
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
#endif
}

NORCH_INLINE void add_product(Sum& sum, float factor, __m256 product) {
    sum = _mm256_fmadd_ps(_mm256_set1_ps(factor), product, sum);
}

NORCH_INLINE float total(Sum sum) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

NORCH_INLINE __m256i load_rounded(const int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
constexpr bool IS_UNSIGNED = true;  // the numbers of q4_0 are multiplied before 8 is subtracted
#else
typedef float Sum;
struct Numbers {
    int8_t at[BLOCK_NUMBERS];
};

template <Format F>
NORCH_INLINE Numbers load_numbers(const char* p) {
    Numbers out;
    if constexpr (F == Format::q4_0) {
        for (int i = 0; i < 16; ++i) out.at[i] = int8_t((uint8_t(p[i]) & 15) - 8), out.at[i + 16] = int8_t((uint8_t(p[i]) >> 4) - 8);
    } else {
        std::memcpy(out.at, p, sizeof out.at);
    }
    return out;
}

template <Format F>
NORCH_INLINE float multiply(const Numbers& w, const int8_t* x) {
    int sum = 0;
    for (int i = 0; i < BLOCK_NUMBERS; ++i) sum += int(w.at[i]) * int(x[i]);
    return float(sum);
}

NORCH_INLINE void add_product(Sum& sum, float factor, float product) { sum += factor * product; }
NORCH_INLINE float total(Sum sum) { return sum; }
NORCH_INLINE const int8_t* load_rounded(const int8_t* p) { return p; }
constexpr bool IS_UNSIGNED = false;
#endif

template <Format F, int R, int C>
struct Tile {
    Sum sums[R][C] = {};
    float below[R][C] = {};  // by how much the sums are too large

    /// Adds the products of block b. The rows of w are `row` bytes apart; for several vectors, what lies `ahead`
    /// bytes further is fetched.
    NORCH_INLINE void add(const RoundedRows& x, int64_t b, const char* w, int64_t row, [[maybe_unused]] int64_t ahead) {
        alignas(16) float scales[C], factors[R][C];
        if constexpr (F != Format::int8) load_scales<C>(w, row, scales);
        NORCH_UNROLL
        for (int r = 0; r < R; ++r) {
            const float factor = x.factors[r * x.blocks + b];
            for (int c = 0; c < C; ++c) factors[r][c] = F == Format::int8 ? factor : factor * scales[c];
            if constexpr (F == Format::q4_0 && IS_UNSIGNED)
                for (int c = 0; c < C; ++c) below[r][c] += scales[c] * x.sums[r * x.blocks + b];
        }
        NORCH_UNROLL
        for (int c = 0; c < C; ++c) {
            const char* block = w + c * row;
            if constexpr (R > 1) __builtin_prefetch(block + ahead);
            const auto numbers = load_numbers<F>(block + numbers_at(F));
            NORCH_UNROLL
            for (int r = 0; r < R; ++r) {
                const auto product = multiply<F>(numbers, load_rounded(x.numbers + (r * x.blocks + b) * BLOCK_NUMBERS));
                add_product(sums[r][c], factors[r][c], product);
            }
        }
    }

    NORCH_INLINE void store(float* out, int64_t out_row, int64_t out_column) const {
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < C; ++c) out[r * out_row + c * out_column] = total(sums[r][c]) - 8 * below[r][c];
    }
};

/// R vectors with C rows of the weight: `first` and those that are `apart` rows further each.
template <Format F, int R, int C>
Tile<F, R, C> dot_tile(const RoundedRows& x, const StoredRows& w, int64_t first, int64_t apart) {
    Tile<F, R, C> tile;
    const char* rows = w.data + first * w.row;
    const int64_t row = apart * w.row, whole = w.features / BLOCK_NUMBERS;
    [[maybe_unused]] const int64_t rest = w.features % BLOCK_NUMBERS;
    for (int64_t b = 0; b < whole; ++b) tile.add(x, b, rows + b * block_bytes(F), row, C * w.row);
    if constexpr (F == Format::int8)
        if (rest) {
            char last[C * BLOCK_NUMBERS] = {};
            for (int c = 0; c < C; ++c)
                std::memcpy(last + c * BLOCK_NUMBERS, rows + c * row + whole * BLOCK_NUMBERS, size_t(rest));
            tile.add(x, whole, last, BLOCK_NUMBERS, 0);
        }
    return tile;
}

/// R vectors with all rows of the weight.
template <Format F, int R>
void dot_all(const RoundedRows& x, const StoredRows& w, int64_t first, int64_t last, float* out, int64_t out_row) {
    constexpr int C = R > 2 ? 2 : 4;
    for (; first + C <= last; first += C) dot_tile<F, R, C>(x, w, first, 1).store(out + first, out_row, 1);
    for (; first < last; ++first) dot_tile<F, R, 1>(x, w, first, 1).store(out + first, out_row, 1);
}

template <Format F>
void dot_rows(const RoundedRows& x, const StoredRows& w, float* out, int64_t out_row) {
    constexpr int64_t AT_ONCE = 4;  // rows of the weight, which stay in the first cache for all vectors
    if (x.rows == 1) {  // as many streams of memory, as products of floats have
        const int64_t apart = w.columns / AT_ONCE;
        for (int64_t c = 0; c < apart; ++c) dot_tile<F, 1, AT_ONCE>(x, w, c, apart).store(out + c, out_row, apart);
        for (int64_t c = apart * AT_ONCE; c < w.columns; ++c) dot_tile<F, 1, 1>(x, w, c, 1).store(out + c, out_row, 1);
        return;
    }
    for (int64_t c = 0; c < w.columns; c += AT_ONCE) {
        const int64_t last = c + AT_ONCE < w.columns ? c + AT_ONCE : w.columns;
        RoundedRows some = x;
        for (int64_t r = 0; r < x.rows; r += 4) {
            const auto run = x.rows - r >= 4   ? dot_all<F, 4>
                             : x.rows - r == 3 ? dot_all<F, 3>
                             : x.rows - r == 2 ? dot_all<F, 2>
                                               : dot_all<F, 1>;
            some.numbers = x.numbers + r * x.blocks * BLOCK_NUMBERS;
            some.factors = x.factors + r * x.blocks, some.sums = x.sums + r * x.blocks;
            run(some, w, c, last, out + r * out_row, out_row);
        }
    }
}

DotRows chosen(Format format) {
    switch (format) {
        case Format::int8: return dot_rows<Format::int8>;
        case Format::q8_0: return dot_rows<Format::q8_0>;
        default: return dot_rows<Format::q4_0>;
    }
}

}  // namespace
}  // namespace norch::matmul::NORCH_DOTS
