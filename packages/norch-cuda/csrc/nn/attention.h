// What the parts of attention share on the host: a problem as the kernels get it, and the launches of each dtype.
#pragma once

#include "runtime/device.cuh"

namespace norch::nn {

/// Strides of the last two dims of an operand, in bytes.
struct Side {
    int64_t row, column;
};

/// Attention of N operands, in the order of the request, for all heads of a batch.
template <int N>
struct Attention {
    Layout<N> batch;
    FastDivide tiles;    // how many tiles of rows a head is cut into
    Side side[N];
    char* data[N];
    int32_t queries, keys, size, values;
    float scale;
    uint32_t packets;    // bit k: operand k can be accessed 16 bytes at once
    bool is_causal;

    uint32_t heads() const { return batch.numel; }
};

/// out, query, key, value, and for each query log(sum(exp(scores))) as a column of float32; no data where nobody asks
enum Forward { F_OUT, F_QUERY, F_KEY, F_VALUE, F_SUMS, FORWARD };
/// the gradients of query, key and value, that of out, query, key, value, and both results; no data where not given
enum Backward { B_FOR_QUERY, B_FOR_KEY, B_FOR_VALUE, B_GRAD, B_QUERY, B_KEY, B_VALUE, B_OUT, B_SUMS, BACKWARD };

/// Launch attention of float32 (attention_float.cu, attention_float_grad.cu) or of 16-bit floats (attention_half.cu,
/// attention_half_grad.cu).
void attend_float(const Attention<FORWARD>& a);
void attend_float_grad(const Attention<BACKWARD>& a);
void attend_half(const Attention<FORWARD>& a, DType dtype);
void attend_half_grad(const Attention<BACKWARD>& a, DType dtype);

/// Whether the kernels for compute capability 9.0 (attention_hopper.cu, attention_hopper_grad.cu) can do it.
bool suits_hopper(const Attention<FORWARD>& a);
bool suits_hopper(const Attention<BACKWARD>& a);
void attend_hopper(const Attention<FORWARD>& a, DType dtype);
void attend_hopper_grad(const Attention<BACKWARD>& a, DType dtype);

/// The most shared memory that a block of any of these asks for.
constexpr size_t ATTENTION_SHARED_BYTES = 4 * 64 * 132 * 4 + 64 * 68 * 4 + 64 * 16;

/// Launches a kernel with one block for each tile of `rows` of the `count` rows of each head.
template <auto KERNEL, int N, class... More>
void launch_tiles(const Attention<N>& a, int64_t count, int rows, int threads, size_t shared, More... more) {
    static bool is_prepared[64];
    const int device = launch_stream().device;
    if (device >= 64 || !is_prepared[device]) {
        check(cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)), "attention");
        if (device < 64) is_prepared[device] = true;
    }
    Attention<N> tiled = a;
    tiled.tiles = FastDivide(uint32_t(ceil_div(count, rows)));
    const Grid grid = {tiled.tiles.divisor * tiled.heads(), uint32_t(threads), shared};
    launch_kernel("attention", KERNEL, grid, tiled, more...);
}

}  // namespace norch::nn
