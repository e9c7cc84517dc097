// Matrix products without cuBLASLt: small ones, matrix times vector, integers, and what cuBLASLt has no algorithm for.
#include <algorithm>

#include "matmul/epilogue.cuh"
#include "matmul/own_product.h"

namespace norch::matmul {
namespace {

/// What the sums of T are kept in; unsigned for integers, whose overflow is defined. A product's low bits are those of
/// its factors' low bits.
template <class T>
using wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
using accumulator = std::conditional_t<std::is_integral_v<T>, wrapping<T>, computed<T>>;

template <class T>
__device__ accumulator<T> load(const char* data) {
    return accumulator<T>(upcast(*reinterpret_cast<const T*>(data)));
}

template <class T>
__device__ void finish(char* out, const char* bias, accumulator<T> sum, Activation activation) {
    if constexpr (std::is_integral_v<T>) {
        *reinterpret_cast<T*>(out) = T(sum);
    } else {
        if (bias) sum += load<T>(bias);
        *reinterpret_cast<T*>(out) = downcast<T>(activate(sum, activation));
    }
}

/// The sums of k products, one for each element of a layout of out, a, b and bias; steps in bytes.
struct Sums {
    Layout<4> layout;
    int64_t k, a_step, b_step;
    Activation activation;
};

/// A thread for each sum.
template <class T>
__global__ void __launch_bounds__(THREADS) thread_kernel(const __grid_constant__ Sums p, char* out, const char* a,
                                                         const char* b, const char* bias) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.layout.numel) return;
    int64_t at[4];
    p.layout.offsets(i, at);
    accumulator<T> sum = 0;
    const char *x = a + at[1], *y = b + at[2];
#pragma unroll 8
    for (int64_t k = 0; k < p.k; ++k, x += p.a_step, y += p.b_step) sum += load<T>(x) * load<T>(y);
    finish<T>(out + at[0], bias ? bias + at[3] : nullptr, sum, p.activation);
}

/// GROUP threads (a warp or a block) for each sum, VEC factors of it at once.
template <class T, int VEC, int GROUP>
__global__ void __launch_bounds__(THREADS) group_kernel(const __grid_constant__ Sums p, char* out, const char* a,
                                                        const char* b, const char* bias) {
    using A = accumulator<T>;
    const uint32_t i = blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    if (i >= p.layout.numel) return;  // whole warps only, and no block of one sum
    int64_t at[4];
    p.layout.offsets(i, at);
    const char *x = a + at[1], *y = b + at[2];
    const int lane = threadIdx.x % GROUP;
    A sums[VEC] = {};
    const int64_t end = p.k / VEC;
#pragma unroll 4
    for (int64_t k = lane; k < end; k += GROUP) {
        if constexpr (VEC == 1) {
            sums[0] += load<T>(x + k * p.a_step) * load<T>(y + k * p.b_step);
        } else {
            const auto left = reinterpret_cast<const Packet<T, VEC>*>(x)[k];
            const auto right = reinterpret_cast<const Packet<T, VEC>*>(y)[k];
#pragma unroll
            for (int j = 0; j < VEC; ++j) sums[j] += A(upcast(left.v[j])) * A(upcast(right.v[j]));
        }
    }
    A sum = sums[0];
#pragma unroll
    for (int j = 1; j < VEC; ++j) sum += sums[j];
    for (int64_t k = end * VEC + lane; k < p.k; k += GROUP)
        sum += load<T>(x + k * p.a_step) * load<T>(y + k * p.b_step);
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if constexpr (GROUP > 32) {
        __shared__ A parts[GROUP / 32];
        if (lane % 32 == 0) parts[lane / 32] = sum;
        __syncthreads();
        if (lane) return;
        sum = 0;
        for (int w = 0; w < GROUP / 32; ++w) sum += parts[w];
    }
    if (lane == 0) finish<T>(out + at[0], bias ? bias + at[3] : nullptr, sum, p.activation);
}

// --- Tiles ----------------------------------------------------------------------------------------------------------

constexpr int TILE = 64, DEPTH = 16, EACH = 4;  // a thread computes 4 * 4 elements of a tile

/// Products of matrices of any strides (bytes), for the batches of a layout.
struct Tiles {
    Layout<3> batch;
    int64_t m, n, k, down, across;  // down, across: tiles
    int64_t row[3], column[3], bias_step;
    Activation activation;
};

