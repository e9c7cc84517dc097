// LU factors as such, and the order of rows that their pivots stand for.
#include "linalg/linalg.h"
#include "linalg/solver.h"
#include "runtime/device.cuh"

namespace norch::linalg {
namespace {

/// A block for each matrix, whose first thread exchanges.
__global__ void exchange_rows(const int32_t* pivots, int64_t* order, int count, int rows) {
    extern __shared__ int32_t at[];
    pivots += int64_t(blockIdx.x) * count, order += int64_t(blockIdx.x) * rows;
    for (int i = threadIdx.x; i < rows; i += blockDim.x) at[i] = i;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i < count; ++i) {
            const int other = pivots[i] - 1, moved = at[i];
            if (other < 0 || other >= rows) continue;
            at[i] = at[other], at[other] = moved;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < rows; i += blockDim.x) order[i] = at[i];
}

KernelPtr lu_factor(const Request& request) {
    const Operand &out = request.operands[0], &pivots = request.operands[1], &a = request.operands[3];
    if (!suits(a) || !pivots.is_contiguous()) return nullptr;
    const Operand columns = column_major(a);
    Operand long_pivots = pivots;
    long_pivots.dtype = DType::i64;
    return make_kernel(0, [dtype = a.dtype, shape = matrices_of(a), bytes = bytes_of(a), pivot_bytes = bytes_of(long_pivots),
                           copy = copy_kernel(columns, a), copy_out = copy_kernel(out, columns),
                           narrow = copy_kernel(pivots, long_pivots)](char* const* data, const Scalar*) {
        const Functions& f = functions();
        const Scratch<> matrices(bytes);
        const int64_t m = shape.rows, n = shape.columns, step = shape.numel() * size_of(dtype);
        int32_t* const info = info_of(data[2]);
        run_copy(*copy, matrices.data(), data[3]);
        if (shape.batch > 1 && m == n && n < LOOPED) {
            const Addresses addresses(matrices.data(), step, shape.batch);
            check_status(f.of(dtype).getrf_batched(blas(), int(n), addresses.data(), int(n), info_of(data[1]), info,
                                                   int(shape.batch)), "to factorise matrices");
        } else {
            const int type = type_of(dtype);
            const Scratch<> found(pivot_bytes);
            auto* const rows = reinterpret_cast<int64_t*>(found.data());
            size_t device = 0, host = 0;
            check_status(f.getrf_size(solver(), solver_params(), m, n, type, matrices.data(), m, type, &device, &host),
                         "to factorise a matrix");
            Workspace work(device, host);
            for (int64_t i = 0; i < shape.batch; ++i)
                check_status(f.getrf(solver(), solver_params(), m, n, type, matrices.data() + i * step, m,
                                     rows + i * std::min(m, n), type, work.device(), device, work.host(), host, info + i),
                             "to factorise a matrix");
            run_copy(*narrow, data[1], found.data());
        }
        run_copy(*copy_out, data[0], matrices.data());
    });
}

KernelPtr permutation(const Request& request) {
    const Operand &order = request.operands[0], &pivots = request.operands[1];
    const int64_t rows = order.shape.back(), count = pivots.shape.back();
    if (pivots.dtype != DType::i32 || !pivots.is_contiguous() || !order.is_contiguous() || rows > 10000) return nullptr;
    return make_kernel(0, [rows, count, batch = order.numel() / std::max<int64_t>(rows, 1)](char* const* data, const Scalar*) {
        if (!rows || !batch) return;
        launch_kernel("an order of rows", exchange_rows, Grid{unsigned(batch), 128, size_t(rows) * sizeof(int32_t)},
                      reinterpret_cast<const int32_t*>(data[1]), reinterpret_cast<int64_t*>(data[0]), int(count), int(rows));
    });
}

}  // namespace

void add_lu_factor(Registry& registry) {
    registry["linalg_lu_factor"] = lu_factor;
    registry["linalg_permutation"] = permutation;
}

}  // namespace norch::linalg
