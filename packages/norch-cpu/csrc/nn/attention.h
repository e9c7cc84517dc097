// What attention and its gradient share: a head's operands, and products of matrices that stay in the cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "common/layout.h"
#include "matmul/gemm_tile.h"
#include "matmul/tiles.h"
#include "runtime/tile.h"
#include "runtime/widen.h"

namespace norch::nn {

constexpr int64_t QUERIES = 64;  // queries whose scores are in the cache together
constexpr int L = SIMD_WIDTH<float>;

inline int64_t whole_vectors(int64_t n) { return (n + L - 1) / L * L; }

/// Rows of contiguous float32 elements, or with `column` those of a transposed matrix.
struct Matrix {
    float* data;
    int64_t row, column = 1;
};

/// Rows as an operand has them: contiguous elements of a floating dtype.
struct Rows {
    char* data;
    int64_t row;  // bytes
    DType dtype;

    Rows from(int64_t first) const { return {data + first * row, row, dtype}; }
    Plane plane() const { return {data, row, size_of(dtype)}; }
};

/// Parts of a head's memory, one after the other.
struct Room {
    float* next;
    float* take(int64_t count) {
        float* taken = next;
        next += whole_vectors(count);
        return taken;
    }
};

/// x as rows of whole vectors in float32: itself, or a copy at `room`, with zeros after the n elements.
Matrix in_vectors(const Rows& x, int64_t rows, int64_t n, float* room);

/// The n first elements of rows of float32, in the dtype of `out`.
inline void bring(const Rows& out, Matrix from, int64_t rows, int64_t n) {
    if (out.data == reinterpret_cast<char*>(from.data)) return;
    store_tile(out.plane(), {reinterpret_cast<char*>(from.data), from.row * 4, 4}, rows, n, size_of(out.dtype),
               conversion_of(out.dtype));
}

struct Range {
    int64_t begin, end;
};

/// What is multiplied: float32, or, by products of blocks alone, bfloat16. Both factors of a product are of one kind: blocks of the
/// two pair steps of k that lie 16 apart, or side by side.
struct Factor {
    Factor(Matrix x) : data(reinterpret_cast<char*>(x.data)), row(x.row), column(x.column), columns(x.row) {}
    Factor(const Rows& x, int64_t n) : data(x.data), row(x.row / 2), columns(n), is_half(true) {}
    Factor(bfloat16* data, int64_t row, int64_t column)
        : data(reinterpret_cast<char*>(data)), row(row), column(column), columns(row), is_half(true) {}
    Matrix matrix() const { return {reinterpret_cast<float*>(data), row, column}; }

    char* data;
    int64_t row, column = 1;  // elements
    int64_t columns;          // that there are
    bool is_half = false;
};

/// Pairs that 16 columns of b take as blocks (matmul/tiles.h), if that has so many rows; and b in that form.
int64_t block_line(int64_t rows);
void pack_columns(const Factor& b, int64_t rows, int64_t width, uint32_t* out);

/// c (+)= a @ b of numbers that are rounded to bfloat16, where products of blocks are faster; other columns of a than those that
/// steps(i, j) says must be 0 or without effect. `packed`: what pack_columns has made of b, or null.
void multiply_in_blocks(Matrix c, bool add, const Factor& a, const Factor& b, int64_t rows, int64_t width,
                        const std::function<Range(int64_t, int64_t)>& steps, const uint32_t* packed = nullptr);

/// c (+)= a @ b. For the rows from i to j, columns(i) is where c's begin (a whole number of vectors), and steps(i, j) what
/// of a's columns counts. `width` is that of c and b, in whole vectors.
template <class Columns, class Steps>
void multiply(Matrix c, bool add, const Factor& left, const Factor& right, int64_t rows, int64_t width, const Columns& columns,
              const Steps& steps, bool in_blocks = false) {
    if (matmul::HAS_BLOCKS && in_blocks) return multiply_in_blocks(c, add, left, right, rows, width, steps);
    const Matrix a = left.matrix(), b = right.matrix();
    using matmul::TILE_VECTORS;
    alignas(64) static constexpr float zeros[TILE_VECTORS * L] = {};
    const int64_t whole = width / (TILE_VECTORS * L) * (TILE_VECTORS * L);
    const auto tile = [&](int64_t i, matmul::TileKernel<float> kernel, int64_t count) {
        const Range p = steps(i, i + count);
        matmul::TileInput<float> in{a.data + i * a.row + p.begin * a.column, a.row, a.column, nullptr, b.row,
                                    p.end - p.begin, zeros, 0};
        for (int64_t j = columns(i), next; j < width; j = next) {
            const bool one = j >= whole || width - j < TILE_VECTORS * L;
            next = j + (one ? L : TILE_VECTORS * L);
            in.b = b.data + p.begin * b.row + j;
            float* out = c.data + i * c.row + j;
            if (add) in.start = out, in.start_row = c.row;
            (one ? matmul::tile_kernel<float, L, 1>(count) : kernel)(in, out, c.row);
        }
    };
    matmul::for_tiles(rows, matmul::tile_kernel<float, L, TILE_VECTORS>, tile);
}

/// What is added to the scores of a head: -inf where a query may not look.
struct Mask {
    char* data = nullptr;
    int64_t row = 0, column = 0;  // bytes; 0 where it repeats itself
    DType dtype = DType::boolean;

