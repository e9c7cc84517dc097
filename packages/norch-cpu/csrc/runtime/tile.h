// Moves a two-dimensional piece of a strided operand into contiguous memory and back, 16-bit floats to float32 if asked.
#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace norch {

enum class Convert : uint8_t { none, half, bfloat16 };

/// One side of a move: element (i, j) lies at data + i * row + j * column, in bytes. Passed by reference: what is written to the
/// stack piece by piece and read as a whole waits until all writes before it are in the cache.
struct Plane {
    char* data;
    int64_t row, column;
};

/// How elements of a dtype become what they are computed in.
inline Convert conversion_of(DType dtype) {
    return dtype == DType::f16 ? Convert::half : dtype == DType::bf16 ? Convert::bfloat16 : Convert::none;
}

/// from -> to, `rows` x `columns` elements of `size` bytes (1, 2, 4, 8). streams: what is written need not stay in the
/// caches; `end_streams` of runtime/streams.h comes after.
void copy_tile(const Plane& to, const Plane& from, int64_t rows, int64_t columns, int64_t size, bool streams = false);

/// The same, but 16-bit floats become float32, or come of it with rounding, unless `convert` is none.
void load_tile(const Plane& to, const Plane& from, int64_t rows, int64_t columns, int64_t size, Convert convert);
void store_tile(const Plane& to, const Plane& from, int64_t rows, int64_t columns, int64_t size, Convert convert);

/// n numbers of a floating dtype, in another.
void convert_line(const char* from, DType given, int64_t n, char* to, DType wanted);

}  // namespace norch
