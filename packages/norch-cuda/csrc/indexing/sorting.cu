// sort: each element becomes a key, an unsigned integer in the wanted order, with its index. Short rows are sorted by a
// bitonic network in shared memory, where the index makes all entries different and the order stable; long ones by the
// radix sort of CUB, which is stable: rows that are sorted together have their number above the key.
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "indexing/sorting.h"
#include "indexing/sorting.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

constexpr int64_t SHORT = 2048;                      // elements of a row for shared memory
constexpr int64_t SHORT_OF_MANY = 4096;              // where there are rows for all multiprocessors, of at most 32 bits
constexpr int64_t TOGETHER = int64_t(1) << 27;       // elements of rows that are sorted together
constexpr int64_t MAX_ROW = int64_t(UINT32_MAX) - 1;    // elements of a row

using namespace sorting;

// --- Short rows -----------------------------------------------------------------------------------------------------

/// 2**log_rows rows of at most 2**log_width elements in each block.
template <class Entry>
__global__ void __launch_bounds__(THREADS) sort_short(const __grid_constant__ Rows r, int log_width, int log_rows,
                                                      char* values, char* indices, const char* x) {
    extern __shared__ __align__(16) char shared[];
    const int width = 1 << log_width, count = width << log_rows;
    const uint32_t first = blockIdx.x << log_rows;
    auto* entries = reinterpret_cast<Entry*>(shared);
    int64_t offset[3];
    for (int e = threadIdx.x; e < count; e += blockDim.x) {
        const int i = e & (width - 1);
        const uint32_t row = first + (e >> log_width);
        uint64_t key = ~uint64_t(0);
        if (i < r.n && row < r.layout.numel) {
            r.layout.offsets(row, offset);
            key = key_at(x + offset[2] + i * r.stride[2], r.dtype) ^ r.flip;
        }
        entries[slot(e)] = Entry(key, i < r.n ? uint32_t(i) : ~uint32_t(0));
    }
    sort_entries(entries, count, log_width);
    for (int e = threadIdx.x; e < count; e += blockDim.x) {
        const int i = e & (width - 1);
        const uint32_t row = first + (e >> log_width);
        if (i >= r.n || row >= r.layout.numel) continue;
        r.layout.offsets(row, offset);
        put(r, values + offset[0], indices + offset[1], x + offset[2], i, entries[slot(e)].index());
    }
}

template <class Entry>
void run_short(const Rows& r, char* values, char* indices, const char* x) {
    int log_width = 0, log_rows = 0;
    while ((int64_t(1) << log_width) < r.n) ++log_width;
    while (log_width + log_rows < 10 && int64_t(r.layout.numel >> log_rows) > 4 * multiprocessors()) ++log_rows;
    const int count = 1 << (log_width + log_rows), threads = std::min(THREADS, std::max(32, count / 8));
    const int64_t blocks = ceil_div(r.layout.numel, int64_t(1) << log_rows);
    const size_t bytes = size_t(count + count / 8) * sizeof(Entry);
    sort_short<Entry><<<unsigned(blocks), threads, bytes, stream_handle()>>>(r, log_width, log_rows, values, indices,
                                                                             x);
    check_launch("a sort of short rows");
}

// --- Long rows ------------------------------------------------------------------------------------------------------

/// Entry i of some rows: its key, below the row's number where `row_shift` is not 0, and its place in the row or, with
/// `is_flat`, in all of them.
template <class Key>
__global__ void __launch_bounds__(THREADS) make_keys(const __grid_constant__ Rows r, int64_t first_row, int64_t count,
                                                     int row_shift, bool is_flat, const char* x, Key* keys,
                                                     uint32_t* places) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t row = i / r.n, at = i - row * r.n;
    int64_t offset[3];
    r.layout.offsets(uint32_t(first_row + row), offset);
    Key key = Key(key_at(x + offset[2] + at * r.stride[2], r.dtype) ^ r.flip);
    if (row_shift) key |= Key(uint64_t(row) << row_shift);
    keys[i] = key;
    places[i] = uint32_t(is_flat ? i : at);
}

__global__ void __launch_bounds__(THREADS) make_row_keys(uint32_t n, int64_t count, const uint32_t* places,
                                                         uint32_t* keys) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) keys[i] = places[i] / n;
}

__global__ void __launch_bounds__(THREADS) put_sorted(const __grid_constant__ Rows r, int64_t first_row, int64_t count,
                                                      bool is_flat, const uint32_t* places, char* values, char* indices,
                                                      const char* x) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t row = i / r.n;
    int64_t offset[3];
    r.layout.offsets(uint32_t(first_row + row), offset);
    const int64_t from = int64_t(places[i]) - (is_flat ? row * r.n : 0);
    put(r, values + offset[0], indices + offset[1], x + offset[2], i - row * r.n, from);
}

/// Sorts by the lowest `bits` bits of the keys.
template <class Key>
void radix_sort(cub::DoubleBuffer<Key>& keys, cub::DoubleBuffer<uint32_t>& places, uint32_t count, int bits) {
    size_t bytes = 0;
    check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, places, count, 0, bits, stream_handle()), "a sort");
    Scratch<> scratch(bytes);
    check(cub::DeviceRadixSort::SortPairs(scratch.data(), bytes, keys, places, count, 0, bits, stream_handle()),
          "a sort");
}