template <class T>
__global__ void __launch_bounds__(THREADS) tile_kernel(const __grid_constant__ Tiles p, char* out, const char* a,
                                                       const char* b, const char* bias) {
    using A = accumulator<T>;
    __shared__ A left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
    const int tx = threadIdx.x % (TILE / EACH), ty = threadIdx.x / (TILE / EACH);
    const int64_t tiles = p.down * p.across * p.batch.numel;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t rest = tile / p.across, first_column = tile % p.across * TILE, first_row = rest % p.down * TILE;
        int64_t at[3];
        p.batch.offsets(uint32_t(rest / p.down), at);
        A sums[EACH][EACH] = {};
        for (int64_t k = 0; k < p.k; k += DEPTH) {
            for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
                // Neighbouring threads read along the dim of the smaller stride.
                const bool is_row = p.column[1] <= p.row[1], is_column = p.column[2] <= p.row[2];
                const int ai = is_row ? e / DEPTH : e % TILE, ak = is_row ? e % DEPTH : e / TILE;
                const int bj = is_column ? e % TILE : e / DEPTH, bk = is_column ? e / TILE : e % DEPTH;
                const int64_t i = first_row + ai, j = first_column + bj;
                const char* x = a + at[1] + i * p.row[1] + (k + ak) * p.column[1];
                const char* y = b + at[2] + (k + bk) * p.row[2] + j * p.column[2];
                left[ak][ai] = i < p.m && k + ak < p.k ? load<T>(x) : A(0);
                right[bk][bj] = j < p.n && k + bk < p.k ? load<T>(y) : A(0);
            }
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) {
                A x[EACH], y[EACH];
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    x[e] = left[d][ty + e * (TILE / EACH)];
                    y[e] = right[d][tx + e * (TILE / EACH)];
                }
#pragma unroll
                for (int r = 0; r < EACH; ++r)
#pragma unroll
                    for (int c = 0; c < EACH; ++c) sums[r][c] += x[r] * y[c];
            }
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < EACH; ++r) {
#pragma unroll
            for (int c = 0; c < EACH; ++c) {
                const int64_t i = first_row + ty + r * (TILE / EACH), j = first_column + tx + c * (TILE / EACH);
                if (i < p.m && j < p.n)
                    finish<T>(out + at[0] + i * p.row[0] + j * p.column[0], bias ? bias + j * p.bias_step : nullptr,
                              sums[r][c], p.activation);
            }
        }
    }
}

// --- Kernels --------------------------------------------------------------------------------------------------------

constexpr int64_t SMALL_WORK = 1 << 18, SHORT = 64;

int64_t rows_of(const Operand& o) { return o.shape[size_t(o.ndim() - 2)]; }
int64_t columns_of(const Operand& o) { return o.shape[size_t(o.ndim() - 1)]; }

/// a or b as an operand of the output's shape, without the dim that is summed over.
Operand spread(Operand o, const Operand& out, int dim) {
    o.shape = out.shape;
    o.strides[size_t(dim)] = 0;
    return o;
}

int64_t bytes_between(const Operand& o, int dim) { return o.strides[size_t(dim)] * size_of(o.dtype); }

template <class T>
class SumKernel final : public Kernel {
public:
    SumKernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias, Activation activation) {
        const int last = out.ndim() - 1;
        Operand each = bias ? *bias : out;
        if (bias) {
            each.strides.assign(size_t(last), 0);
            each.strides.push_back(bias->strides[0]);
            each.shape = out.shape;
        }
        const int64_t k = columns_of(a), a_step = bytes_between(a, last), b_step = bytes_between(b, last - 1);
        for (const Piece<4>& piece : cut<4>(collapse({out, spread(a, out, last), spread(b, out, last - 1), each}))) {
            pieces_.push_back(piece);
            Sums sums = {piece.layout, k, a_step, b_step, activation};
            sums_.push_back(sums);
        }
        has_bias_ = bias != nullptr;
        constexpr int64_t size = sizeof(T);
        is_by_thread_ = k < 16 || (k <= SHORT && double(out.numel()) * double(k) <= SMALL_WORK);
        is_by_block_ = out.numel() < 1024 && k >= 2048;
        has_packets_ = a_step == size && b_step == size;
        for (const Piece<4>& piece : pieces_)
            for (int d = 0; d < piece.layout.ndim; ++d)
                for (int i = 1; i < 3; ++i) has_packets_ &= piece.layout.stride[i][d] % 16 == 0;
    }

    void run(char* const* data, const Scalar*) const override {
        for (size_t i = 0; i < pieces_.size(); ++i) {
            const auto& start = pieces_[i].start;
            launch(sums_[i], data[0] + start[0], data[1] + start[1], data[2] + start[2],
                   has_bias_ ? data[3] + start[3] : nullptr);
        }
    }

