#include "matmul/tiles.h"

#ifdef NORCH_TILES
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/dtype.h"
#include "runtime/simd.h"

// From here on functions may use what `find_features` has found.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16,avx512bf16"))), apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512bf16")
#endif

namespace norch::matmul {
namespace {

struct Features {
    bool tiles = false, half_tiles = false, dots = false;
};

bool is_refused(const char* variable) {
    const char* given = std::getenv(variable);
    return given && !std::strcmp(given, "0");
}

Features find_features() {
    constexpr unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24, AVX512_BF16 = 1u << 5, AMX_FP16 = 1u << 21;
    constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    unsigned a, b, c, d, more;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !__get_cpuid_count(7, 1, &more, &a, &b, &c)) return {};
    if (!(more & AVX512_BF16)) return {};
    Features found{.dots = !is_refused("NORCH_CPU_DPBF16")};
    found.tiles = (d & AMX_BF16) && (d & AMX_TILE) && !is_refused("NORCH_CPU_TILES") &&
                  syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
    found.half_tiles = found.tiles && (more & AMX_FP16);
    return found;
}

const Features& features() {
    static const Features found = find_features();
    return found;
}

struct alignas(64) TileConfiguration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Constructors take no notice of the target above.
void configure() {
    static constexpr TileConfiguration configuration;
    _tile_loadconfig(&configuration);
}
void release() { _tile_release(); }

/// sums += a @ b in tile registers. The assembler may not know the instruction for float16, TDPFP16PS.
#define NORCH_MULTIPLY_TILES(sums, a, b)                                                                   \
    if constexpr (PARTS == Parts::half)                                                                      \
        asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1" : : "i"(((~b & 15) << 3) | 3), "i"(0xc0 | sums << 3 | a)); \
    else                                                                                                     \
        _tile_dpbf16ps(sums, a, b)

/// Tiles 0 to 3 have the sums, 4 and 5 what is read of a, 6 and 7 of b.
template <Parts PARTS, int ROWS, int COLUMNS>
void multiply_all() {
    NORCH_MULTIPLY_TILES(0, 4, 6);
    if constexpr (COLUMNS == 2) {
        NORCH_MULTIPLY_TILES(1, 4, 7);
    }
    if constexpr (ROWS == 2) {
        NORCH_MULTIPLY_TILES(2, 5, 6);
    }
    if constexpr (ROWS == 2 && COLUMNS == 2) {
        NORCH_MULTIPLY_TILES(3, 5, 7);
    }
}

template <int ROWS>
void load_a(const uint32_t* a, int64_t line, int64_t row_bytes) {
    _tile_stream_loadd(4, a, row_bytes);
    if constexpr (ROWS == 2) _tile_stream_loadd(5, a + line, row_bytes);
}

template <int COLUMNS>
void load_b(const uint32_t* b, int64_t line) {
    _tile_loadd(6, b, 64);
    if constexpr (COLUMNS == 2) _tile_loadd(7, b + line, 64);
}

template <Parts PARTS, int ROWS, int COLUMNS>
void multiply(const TileFactors& f, bool add, float* sums, int64_t row) {
    constexpr bool TWO = PARTS == Parts::two;
    constexpr int64_t STEP = (TWO ? 2 : 1) * BLOCK, RIGHT = 16;
    const int64_t row_bytes = row * 4, down = 16 * row;
    asm volatile("" : : : "memory");  // the loads below do not say what they read
    if (add) {
        _tile_loadd(0, sums, row_bytes);
        if constexpr (COLUMNS == 2) _tile_loadd(1, sums + RIGHT, row_bytes);
        if constexpr (ROWS == 2) _tile_loadd(2, sums + down, row_bytes);
        if constexpr (ROWS == 2 && COLUMNS == 2) _tile_loadd(3, sums + down + RIGHT, row_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const uint32_t* b = f.b;
    const bool lies = f.a_row != 0;
    const int64_t a_step = lies ? BLOCK_STEPS / 2 : STEP, a_bytes = lies ? f.a_row * 4 : 64;
    for (int64_t p = 0; p < f.steps; ++p, b += STEP) {
        const uint32_t* const a = f.a + (f.places ? f.places[p] : p * a_step);
        load_b<COLUMNS>(b, f.b_line);
        if constexpr (TWO) {
            load_a<ROWS>(a + BLOCK, f.a_line, a_bytes);
            multiply_all<PARTS, ROWS, COLUMNS>();
        }
        if (lies)  // the rows that come after these: no processor foresees so many streams
            for (int64_t i = ROWS * BLOCK_LINES; i < 2 * ROWS * BLOCK_LINES; ++i) __builtin_prefetch(a + i * f.a_row, 0, 2);
        load_a<ROWS>(a, f.a_line, a_bytes);
        multiply_all<PARTS, ROWS, COLUMNS>();
        if constexpr (TWO) {
            load_b<COLUMNS>(b + BLOCK, f.b_line);
            multiply_all<PARTS, ROWS, COLUMNS>();
        }
    }
    _tile_stored(0, sums, row_bytes);
    if constexpr (COLUMNS == 2) _tile_stored(1, sums + RIGHT, row_bytes);
    if constexpr (ROWS == 2) _tile_stored(2, sums + down, row_bytes);
    if constexpr (ROWS == 2 && COLUMNS == 2) _tile_stored(3, sums + down + RIGHT, row_bytes);
    asm volatile("" : : : "memory");
}

/// One or two vectors, of which some elements are written.
template <int COLUMNS>
NORCH_INLINE void store_rounded(const __m512* x, __mmask32 which, bfloat16* out) {
    if constexpr (COLUMNS == 2)
        _mm512_mask_storeu_epi16(out, which, bit_cast<__m512i>(_mm512_cvtne2ps_pbh(x[1], x[0])));
    else
        _mm256_mask_storeu_epi16(out, __mmask16(which), bit_cast<__m256i>(_mm512_cvtneps_pbh(x[0])));
}

/// ROWS x COLUMNS * 16 of the sums, a pair of k at a time: enough that additions need not wait for one another. They are
/// written to `sums`, or rounded to `out` if that is somewhere.
template <int ROWS, int COLUMNS>
void add_dots(const TileFactors& f, const uint32_t* rows, bool add, float* sums, int64_t row, const Rounded& out) {
    const int64_t a_row = f.a_row ? f.a_row : 16, a_step = f.a_row ? BLOCK_STEPS / 2 : BLOCK, b_line = f.b_line;
    const uint32_t* b = f.b;
    __m512 total[ROWS][COLUMNS] = {};
    int64_t p = 0;
    do {
        const uint32_t* a = rows + (f.places ? f.places[p] : p * a_step);
        if (f.a_row)  // the rows that come after these: no processor foresees so many streams
            for (int i = 0; i < ROWS; ++i) __builtin_prefetch(a + (ROWS + i) * a_row);
        int pair = p + 1 < f.steps ? 16 : f.last;
        do {
            __m512bh right[COLUMNS];
            NORCH_UNROLL
            for (int j = 0; j < COLUMNS; ++j) right[j] = bit_cast<__m512bh>(_mm512_load_si512(b + j * b_line));
            NORCH_UNROLL
            for (int i = 0; i < ROWS; ++i) {
                const __m512bh left = bit_cast<__m512bh>(_mm512_set1_epi32(int(a[i * a_row])));
                NORCH_UNROLL
                for (int j = 0; j < COLUMNS; ++j) total[i][j] = _mm512_dpbf16_ps(total[i][j], left, right[j]);
            }
            ++a, b += 16;
        } while (--pair);
    } while (++p < f.steps);
    if (add) {
        NORCH_UNROLL
        for (int i = 0; i < ROWS; ++i)
            NORCH_UNROLL
            for (int j = 0; j < COLUMNS; ++j) total[i][j] = _mm512_add_ps(total[i][j], _mm512_loadu_ps(sums + i * row + 16 * j));
    }
    if (out.data) {
        const auto which = __mmask32(out.columns >= 32 ? ~0u : (1u << out.columns) - 1);
        bfloat16* to = out.data;
        NORCH_UNROLL
        for (int i = 0; i < ROWS; ++i, to += out.row) store_rounded<COLUMNS>(total[i], i < out.rows ? which : 0, to);
        return;
    }
    NORCH_UNROLL
    for (int i = 0; i < ROWS; ++i)
        NORCH_UNROLL
        for (int j = 0; j < COLUMNS; ++j) _mm512_storeu_ps(sums + i * row + 16 * j, total[i][j]);
}

void multiply_by_dots(const TileFactors& f, bool add, float* sums, int64_t row, const Rounded& out) {
    const int64_t a_row = f.a_row ? f.a_row : 16, rows = std::min<int64_t>(16 * f.row_blocks, out.rows);
    for (int64_t i = 0; i < rows; i += f.column_blocks == 1 ? 16 : 8) {
        const uint32_t* a = f.a + i / 16 * f.a_line + i % 16 * a_row;
        const Rounded rest{out.data ? out.data + i * out.row : nullptr, out.row, out.rows - i, out.columns};
        if (f.column_blocks == 1) add_dots<16, 1>(f, a, add, sums + i * row, row, rest);
        else add_dots<8, 2>(f, a, add, sums + i * row, row, rest);
    }
}

}  // namespace

bool has_tiles() { return features().tiles; }
bool has_half_tiles() { return features().half_tiles; }
bool multiplies_blocks(Parts parts) { return features().tiles || (features().dots && parts == Parts::one); }
double block_rate(Parts parts) { return features().tiles ? 400.0 / double(2 * parts_of(parts) - 1) : 180.0; }

TileRegisters::TileRegisters() {
    if (has_tiles()) configure();
}
TileRegisters::~TileRegisters() {
    if (has_tiles()) release();
}

template <Parts PARTS>
void multiply_parts(const TileFactors& f, bool add, float* sums, int64_t row) {
    static constexpr void (*all[])(const TileFactors&, bool, float*, int64_t) = {
        multiply<PARTS, 1, 1>, multiply<PARTS, 1, 2>, multiply<PARTS, 2, 1>, multiply<PARTS, 2, 2>};
    all[2 * (f.row_blocks - 1) + f.column_blocks - 1](f, add, sums, row);
}

void multiply_blocks(const TileFactors& f, bool add, float* sums, int64_t row) {
    if (!has_tiles()) return multiply_by_dots(f, add, sums, row, {nullptr, 0, 2 * BLOCK_LINES, 0});
    switch (f.parts) {
        case Parts::one: return multiply_parts<Parts::one>(f, add, sums, row);
        case Parts::two: return multiply_parts<Parts::two>(f, add, sums, row);
        case Parts::half: return multiply_parts<Parts::half>(f, add, sums, row);
    }
}

bool rounds_products() { return features().dots && !features().tiles; }
void multiply_rounded(const TileFactors& f, bool add, float* sums, int64_t row, const Rounded& out) {
    multiply_by_dots(f, add, sums, row, out);
}

}  // namespace norch::matmul

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else  // neither

namespace norch::matmul {

bool has_tiles() { return false; }
bool has_half_tiles() { return false; }
bool multiplies_blocks(Parts) { return false; }
double block_rate(Parts) { return 1; }
TileRegisters::TileRegisters() {}
TileRegisters::~TileRegisters() {}
void multiply_blocks(const TileFactors&, bool, float*, int64_t) {}
bool rounds_products() { return false; }
void multiply_rounded(const TileFactors&, bool, float*, int64_t, const Rounded&) {}

}  // namespace norch::matmul
#endif
