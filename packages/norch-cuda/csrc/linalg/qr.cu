// QR factors: those of small matrices in shared memory, a block for each, which no library has with Q; others by
// cuSOLVER, one by one.
#include "common/staging.h"
#include "linalg/linalg.h"
#include "linalg/solver.h"
#include "runtime/device.cuh"

namespace norch::linalg {
namespace {

constexpr size_t SHARED = 200 << 10;  // bytes that a matrix and its Q may take, where a block gets as many

template <class T>
__device__ T sum_of_warp(T x) {
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}
template <class T>
__device__ T largest_of_warp(T x) {
    for (int step = 16; step; step /= 2) x = max(x, __shfl_xor_sync(~0u, x, step));
    return x;
}

/// Column c of `x` (m rows) becomes H x for H = I - tau v v', v = (0, ..., 0, 1, v[j + 1], ...). A warp's work.
template <class T>
__device__ void reflect(T* x, const T* v, T tau, int j, int m) {
    const int lane = threadIdx.x % 32;
    T dot = 0;
    for (int i = j + 1 + lane; i < m; i += 32) dot += v[i] * x[i];
    dot = tau * (sum_of_warp(dot) + x[j]);
    __syncwarp();
    for (int i = j + 1 + lane; i < m; i += 32) x[i] -= dot * v[i];
    if (lane == 0) x[j] -= dot;
}

/// Householder's reflections as LAPACK's geqrf makes them (G. Golub and C. Van Loan, "Matrix Computations", 5.2). `out`
/// has q columns of Q, none for q = 0.
template <class T>
__global__ void factorise(const T* given, T* out, T* r, int m, int n, int q) {
    extern __shared__ double memory[];
    T *a = reinterpret_cast<T*>(memory), *columns = a + m * n, *tau = columns + m * q;  // a and Q lie by columns
    const int k = min(m, n), lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    given += int64_t(blockIdx.x) * m * n, r += int64_t(blockIdx.x) * k * n;
    for (int i = threadIdx.x; i < m * n; i += blockDim.x) a[i % n * m + i / n] = given[i];
    __syncthreads();
    for (int j = 0; j < k; ++j) {
        T* x = a + j * m;
        if (warp == 0) {
            T largest = 0;
            for (int i = j + 1 + lane; i < m; i += 32) largest = max(largest, abs(x[i]));
            largest = largest_of_warp(largest);
            const T alpha = x[j], scale = max(largest, abs(alpha));
            T squares = 0;
            for (int i = j + 1 + lane; i < m; i += 32) squares += x[i] / scale * (x[i] / scale);
            squares = sum_of_warp(squares);
            __syncwarp();
            if (largest == 0) {  // x is what it is to be
                if (lane == 0) tau[j] = 0;
            } else {
                const T beta = -copysign(scale * sqrt(squares + alpha / scale * (alpha / scale)), alpha);
                for (int i = j + 1 + lane; i < m; i += 32) x[i] /= alpha - beta;
                if (lane == 0) tau[j] = (beta - alpha) / beta, x[j] = beta;
            }
        }
        __syncthreads();
        for (int c = j + 1 + warp; c < n; c += warps) reflect(a + c * m, x, tau[j], j, m);
        __syncthreads();
    }
    for (int i = threadIdx.x; i < k * n; i += blockDim.x) r[i] = i % n >= i / n ? a[i % n * m + i / n] : T(0);
    if (q == 0) return;
    for (int i = threadIdx.x; i < m * q; i += blockDim.x) columns[i] = i / m == i % m;
    for (int j = k - 1; j >= 0; --j) {
        __syncthreads();
        for (int c = j + warp; c < q; c += warps) reflect(columns + c * m, a + j * m, tau[j], j, m);
    }
    __syncthreads();
    out += int64_t(blockIdx.x) * m * q;
    for (int i = threadIdx.x; i < m * q; i += blockDim.x) out[i] = columns[i % q * m + i / q];
}

template <class T>
void launch_small(const char* given, char* out, char* r, Matrices shape, int q, size_t shared) {
    static size_t most[64];
    const int device = launch_stream().device, m = int(shape.rows), n = int(shape.columns);
    if (device >= 64 || most[device] < shared) {
        check(cudaFuncSetAttribute(factorise<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)), "QR factors");
        if (device < 64) most[device] = shared;
    }
    const int columns = std::max(n, q);
    const unsigned threads = columns <= 8 ? 64 : columns <= 32 ? 128 : 512;
    launch_kernel("QR factors", factorise<T>, Grid{unsigned(shape.batch), threads, shared},
                  reinterpret_cast<const T*>(given), reinterpret_cast<T*>(out), reinterpret_cast<T*>(r), m, n, q);
}

/// Q is null where only R is wanted.
KernelPtr qr_kernel(const Operand* q, const Operand& r, const Operand& a, int input) {
    if (!suits(a) || !r.is_contiguous() || (q && !q->is_contiguous())) return nullptr;
    const Matrices shape = matrices_of(a);
    const int64_t m = shape.rows, n = shape.columns, k = std::min(m, n), of_q = q ? matrices_of(*q).columns : 0;
    const DType dtype = a.dtype;
    const int64_t size = size_of(dtype);
    const size_t shared = size_t(m * n + m * of_q + k) * size_t(size);
    const int64_t columns = std::max(n, of_q);
    const Operand stored = within(a, m * columns, 1, m), stored_r = within(r, m * columns, 1, m);
    KernelPtr copy_q = q ? copy_kernel(*q, within(*q, m * columns, 1, m)) : nullptr;
    return make_kernel(0, [=, plain = StagedOperand::contiguous_in(a, dtype), copy = copy_kernel(stored, a),
                           copy_r = copy_kernel(r, stored_r), copy_q = std::move(copy_q)](char* const* data, const Scalar*) {
        char *const to_q = of_q ? data[0] : nullptr, *const to_r = data[input - 1];
        if (shared <= std::min(SHARED, properties(launch_stream().device).shared_bytes)) {
            const Seen seen(plain, data[input]);
            if (dtype == DType::f64) launch_small<double>(seen.data(), to_q, to_r, shape, int(of_q), shared);
            else launch_small<float>(seen.data(), to_q, to_r, shape, int(of_q), shared);
            return;
        }
        const Functions& f = functions();
        const int type = type_of(dtype);
        const int64_t step = m * columns * size;
        const Scratch<> matrices(size_t(shape.batch * step)), tau(size_t(shape.batch * k * size));
        const Scratch<int32_t> info(1);
        run_copy(*copy, matrices.data(), data[input]);
        size_t device = 0, host = 0;
        check_status(f.geqrf_size(solver(), solver_params(), m, n, type, matrices.data(), m, type, tau.data(), type,
                                  &device, &host), "to factorise a matrix");
        {
            Workspace work(device, host);
            for (int64_t i = 0; i < shape.batch; ++i)
                check_status(f.geqrf(solver(), solver_params(), m, n, type, matrices.data() + i * step, m, type,
                                     tau.data() + i * k * size, type, work.device(), device, work.host(), host,
                                     info.data()), "to factorise a matrix");
        }
        run_copy(*copy_r, to_r, matrices.data());
        keep_triangle(dtype, true, {shape.batch, k, n}, to_r);
        if (!of_q) return;
        int elements = 0;
        check_status(f.of(dtype).orgqr_size(solver(), int(m), int(of_q), int(k), matrices.data(), int(m), tau.data(),
                                            &elements), "to make an orthonormal matrix");
        const Workspace work(size_t(elements * size));
        for (int64_t i = 0; i < shape.batch; ++i)
            check_status(f.of(dtype).orgqr(solver(), int(m), int(of_q), int(k), matrices.data() + i * step, int(m),
                                           tau.data() + i * k * size, work.device(), elements, info.data()),
                         "to make an orthonormal matrix");
        run_copy(*copy_q, to_q, matrices.data());
    });
}

KernelPtr qr(const Request& request) {
    return qr_kernel(&request.operands[0], request.operands[1], request.operands[2], 2);
}
KernelPtr qr_r(const Request& request) { return qr_kernel(nullptr, request.operands[0], request.operands[1], 1); }

}  // namespace

void add_qr(Registry& registry) {
    registry["linalg_qr"] = qr;
    registry["linalg_qr_r"] = qr_r;
}

}  // namespace norch::linalg
