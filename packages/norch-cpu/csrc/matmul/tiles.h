// Products of 16-bit floats, summed in float32, in the tile registers (AMX) that some processors have, or by dot products of
// pairs (AVX512-BF16). Factors are packed as blocks of 16 lines, rows of a or columns of b, by 32 steps of k.
#pragma once

#include <cstdint>

#include "common/dtype.h"

#if defined(__AVX512BW__) && defined(__linux__)
#define NORCH_TILES 1
#endif

namespace norch::matmul {

#ifdef NORCH_TILES
constexpr bool HAS_BLOCKS = true;  // this build
#else
constexpr bool HAS_BLOCKS = false;
#endif
constexpr int64_t BLOCK_LINES = 16, BLOCK_STEPS = 32;
constexpr int64_t BLOCK = 256;  // pairs of 16-bit numbers

/// What a block holds of each factor: one bfloat16, two bfloat16 numbers (blocks come in twos) that add up to it, or
/// one float16.
enum class Parts : uint8_t { one, two, half };
inline int64_t parts_of(Parts parts) { return parts == Parts::two ? 2 : 1; }

/// Whether this processor has tile registers and the system lets them be used. The first call asks the system, for all of
/// the process: the sooner the better. NORCH_CPU_TILES=0 says no.
bool has_tiles();
/// Whether they also multiply float16 numbers.
bool has_half_tiles();
/// Whether blocks of such parts are multiplied faster than float32: with tile registers all, with dot products of pairs
/// what has one bfloat16 for a number. NORCH_CPU_DPBF16=0 says no to the latter.
bool multiplies_blocks(Parts parts);
/// Multiplications and additions per nanosecond of one thread, about.
double block_rate(Parts parts);

/// In which order a block's pairs lie: for a, line after line; for b, all lines of a pair, then the next pair.
enum class PairOrder : uint8_t { by_line, by_pair };

/// Packs `lines` x `steps` elements, element (i, p) at x + i * line + p * step, with zeros up to whole blocks. 16 lines'
/// blocks lie step after step; the next 16 lines begin `out_line` pairs further. Returns false where numbers of which two
/// parts were to be made are out of bfloat16's range: they would give NaNs.
template <class S>
bool pack_blocks(const S* x, int64_t line, int64_t step, int64_t lines, int64_t steps, Parts parts, PairOrder order,
                 uint32_t* out, int64_t out_line);

/// One block by pair of 32 steps that lie anywhere: element (i, p) at x + places[p] + i, or zeros for `NOWHERE`.
constexpr int64_t NOWHERE = INT64_MIN;
template <class S>
bool pack_scattered(const S* x, const int64_t* places, int64_t lines, Parts parts, uint32_t* out);

/// The tile registers, where there are, set up for this thread.
class TileRegisters {
public:
    TileRegisters();
    ~TileRegisters();
    TileRegisters(const TileRegisters&) = delete;
    TileRegisters& operator=(const TileRegisters&) = delete;
};

/// What is multiplied: 16 or 32 rows (row_blocks 1 or 2) by as many columns. `a_line`, `b_line`: from 16 lines to the next.
/// Of two parts each, the product of the small ones is left out.
struct TileFactors {
    const uint32_t *a, *b;
    int64_t a_line, b_line;
    int64_t steps;  // blocks of 32
    Parts parts;
    int row_blocks, column_blocks;
    int64_t a_row = 0;  // pairs from a row to the next, where a is not packed but lies as a matrix
    const int64_t* places = nullptr;  // where each step's block of a lies, if they do not lie one after the other
    int last = BLOCK_STEPS / 2;       // pairs of the last step; what is behind them is zeros in both
};
/// sums[i][j] (+)= the product; its rows are `row` apart.
void multiply_blocks(const TileFactors& factors, bool add, float* sums, int64_t row);

/// Where sums are written rounded: `rows` x `columns` of them, `row` apart.
struct Rounded {
    bfloat16* data;
    int64_t row;
    int64_t rows, columns;
};
/// Whether `multiply_rounded` may be called: dot products are still in registers when they are rounded.
bool rounds_products();
/// The product, plus `sums` where `add`, to `out`.
void multiply_rounded(const TileFactors& factors, bool add, float* sums, int64_t row, const Rounded& out);

}  // namespace norch::matmul
