// Compiled once: what converts is in each module, and one row's sum is as fast as memory brings the rows.
#include "indexing/half_rows.h"

#include <algorithm>

#include "indexing/bounds.h"
#include "runtime/allocator.h"

namespace norch::indexing {
namespace {

int64_t row_of(const char* index, const HalfRows& p, int64_t i) {
    return wrapped(*reinterpret_cast<const int64_t*>(index + i * p.index_step), p.size);
}

/// The places of the index in the order of their rows, those of one row as they come.
void sort_places(const char* index, const HalfRows& p, uint64_t* places) {
    if (p.size > 2 * p.count && p.size >> 32 == 0) {  // a row and a place in one number
        for (int64_t i = 0; i < p.count; ++i) places[i] = uint64_t(row_of(index, p, i)) << 32 | uint64_t(i);
        std::sort(places, places + p.count);
        for (int64_t i = 0; i < p.count; ++i) places[i] &= 0xffffffff;
        return;
    }
    Scratch<int64_t> next(p.size + 1);
    std::fill_n(next.data(), p.size + 1, 0);
    for (int64_t i = 0; i < p.count; ++i) ++next[row_of(index, p, i) + 1];
    for (int64_t r = 0; r < p.size; ++r) next[r + 1] += next[r];
    for (int64_t i = 0; i < p.count; ++i) places[next[row_of(index, p, i)]++] = uint64_t(i);
}

}  // namespace

void add_half_rows(char* out, const char* index, const char* src, const HalfRows& p) {
    Scratch<uint64_t> places(p.count);
    Scratch<float> wide(2 * p.columns);
    float *const sums = wide.data(), *const addend = sums + p.columns;
    const Plane to{reinterpret_cast<char*>(sums), 0, 4}, added{reinterpret_cast<char*>(addend), 0, 4};
    sort_places(index, p, places.data());
    for (int64_t k = 0; k < p.count;) {
        const int64_t row = row_of(index, p, int64_t(places[k]));
        const Plane narrow{out + row * p.out_row, 0, p.out_column};
        load_tile(to, narrow, 1, p.columns, 2, p.convert);
        for (; k < p.count && row_of(index, p, int64_t(places[k])) == row; ++k) {
            const Plane from{const_cast<char*>(src) + int64_t(places[k]) * p.src_row, 0, p.src_column};
            load_tile(added, from, 1, p.columns, 2, p.convert);
            for (int64_t j = 0; j < p.columns; ++j) sums[j] += addend[j];
        }
        store_tile(narrow, to, 1, p.columns, 2, p.convert);
    }
}

}  // namespace norch::indexing