private:
    static constexpr const char* WHAT = "a small matrix product";

    void launch(const Sums& sums, char* out, const char* a, const char* b, const char* bias) const {
        const int64_t count = sums.layout.numel;
        if (is_by_thread_) {
            const int threads = count <= 64 * 1024 ? 64 : THREADS;  // small ones are spread over more multiprocessors
            const unsigned blocks = unsigned(ceil_div(count, threads));
            launch_kernel(WHAT, thread_kernel<T>, blocks, threads, sums, out, a, b, bias);
            return;
        }
        if constexpr (!std::is_integral_v<T>) {
            constexpr int VEC = PER_16_BYTES<T>;
            if (has_packets_ && is_aligned(a, 16) && is_aligned(b, 16)) {
                if (is_by_block_) return launch_groups<VEC, THREADS>(sums, out, a, b, bias);
                return launch_groups<VEC, 32>(sums, out, a, b, bias);
            }
            if (is_by_block_) return launch_groups<1, THREADS>(sums, out, a, b, bias);
        }
        launch_groups<1, 32>(sums, out, a, b, bias);
    }

    template <int VEC, int GROUP>
    void launch_groups(const Sums& sums, char* out, const char* a, const char* b, const char* bias) const {
        const int64_t blocks = ceil_div(sums.layout.numel, THREADS / GROUP);
        launch_kernel(WHAT, group_kernel<T, VEC, GROUP>, unsigned(blocks), THREADS, sums, out, a, b, bias);
    }

    std::vector<Piece<4>> pieces_;
    std::vector<Sums> sums_;
    bool has_bias_, is_by_thread_, is_by_block_, has_packets_;
};

template <class T>
class TileKernel final : public Kernel {
public:
    TileKernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias, Activation activation) {
        const int last = out.ndim() - 1;
        Tiles tiles = {};
        tiles.m = rows_of(out), tiles.n = columns_of(out), tiles.k = columns_of(a);
        tiles.down = ceil_div(tiles.m, TILE), tiles.across = ceil_div(tiles.n, TILE);
        const Operand* all[] = {&out, &a, &b};
        for (int i = 0; i < 3; ++i) {
            tiles.row[i] = bytes_between(*all[i], last - 1);
            tiles.column[i] = bytes_between(*all[i], last);
        }
        has_bias_ = bias != nullptr;
        if (bias) tiles.bias_step = bytes_between(*bias, 0);
        tiles.activation = activation;
        for (const Piece<3>& piece : cut<3>(collapse({out, a, b}, dims_but(last - 1)))) {
            tiles.batch = piece.layout;
            parts_.push_back({tiles, {piece.start[0], piece.start[1], piece.start[2]}});
        }
    }

    void run(char* const* data, const Scalar*) const override {
        for (const auto& [tiles, start] : parts_) {
            const int64_t blocks = std::min<int64_t>(tiles.down * tiles.across * tiles.batch.numel, 1 << 30);
            launch_kernel("a matrix product", tile_kernel<T>, unsigned(blocks), THREADS, tiles, data[0] + start[0],
                          data[1] + start[1], data[2] + start[2], has_bias_ ? data[3] : nullptr);
        }
    }

private:
    struct Part {
        Tiles tiles;
        int64_t start[3];
    };
    std::vector<Part> parts_;
    bool has_bias_;
};

/// A matrix times a vector that both lie along what is summed over.
bool is_matrix_vector(const Operand& out, const Operand& a, const Operand& b) {
    const int last = out.ndim() - 1;
    return (rows_of(out) == 1 || columns_of(out) == 1) && a.strides[size_t(last)] == 1 &&
           b.strides[size_t(last - 1)] == 1 && columns_of(a) < (1 << 20);
}

}  // namespace

bool is_small_product(const Operand& out, const Operand& a, const Operand& b) {
    const int64_t k = columns_of(a);
    return k == 0 || is_matrix_vector(out, a, b) || double(out.numel()) * double(k) <= SMALL_WORK;
}

KernelPtr own_product_kernel(const Operand& out, const Operand& a, const Operand& b, const Operand* bias,
                             const std::string& activation) {
    const Activation chosen = activation_named(activation);
    return visit_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if (is_small_product(out, a, b)) return std::make_unique<SumKernel<T>>(out, a, b, bias, chosen);
        return std::make_unique<TileKernel<T>>(out, a, b, bias, chosen);
    });
}

}  // namespace norch::matmul