/// Some rows as keys and places, twice over, as the radix sort wants them.
template <class Key>
void run_long(const Rows& r, int64_t first_row, int64_t rows, char* values, char* indices, const char* x) {
    const int64_t count = rows * r.n, stored = ceil_div(count, 64) * 64;
    const int bits = 8 * int(size_of(r.dtype));
    int row_bits = 0;
    while ((int64_t(1) << row_bits) < rows) ++row_bits;
    // 64-bit keys have no room for the row: a second sort, which keeps the order of the first, is by that.
    const bool is_flat = row_bits > 0 && bits == 64;
    const unsigned blocks = unsigned(ceil_div(count, THREADS));
    Scratch<Key> key_memory(2 * stored);
    Scratch<uint32_t> place_memory(2 * stored);
    cub::DoubleBuffer<Key> keys(key_memory.data(), key_memory.data() + stored);
    cub::DoubleBuffer<uint32_t> places(place_memory.data(), place_memory.data() + stored);
    const int row_shift = is_flat || !row_bits ? 0 : bits;
    make_keys<Key><<<blocks, THREADS, 0, stream_handle()>>>(r, first_row, count, row_shift, is_flat, x, keys.Current(),
                                                            places.Current());
    radix_sort(keys, places, uint32_t(count), is_flat ? bits : bits + row_bits);
    if (is_flat) {
        auto* row_keys = reinterpret_cast<uint32_t*>(key_memory.data());
        cub::DoubleBuffer<uint32_t> both(row_keys, row_keys + stored);
        make_row_keys<<<blocks, THREADS, 0, stream_handle()>>>(uint32_t(r.n), count, places.Current(), row_keys);
        radix_sort(both, places, uint32_t(count), row_bits);
    }
    launch_kernel("a sort", put_sorted, blocks, THREADS,
                  r, first_row, count, is_flat, places.Current(), values, indices, x);
}

class Sort final : public Kernel {
public:
    Sort(const std::vector<Operand>& operands, int dim, bool descending) {
        pieces_ = cut<3>(collapse(operands, dims_but(operands[0].ndim(), dim)));
        for (int k = 0; k < 3; ++k) rows_.stride[k] = operands[k].strides[dim] * size_of(operands[k].dtype);
        rows_.n = operands[0].shape[dim];
        rows_.dtype = operands[0].dtype;
        const int bits = 8 * int(size_of(rows_.dtype));
        rows_.flip = descending ? ~uint64_t(0) >> (64 - bits) : 0;
        if (rows_.n == 0) pieces_.clear();
        if (rows_.n > MAX_ROW) throw std::invalid_argument("sort of more than 2**32 - 2 elements in a row");
    }

    void run(char* const* data, const Scalar*) const override {
        for (const Piece<3>& piece : pieces_) {
            Rows r = rows_;
            r.layout = piece.layout;
            char *values = data[0] + piece.start[0], *indices = data[1] + piece.start[1];
            const char* x = data[2] + piece.start[2];
            const bool is_wide = size_of(r.dtype) == 8;
            const bool is_many = !is_wide && int64_t(r.layout.numel) >= multiprocessors();
            if (r.n <= (is_many ? SHORT_OF_MANY : SHORT)) {
                if (is_wide) run_short<Paired>(r, values, indices, x);
                else run_short<Packed>(r, values, indices, x);
                continue;
            }
            const int64_t together = std::max<int64_t>(1, TOGETHER / r.n);
            for (int64_t row = 0; row < r.layout.numel; row += together) {
                const int64_t rows = std::min(together, r.layout.numel - row);
                if (is_wide || rows > 1) run_long<uint64_t>(r, row, rows, values, indices, x);
                else run_long<uint32_t>(r, row, rows, values, indices, x);
            }
        }
    }

private:
    std::vector<Piece<3>> pieces_;
    Rows rows_ = {};
};

KernelPtr sort(const Request& request) {
    std::vector<Operand> operands = request.operands;
    if (operands[0].shape.empty())  // a 0-d operand has dim 0
        for (Operand& operand : operands) operand.shape = operand.strides = {1};
    const int64_t dim = request.attrs.integer("dim");
    if (dim < 0 || dim >= operands[0].ndim()) throw std::invalid_argument("sort along a dim that is not there");
    if (operands[1].dtype != DType::i64) throw std::invalid_argument("sort gives int64 indices");
    return std::make_unique<Sort>(operands, int(dim), request.attrs.flag("descending"));
}

}  // namespace

KeyedPlaces sort_places(KeyedPlaces given, int64_t stored, int64_t count, int bits) {
    cub::DoubleBuffer<uint32_t> keys(given.keys, given.keys + stored), places(given.places, given.places + stored);
    radix_sort(keys, places, uint32_t(count), bits);
    return {keys.Current(), places.Current()};
}

void add_sorting(Registry& registry) { registry["sort"] = sort; }

}  // namespace norch::indexing
