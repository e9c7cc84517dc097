// distances and distances_grad: 1-norms and 2-norms of the differences of all rows of two batches, and the gradient of the
// first rows. Nothing of the size of all differences is made; they are summed up in float64.
#include <algorithm>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::matmul {
namespace {
namespace apart {

constexpr int SIDE = 64, DEPTH = 8, EACH = 4;  // of a block's tile of distances, elements of rows at a time, of a thread
constexpr int ROWS = 32, WARPS = THREADS / 32;

/// Strides in elements.
struct Rows {
    int64_t n, m;
    int k;
    int64_t first[3], second[3], grad[3], distance[3], out[3];
};

/// A number of `data` at (batch, row, column).
template <class T>
__device__ inline const T& at(const T* data, const int64_t (&stride)[3], int64_t batch, int64_t row, int64_t column) {
    return data[batch * stride[0] + row * stride[1] + column * stride[2]];
}

template <class T, bool SQUARES>
__global__ void __launch_bounds__(THREADS)
    distances_kernel(const __grid_constant__ Rows r, T* out, const T* first, const T* second) {
    __shared__ T rows[2][DEPTH][SIDE + 1];
    const int64_t origin[2] = {int64_t(blockIdx.y) * SIDE, int64_t(blockIdx.x) * SIDE}, batch = blockIdx.z;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    double sum[EACH][EACH] = {};
    for (int k = 0; k < r.k; k += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
            const int row = i / DEPTH, l = i % DEPTH;
            const bool is_there = k + l < r.k;
            rows[0][l][row] = is_there && origin[0] + row < r.n ? at(first, r.first, batch, origin[0] + row, k + l) : T(0);
            rows[1][l][row] = is_there && origin[1] + row < r.m ? at(second, r.second, batch, origin[1] + row, k + l) : T(0);
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < DEPTH; ++l) {
            if (k + l >= r.k) break;
            double a[EACH], b[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) a[i] = double(rows[0][l][y + 16 * i]), b[i] = double(rows[1][l][x + 16 * i]);
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    const double by = a[i] - b[j];
                    sum[i][j] = SQUARES ? fma(by, by, sum[i][j]) : sum[i][j] + fabs(by);
                }
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int64_t row = origin[0] + y + 16 * i, column = origin[1] + x + 16 * j;
            if (row < r.n && column < r.m)
                out[batch * r.out[0] + row * r.out[1] + column * r.out[2]] = T(SQUARES ? sqrt(sum[i][j]) : sum[i][j]);
        }
}

/// A block has 32 first rows, of which each warp has every 8th element, COUNT of them; `is_across`: along the second rows the
/// gradient is contiguous.
template <class T, bool SQUARES, int COUNT>
__global__ void __launch_bounds__(THREADS)
    distances_grad_kernel(const __grid_constant__ Rows r, bool is_across, T* out, const T* grad, const T* first,
                          const T* second, const T* distance) {
    constexpr int WIDTH = WARPS * COUNT;
    __shared__ T factors[ROWS][ROWS + 1], others[ROWS][WIDTH];
    const int64_t origin = int64_t(blockIdx.x) * ROWS, batch = blockIdx.z;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = int(blockIdx.y) * WIDTH;
    const bool is_row = origin + lane < r.n;
    double own[COUNT], sum[COUNT] = {};
#pragma unroll
    for (int c = 0; c < COUNT; ++c) {
        const int l = begin + warp + WARPS * c;
        own[c] = is_row && l < r.k ? double(at(first, r.first, batch, origin + lane, l)) : 0;
    }
    for (int64_t j = 0; j < r.m; j += ROWS) {
#pragma unroll
        for (int step = 0; step < ROWS; step += WARPS) {
            const int row = is_across ? warp + step : lane, column = is_across ? lane : warp + step;
            T factor = 0;
            if (origin + row < r.n && j + column < r.m) {
                factor = at(grad, r.grad, batch, origin + row, j + column);
                if constexpr (SQUARES) {
                    const T by = at(distance, r.distance, batch, origin + row, j + column);
                    factor = by == T(0) ? T(0) : factor / by;
                }
            }
            factors[row][column] = factor;
        }
        for (int i = threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
            const int row = i / WIDTH, l = i % WIDTH;
            const bool is_there = j + row < r.m && begin + l < r.k;
            others[row][l] = is_there ? at(second, r.second, batch, j + row, begin + l) : T(0);
        }
        __syncthreads();
        const int count = int(min(int64_t(ROWS), r.m - j));
#pragma unroll 8
        for (int row = 0; row < count; ++row) {
            const double factor = double(factors[lane][row]);
#pragma unroll
            for (int c = 0; c < COUNT; ++c) {
                const double by = own[c] - double(others[row][warp + WARPS * c]);
                sum[c] += factor * (SQUARES ? by : by > 0 ? 1 : by < 0 ? -1 : by);  // 0 and NaN stay
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < COUNT; ++c) {
        const int l = begin + warp + WARPS * c;
        if (is_row && l < r.k) out[batch * r.out[0] + (origin + lane) * r.out[1] + l * r.out[2]] = T(sum[c]);
    }
}

void copy_strides(int64_t (&to)[3], const Operand& from) {
    for (int d = 0; d < 3; ++d) to[d] = from.strides[d];
}

/// What the kernels are told of some operands; false where they do not take them.
bool make_rows(const Request& request, const Operand& first, const Operand& second, Rows& r) {
    constexpr int64_t MOST_BLOCKS = 65535, MOST_COLUMNS = 1 << 20;
    const double p = request.attrs.number("p");
    const DType dtype = first.dtype;
    if ((p != 1 && p != 2) || (dtype != DType::f32 && dtype != DType::f64)) return false;
    for (const Operand& o : request.operands)
        if (o.dtype != dtype) return false;
    r.n = first.shape[1], r.m = second.shape[1], r.k = int(std::min(first.shape[2], MOST_COLUMNS));
    copy_strides(r.first, first);
    copy_strides(r.second, second);
    copy_strides(r.out, request.operands[0]);
    return first.shape[0] <= MOST_BLOCKS && r.n <= MOST_BLOCKS * SIDE && first.shape[2] < MOST_COLUMNS;
}

/// Calls f(number of the dtype, whether of squares).
template <class F>
KernelPtr visit(const Request& request, const F& f) {
    auto of = [&]<class T>(T number) {
        return request.attrs.number("p") == 2 ? f(number, std::true_type()) : f(number, std::false_type());
    };
    return request.operands[0].dtype == DType::f32 ? of(float()) : of(double());
}

KernelPtr forward(const Request& request) {
    Rows r = {};
    if (!make_rows(request, request.operands[1], request.operands[2], r)) return nullptr;
    const dim3 blocks(unsigned(ceil_div(r.m, SIDE)), unsigned(ceil_div(r.n, SIDE)), unsigned(request.operands[0].shape[0]));
    const bool is_empty = request.operands[0].numel() == 0;
    return visit(request, [=]<class T, bool SQUARES>(T, std::bool_constant<SQUARES>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            if (is_empty) return;
            launch_kernel("distances", distances_kernel<T, SQUARES>, blocks, dim3(THREADS), r, reinterpret_cast<T*>(data[0]),
                          reinterpret_cast<const T*>(data[1]), reinterpret_cast<const T*>(data[2]));
        });
    });
}

KernelPtr backward(const Request& request) {
    Rows r = {};
    if (!make_rows(request, request.operands[2], request.operands[3], r)) return nullptr;
    copy_strides(r.grad, request.operands[1]);
    copy_strides(r.distance, request.operands[4]);
    const bool is_empty = request.operands[0].numel() == 0, is_across = r.grad[2] == 1, is_short = r.k <= WARPS;
    const dim3 blocks(unsigned(ceil_div(r.n, ROWS)), unsigned(ceil_div(r.k, WARPS * (is_short ? 1 : 4))),
                      unsigned(request.operands[0].shape[0]));
    return visit(request, [=]<class T, bool SQUARES>(T, std::bool_constant<SQUARES>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            if (is_empty) return;
            const auto kernel = is_short ? distances_grad_kernel<T, SQUARES, 1> : distances_grad_kernel<T, SQUARES, 4>;
            launch_kernel("a gradient of distances", kernel, blocks, dim3(THREADS), r, is_across,
                          reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                          reinterpret_cast<const T*>(data[2]), reinterpret_cast<const T*>(data[3]),
                          reinterpret_cast<const T*>(data[4]));
        });
    });
}

}  // namespace apart
}  // namespace

void add_distances(Registry& registry) {
    registry["distances"] = apart::forward;
    registry["distances_grad"] = apart::backward;
}

}  // namespace norch::matmul