    /// For rows of queries and columns of keys, from (query, key) on, as float32.
    void load(int64_t query, int64_t key, int64_t queries, int64_t keys, float* out, int64_t out_row) const;
};

/// x + added, but -inf where that is -inf, whatever x.
inline float masked(float x, float added) { return added == -HUGE_VALF ? added : x + added; }

/// A call's sizes, and where a head's operands lie.
class Attention {
public:
    /// The operands' order: outputs, query, key, value, and the mask if there is one. Their batch dims broadcast.
    static std::optional<Attention> of(const Request& request, int query);

    int64_t heads() const { return loops.numel; }
    Rows rows(char* const* p, int operand) const { return {p[operand], row[size_t(operand)], dtype}; }
    Mask mask(char* const* p) const { return {p[loops.strides.size() - 1], mask_row, mask_column, mask_dtype}; }
    double head_ns() const {
        return double(queries * keys) * (double(size + values) / (5 * L) + 4.0 / L) * (is_causal ? 0.6 : 1);
    }

    int64_t queries, keys, size, values;
    bool is_causal, has_mask = false;
    bool in_blocks = false;  // its products
    float scale;
    DType dtype, mask_dtype = DType::boolean;
    Loops loops;               // over the heads
    std::vector<int64_t> row;  // each operand's stride, in bytes
    int64_t mask_row = 0, mask_column = 0;
};

/// Some queries, and the keys that they look at.
struct Seen {
    int64_t first, queries, keys;
    bool is_causal, in_blocks;

    static Seen from(const Attention& a, int64_t first) {
        const int64_t count = std::min(QUERIES, a.queries - first);
        return {first, count, a.is_causal ? std::min(a.keys, first + count) : a.keys, a.is_causal, a.in_blocks};
    }
    /// How many of the queries do not look at a key.
    int64_t hidden(int64_t key) const { return is_causal ? std::max<int64_t>(0, key - first) : 0; }
};

/// Of some queries, or gradients, as columns: `width` of them, 0 where there are none.
void turn(Matrix to, const Rows& x, int64_t queries, int64_t n, float scale, float* room);

/// out[key][query] = rows[key] . turned[query] for the keys of a range, where the query looks at the key. Its width is
/// that of `turned`; `packed` is what pack_columns has made of that, or null.
void scores(Matrix out, const Factor& rows, Matrix turned, const Seen& seen, Range keys, int64_t n, const uint32_t* packed = nullptr);

/// Adds the mask to scores that lie key by key. `room` is for twice the scores.
void add_mask(Matrix scores, const Mask& mask, const Seen& seen, Range keys, float* room);

/// Calls f(row, first, hidden) for each key of a range: from `first` on, whole vectors have a query that looks at it.
template <class F>
void for_keys(Matrix x, const Seen& seen, Range keys, const F& f) {
    for (int64_t j = keys.begin; j < keys.end; ++j) {
        const int64_t h = seen.hidden(j);
        f(x.data + (j - keys.begin) * x.row, h / L * L, h);
    }
}

KernelPtr attend(const Attention& attention);          // attention_forward.cpp
KernelPtr attend_few(const Attention& attention);      // attention_few.cpp
KernelPtr attention_grad(const Attention& attention, int results);  // attention_grad.cpp

}  // namespace norch::nn
