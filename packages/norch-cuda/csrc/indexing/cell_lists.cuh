// Lists of what lies in each of many cells, by sorting.
#pragma once

#include "indexing/sorting.h"
#include "runtime/allocator.h"
#include "runtime/device.cuh"

namespace norch::indexing {

/// Places by the cell in which each lies: those of cell c are from begin[c] to before end[c], in order.
class CellLists {
public:
    CellLists(int64_t places, int64_t cells)
        : places_(places), cells_(cells), stored_(ceil_div(places, 64) * 64), keys_(2 * stored_), order_(2 * stored_),
          edges_(2 * cells) {
        while ((int64_t(1) << bits_) < cells) ++bits_;
    }
    int64_t stored() const { return stored_; }
    /// To be filled with the cell of each place, and the places in order.
    uint32_t* cells() const { return keys_.data(); }
    uint32_t* places() const { return order_.data(); }
    /// Both sorted, unless they are; the edges are to be noted.
    KeyedPlaces sort(bool is_sorted = false) const {
        check(cudaMemsetAsync(edges_.data(), 0, size_t(2 * cells_) * sizeof(uint32_t), stream_handle()), "clearing lists");
        const KeyedPlaces given{keys_.data(), order_.data()};
        return is_sorted ? given : sort_places(given, stored_, places_, bits_);
    }
    uint32_t* begin() const { return edges_.data(); }
    uint32_t* end() const { return edges_.data() + cells_; }

private:
    int64_t places_, cells_, stored_;
    int bits_ = 0;
    Scratch<uint32_t> keys_, order_, edges_;
};

/// Notes where the list of the cell of sorted place i begins or ends.
__device__ inline void note_edges(const uint32_t* cells, uint32_t i, uint32_t count, uint32_t* begin, uint32_t* end) {
    const uint32_t cell = cells[i];
    if (i == 0 || cells[i - 1] != cell) begin[cell] = i;
    if (i + 1 == count || cells[i + 1] != cell) end[cell] = i + 1;
}

}  // namespace norch::indexing
