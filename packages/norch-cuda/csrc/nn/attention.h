// What the parts of attention share on the host: a problem as the kernels get it, and the launches of each dtype.
#pragma once

#include "runtime/device.cuh"

namespace norch::nn {

/// Strides of the last two dims of an operand, in bytes.
struct Side {
    int64_t row, column;
};

/// How a mask lies: what is added to scores, in the dtype of the operands, or a bit for each key that a query may attend
/// to, in words of 32 whose rows begin at 16 bytes. Bytes to the next query and the next key; and where queries are
/// columns, where that begins and to the next key (of bits a copy, whose words are of queries) and the next query.
struct MaskLayout {
    Side side, turned;
    int64_t turned_start;
    bool is_bits;
};

/// Attention of N operands, in the order of the request, for all heads of a batch.
template <int N>
struct Attention {
    Layout<N> batch;
    FastDivide tiles;    // how many tiles of rows a head is cut into
    Side side[N];
    char* data[N];
    MaskLayout mask;     // of the last operand, where it has data
    int32_t queries, keys, size, values;
    float scale;
    uint32_t packets;    // bit k: operand k can be accessed 16 bytes at once
    bool is_causal;

    uint32_t heads() const { return batch.numel; }
};

/// out, query, key, value, for each query log(sum(exp(scores))) as a column of float32, and a mask; no data where nobody
/// asks, or gives one
enum Forward { F_OUT, F_QUERY, F_KEY, F_VALUE, F_SUMS, F_MASK, FORWARD };
/// the gradients of query, key and value, that of out, query, key, value, both results, and a mask; no data where not given
enum Backward { B_FOR_QUERY, B_FOR_KEY, B_FOR_VALUE, B_GRAD, B_QUERY, B_KEY, B_VALUE, B_OUT, B_SUMS, B_MASK, BACKWARD };

/// Launch attention (attention_forward.cu, attention_grad.cu).
void attend_by_tiles(const Attention<FORWARD>& a, DType dtype);
void attend_grad_by_tiles(const Attention<BACKWARD>& a, DType dtype);
/// The gradient of float32 in one kernel (attention_small_grad.cu), where a head fits one tile.
inline bool is_small(const Attention<BACKWARD>& a) { return a.queries <= 64 && a.keys <= 64; }
void attend_small_grad(const Attention<BACKWARD>& a);

/// The bits of a mask of bool, in the order of its planes (all batch dims but broadcast ones).
struct MaskBits {
    Layout<1> planes;
    Side side;  // of the mask
    int32_t queries, keys;
    int64_t plane_bytes, bytes;
    bool has_turned;  // a copy whose words are of queries
};
/// Describes them, and the operand and the layout that kernels get in place of `mask`, which is broadcast to (…, queries,
/// keys); false where it is too large.
bool describe_bits(const Operand& mask, int64_t queries, int64_t keys, bool has_turned, MaskBits& bits, Operand& operand,
                   MaskLayout& layout);
void pack_bits(const MaskBits& bits, const char* mask, char* to);

/// Whether the kernels for compute capability 9.0 (attention_hopper.cu, attention_hopper_grad.cu) can do it.
bool suits_hopper(const Attention<FORWARD>& a);
bool suits_hopper(const Attention<BACKWARD>& a);
void attend_hopper(const Attention<FORWARD>& a, DType dtype);
void attend_hopper_grad(const Attention<BACKWARD>& a, DType dtype);

/// The most shared memory that a block of any of these asks for.
constexpr size_t ATTENTION_SHARED_BYTES = 4 * 64 * 132 * 4 + 64 * 68 * 4 + 64 * 16;

/// Launches a kernel with `parts` blocks, told apart by blockIdx.y, for each tile of `rows` of the `count` rows of each
/// head.
template <auto KERNEL, int N, class... More>
void launch_parts(const Attention<N>& a, int64_t count, int rows, int parts, int threads, size_t shared, More... more) {
    static bool is_prepared[64];
    const int device = launch_stream().device;
    if (device >= 64 || !is_prepared[device]) {
        check(cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)), "attention");
        if (device < 64) is_prepared[device] = true;
    }
    Attention<N> tiled = a;
    tiled.tiles = FastDivide(uint32_t(ceil_div(count, rows)));
    const Grid grid = {dim3(tiled.tiles.divisor * tiled.heads(), uint32_t(parts)), uint32_t(threads), shared};
    launch_kernel("attention", KERNEL, grid, tiled, more...);
}
template <auto KERNEL, int N, class... More>
void launch_tiles(const Attention<N>& a, int64_t count, int rows, int threads, size_t shared, More... more) {
    launch_parts<KERNEL>(a, count, rows, 1, threads, shared, more...);
}

}  // namespace norch::nn
