// Products with weights of few bits: int8 with a scale a row, and GGUF's blocks of 32 numbers with a scale each.
#pragma once

#include <cstdint>

namespace norch::matmul {

enum class Format : uint8_t { int8, q8_0, q4_0 };

constexpr int64_t BLOCK_NUMBERS = 32;
constexpr int64_t block_bytes(Format format) { return format == Format::int8 ? 32 : format == Format::q8_0 ? 34 : 18; }
/// Where the numbers of a block begin: behind its scale, a float16.
constexpr int64_t numbers_at(Format format) { return format == Format::int8 ? 0 : 2; }

/// Vectors that were rounded to 8 bits, each 32 numbers with a factor of their own; zeros fill the last 32.
struct RoundedRows {
    const int8_t* numbers;  // rows lie `blocks` * 32 apart, those of the next two `blocks`
    const float *factors, *sums;  // sums: of 32 numbers, times the factor
    int64_t rows, blocks;
};

/// The rows of a weight as they lie in memory.
struct StoredRows {
    const char* data;
    int64_t row, columns, features;  // bytes from one to the next; how many there are, and numbers of each
};

/// out[r * out_row + c] = the dot product of vector r with row c of the weight; of int8, its scale left out.
using DotRows = void (*)(const RoundedRows& x, const StoredRows& w, float* out, int64_t out_row);

/// The fastest on this processor.
DotRows dot_rows_of(Format format);

#if defined(__AVX512BW__)
/// By instructions of AVX512-VNNI, which the processor must have.
DotRows vnni_dot_rows_of(Format format);
#endif

}  // namespace norch::matmul
