// Masks of bool for attention: a bit for each query and key, so that a lane gets those of a tile's row in one access.
#include <algorithm>

#include "nn/attention.h"

namespace norch::nn {
namespace {

constexpr int64_t BITS = 128;  // that a warp packs: 16 bytes

/// A row of BITS for each `columns` elements of the `rows` rows of each plane.
__global__ void __launch_bounds__(THREADS)
    pack_kernel(const __grid_constant__ Layout<1> planes, const char* mask, Side side, int32_t rows, int32_t columns,
                char* to, int64_t plane_bytes) {
    const int64_t across = (columns + BITS - 1) / BITS, lane = threadIdx.x % 32;
    const int64_t warp = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
    const int64_t row = warp / across % rows, plane = warp / across / rows, first = warp % across * BITS;
    if (plane >= planes.numel) return;
    int64_t offset[1];
    planes.offsets(uint32_t(plane), offset);
    const char* from = mask + offset[0] + row * side.row;
    uint32_t own = 0;
#pragma unroll
    for (int word = 0; word < BITS / 32; ++word) {
        const int64_t column = first + word * 32 + lane;
        const uint32_t bits = __ballot_sync(0xffffffff, column < columns && from[column * side.column]);
        if (lane == word) own = bits;
    }
    if (lane < BITS / 32)
        reinterpret_cast<uint32_t*>(to + plane * plane_bytes + (row * across * BITS + first) / 8)[lane] = own;
}

int64_t row_bytes(int64_t columns) { return ceil_div(columns, BITS) * BITS / 8; }

void pack(const MaskBits& bits, const char* mask, Side side, int64_t rows, int64_t columns, char* to) {
    const int64_t warps = int64_t(bits.planes.numel) * rows * ceil_div(columns, BITS);
    launch_kernel("attention", pack_kernel, unsigned(ceil_div(warps * 32, THREADS)), THREADS, bits.planes, mask, side,
                  int32_t(rows), int32_t(columns), to, bits.plane_bytes);
}

/// How many rows have bits of their own.
int64_t own_rows(int64_t stride, int64_t count) { return stride ? count : 1; }

}  // namespace

bool describe_bits(const Operand& mask, int64_t queries, int64_t keys, bool has_turned, MaskBits& bits, Operand& operand,
                   MaskLayout& layout) {
    const size_t dims = mask.shape.size() - 2;
    Operand planes{mask.dtype, {mask.shape.begin(), mask.shape.begin() + int64_t(dims)},
                   {mask.strides.begin(), mask.strides.begin() + int64_t(dims)}};
    for (size_t d = 0; d < dims; ++d)
        if (!planes.strides[d]) planes.shape[d] = 1;
    // In row-major order, whatever their strides.
    int64_t count = 1;
    Layout<1> found = {};
    for (size_t d = dims; d-- > 0;) {
        if (planes.shape[d] == 1) continue;
        if (found.ndim == MAX_DIMS) return false;
        found.size[found.ndim] = FastDivide(uint32_t(planes.shape[d]));
        found.stride[0][found.ndim++] = planes.strides[d];
        count *= planes.shape[d];
    }
    const Side side = {mask.strides[dims], mask.strides[dims + 1]};
    const int64_t plain = own_rows(side.row, queries) * row_bytes(keys);
    const int64_t turned = has_turned ? own_rows(side.column, keys) * row_bytes(queries) : 0;
    constexpr int64_t MOST = (int64_t(1) << 31) - 1;
    if (count > MOST || count * std::max(plain, turned) / 16 > MOST) return false;  // warps
    found.numel = uint32_t(count);
    const int64_t plane_bytes = std::max(plain, turned);
    bits = {found, side, int32_t(queries), int32_t(keys), plane_bytes, count * plane_bytes * (has_turned ? 2 : 1), has_turned};
    layout = {{side.row ? row_bytes(keys) : 0, 0}, {side.column ? row_bytes(queries) : 0, 0}, count * plane_bytes, true};
    operand = mask;
    for (size_t d = dims, step = size_t(plane_bytes); d-- > 0;) {
        if (planes.shape[d] == 1) continue;
        operand.strides[d] = int64_t(step);
        step *= size_t(planes.shape[d]);
    }
    return true;
}

void pack_bits(const MaskBits& bits, const char* mask, char* to) {
    pack(bits, mask, bits.side, own_rows(bits.side.row, bits.queries), bits.keys, to);
    if (!bits.has_turned) return;
    char* turned = to + int64_t(bits.planes.numel) * bits.plane_bytes;
    pack(bits, mask, {bits.side.column, bits.side.row}, own_rows(bits.side.column, bits.keys), bits.queries, turned);
}

}  // namespace norch::nn
