// Cholesky factors, and systems of equations with triangular matrices.
//
// Row-major matrices are handed over as they lie, as the columns of their transposes.
#include "common/staging.h"
#include "linalg/linalg.h"
#include "linalg/solver.h"
#include "runtime/device.cuh"

namespace norch::linalg {
namespace {

/// Of matrices of at most N rows, each by N threads of a warp, which have a row each.
template <class T, int N>
__global__ void __launch_bounds__(THREADS) small_cholesky(T* out, int32_t* info, const T* a, int n, int64_t batch) {
    const int64_t matrix = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / N;
    const int row = threadIdx.x % N;
    const bool is_row = row < n && matrix < batch;
    const int64_t start = (matrix * n + row) * n;
    T x[N];
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = is_row && k <= row ? a[start + k] : T(0);
    int failed = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        if (j == n) break;
        const T square = __shfl_sync(~0u, x[j], j, N), root = sqrt(square);
        if (!failed && !(square > T(0))) failed = j + 1;
        x[j] = row == j ? root : x[j] / root;  // above the diagonal nothing is of use
#pragma unroll
        for (int k = j + 1; k < N; ++k) x[k] -= x[j] * __shfl_sync(~0u, x[j], k, N);
    }
    if (!is_row) return;
#pragma unroll
    for (int k = 0; k < N; ++k)
        if (k < n) out[start + k] = k <= row ? x[k] : T(0);
    if (row == 0) info[matrix] = failed;
}

constexpr int64_t WARP_ROWS = 32;

template <int N>
void launch_small_cholesky(DType dtype, Matrices shape, char* const* data) {
    const auto blocks = unsigned(ceil_div(shape.batch * N, THREADS));
    auto launch = [&]<class T>(Tag<T>) {
        launch_kernel("small Cholesky factors", small_cholesky<T, N>, blocks, THREADS, reinterpret_cast<T*>(data[0]),
                      info_of(data[1]), reinterpret_cast<const T*>(data[2]), int(shape.rows), shape.batch);
    };
    if (dtype == DType::f64) launch(Tag<double>{});
    else launch(Tag<float>{});
}

constexpr int64_t TURNED = 128;  // rows from which lower triangles by columns are so much faster that copies pay

KernelPtr cholesky(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[2];
    if (!suits(a) || !out.is_contiguous()) return nullptr;
    const Matrices shape = matrices_of(a);
    if (a.is_contiguous() && shape.rows <= WARP_ROWS)
        return make_kernel(0, [dtype = a.dtype, shape](char* const* data, const Scalar*) {
            if (shape.rows <= 8) launch_small_cholesky<8>(dtype, shape, data);
            else if (shape.rows <= 16) launch_small_cholesky<16>(dtype, shape, data);
            else launch_small_cholesky<32>(dtype, shape, data);
        });
    const bool is_turned = shape.rows >= TURNED;
    const Operand columns = column_major(a);
    KernelPtr copy_out = is_turned ? copy_kernel(out, columns) : nullptr;
    return make_kernel(0, [dtype = a.dtype, shape, bytes = bytes_of(a), is_turned,
                           copy = copy_kernel(is_turned ? columns : out, a),
                           copy_out = std::move(copy_out)](char* const* data, const Scalar*) {
        const Functions& f = functions();
        const int64_t n = shape.rows, step = shape.numel() * size_of(dtype);
        const int uplo = is_turned ? LOWER : UPPER;
        int32_t* const info = info_of(data[1]);
        std::optional<Scratch<>> scratch;
        if (is_turned) scratch.emplace(bytes);
        char* const matrices = is_turned ? scratch->data() : data[0];
        run_copy(*copy, matrices, data[2]);
        if (shape.batch > 1 && n < LOOPED) {
            const Addresses addresses(matrices, step, shape.batch);
            check_status(f.of(dtype).potrf_batched(solver(), uplo, int(n), addresses.data(), int(n), info,
                                                   int(shape.batch)), "to factorise matrices");
        } else {
            const int type = type_of(dtype);
            size_t device = 0, host = 0;
            check_status(f.potrf_size(solver(), solver_params(), uplo, n, type, matrices, n, type, &device, &host),
                         "to factorise a matrix");
            Workspace work(device, host);
            for (int64_t i = 0; i < shape.batch; ++i)
                check_status(f.potrf(solver(), solver_params(), uplo, n, type, matrices + i * step, n, type, work.device(),
                                     device, work.host(), host, info + i), "to factorise a matrix");
        }
        if (is_turned) run_copy(*copy_out, data[0], matrices);
        keep_triangle(dtype, false, shape, data[0]);
    });
}

KernelPtr solve_triangular(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[1], &b = request.operands[2];
    if (!suits(a) || b.dtype != a.dtype || !out.is_contiguous()) return nullptr;
    if (b.numel() == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    const int uplo = request.attrs.flag("upper") ? LOWER : UPPER, diagonal = request.attrs.flag("unitriangular");
    return make_kernel(0, [dtype = a.dtype, shape = matrices_of(a), columns = matrices_of(b).columns, uplo, diagonal,
                           staged = StagedOperand::contiguous_in(a, a.dtype),
                           copy = copy_kernel(out, b)](char* const* data, const Scalar*) {
        const Typed& f = functions().of(dtype);
        const Seen a(staged, data[1]);
        char* const out = data[0];
        run_copy(*copy, out, data[2]);
        const double one64 = 1;
        const float one32 = 1;
        const void* one = dtype == DType::f64 ? static_cast<const void*>(&one64) : &one32;
        const int n = int(shape.rows), p = int(columns);
        const int64_t step = shape.numel() * size_of(dtype), out_step = shape.rows * columns * size_of(dtype);
        if (shape.batch > 1 && n < LOOPED) {
            const Addresses triangles(a.data(), step, shape.batch), to(out, out_step, shape.batch);
            check_status(f.trsm_batched(blas(), RIGHT, uplo, PLAIN, diagonal, p, n, one, triangles.data(), n, to.data(), p,
                                        int(shape.batch)), "to solve triangular systems");
            return;
        }
        for (int64_t i = 0; i < shape.batch; ++i)
            check_status(f.trsm(blas(), RIGHT, uplo, PLAIN, diagonal, p, n, one, a.data() + i * step, n,
                                out + i * out_step, p), "to solve a triangular system");
    });
}

}  // namespace

void add_triangles(Registry& registry) {
    registry["linalg_cholesky"] = cholesky;
    registry["linalg_solve_triangular"] = solve_triangular;
}

}  // namespace norch::linalg
