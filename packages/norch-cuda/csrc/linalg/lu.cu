// What rests on LU factors with pivots: inverses, systems of equations, determinants.
//
// Row-major matrices are handed over as they lie, as the columns of their transposes.
#include "linalg/linalg.h"
#include "linalg/solver.h"
#include "runtime/device.cuh"

namespace norch::linalg {
namespace {

constexpr int64_t TINY = 32;     // rows that cuBLAS inverts in one kernel

template <class T>
__global__ void fill_identity(T* out, int64_t n, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) out[i] = T(i / n % n == i % n);
}

/// A warp for each matrix. With `logs` the sign and the logarithm of the size, otherwise the determinant.
template <class T>
__global__ void multiply_diagonal(const T* factors, const void* pivots, bool has_long_pivots, int64_t n, int64_t batch,
                                  T* out, T* logs) {
    const int64_t matrix = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
    if (matrix >= batch) return;
    double product = 1, sum = 0;
    for (int64_t i = threadIdx.x % 32; i < n; i += 32) {
        const double d = factors[(matrix * n + i) * n + i];
        const int64_t at = matrix * n + i;
        const int64_t pivot = has_long_pivots ? static_cast<const int64_t*>(pivots)[at] : static_cast<const int32_t*>(pivots)[at];
        const double exchanged = pivot == i + 1 ? 1 : -1;
        if (logs) {
            product *= exchanged * (d > 0 ? 1 : d < 0 ? -1 : d);  // 0 and NaN stay
            sum += log(fabs(d));
        } else {
            product *= exchanged * d;
        }
    }
    for (int step = 16; step; step /= 2) {
        product *= __shfl_xor_sync(~0u, product, step);
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    if (threadIdx.x % 32) return;
    out[matrix] = T(product);
    if (logs) logs[matrix] = T(sum);
}

/// LU factors of square matrices, in the matrices' own memory.
class Factors {
public:
    Factors(DType dtype, Matrices shape, char* a, int32_t* info)
        : dtype_(dtype), shape_(shape), a_(a), is_batched_(shape.batch > 1 && shape.rows < LOOPED),
          pivots_(size_t(shape.batch * shape.rows * 8)) {
        const Functions& f = functions();
        const int64_t n = shape.rows;
        if (is_batched_) {
            addresses_.emplace(a, matrix_bytes(n), shape.batch);
            check_status(f.of(dtype).getrf_batched(blas(), int(n), addresses_->data(), int(n), short_pivots(), info,
                                                   int(shape.batch)), "to factorise matrices");
            return;
        }
        const int type = type_of(dtype);
        size_t device = 0, host = 0;
        check_status(f.getrf_size(solver(), solver_params(), n, n, type, a, n, type, &device, &host), "to factorise");
        Workspace work(device, host);
        for (int64_t i = 0; i < shape.batch; ++i)
            check_status(f.getrf(solver(), solver_params(), n, n, type, a + i * matrix_bytes(n), n, long_pivots() + i * n,
                                 type, work.device(), device, work.host(), host, info + i), "to factorise a matrix");
    }

    /// Solves for the columns of `b` (n, columns) in place, with the matrices or with their transposes.
    void solve(char* b, int64_t columns, Operation trans) const {
        const Functions& f = functions();
        const int64_t n = shape_.rows;
        if (is_batched_) {
            const Addresses to(b, matrix_bytes(columns), shape_.batch);
            int wrong = 0;
            check_status(f.of(dtype_).getrs_batched(blas(), trans, int(n), int(columns), addresses_->data(), int(n),
                                                    short_pivots(), to.data(), int(n), &wrong, int(shape_.batch)),
                         "to solve systems of equations");
            return;
        }
        const Scratch<int32_t> info(1);
        const int type = type_of(dtype_);
        for (int64_t i = 0; i < shape_.batch; ++i)
            check_status(f.getrs(solver(), solver_params(), trans, n, columns, type, a_ + i * matrix_bytes(n), n,
                                 long_pivots() + i * n, type, b + i * matrix_bytes(columns), n, info.data()),
                         "to solve a system of equations");
    }

    /// Writes the inverses, in the order of the matrices' memory.
    void invert(char* out) const {
        const int64_t n = shape_.rows;
        if (is_batched_) {
            const Addresses to(out, matrix_bytes(n), shape_.batch);
            const Scratch<int32_t> again(size_t(shape_.batch));
            check_status(functions().of(dtype_).getri_batched(blas(), int(n), addresses_->data(), int(n), short_pivots(),
                                                              to.data(), int(n), again.data(), int(shape_.batch)),
                         "to invert matrices");
            return;
        }
        const int64_t count = shape_.batch * n * n;
        const auto blocks = unsigned(ceil_div(count, THREADS));
        if (dtype_ == DType::f64)
            launch_kernel("an identity", fill_identity<double>, blocks, THREADS, reinterpret_cast<double*>(out), n, count);
        else
            launch_kernel("an identity", fill_identity<float>, blocks, THREADS, reinterpret_cast<float*>(out), n, count);
        solve(out, n, PLAIN);
    }

    /// The determinants, or with `logs` their signs and the logarithms of their sizes.
    void determinants(char* out, char* logs) const {
        if (dtype_ == DType::f64) multiply<double>(out, logs);
        else multiply<float>(out, logs);
    }

private:
    template <class T>
    void multiply(char* out, char* logs) const {
        launch_kernel("determinants", multiply_diagonal<T>, unsigned(ceil_div(shape_.batch * 32, THREADS)), THREADS,
                      reinterpret_cast<const T*>(a_), static_cast<const void*>(pivots_.data()), !is_batched_, shape_.rows,
                      shape_.batch, reinterpret_cast<T*>(out), reinterpret_cast<T*>(logs));
    }

    int64_t matrix_bytes(int64_t columns) const { return shape_.rows * columns * size_of(dtype_); }
    int* short_pivots() const { return reinterpret_cast<int*>(pivots_.data()); }
    int64_t* long_pivots() const { return reinterpret_cast<int64_t*>(pivots_.data()); }

    DType dtype_;
    Matrices shape_;
    char* a_;
    bool is_batched_;
    Scratch<> pivots_;
    std::optional<Addresses> addresses_;
};

KernelPtr inv(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[2];
    if (!suits(a) || !out.is_contiguous()) return nullptr;
    return make_kernel(0, [dtype = a.dtype, shape = matrices_of(a), bytes = bytes_of(a),
                           copy = copy_kernel(contiguous(a), a)](char* const* data, const Scalar*) {
        const Scratch<> matrices(bytes);
        run_copy(*copy, matrices.data(), data[2]);
        if (shape.rows <= TINY) {
            const int64_t step = shape.numel() * size_of(dtype);
            const Addresses from(matrices.data(), step, shape.batch), to(data[0], step, shape.batch);
            const int n = int(shape.rows);
            check_status(functions().of(dtype).matinv_batched(blas(), n, from.data(), n, to.data(), n, info_of(data[1]),
                                                              int(shape.batch)), "to invert small matrices");
            return;
        }
        Factors(dtype, shape, matrices.data(), info_of(data[1])).invert(data[0]);
    });
}

KernelPtr solve(const Request& request) {
    const Operand &out = request.operands[0], &a = request.operands[2], &b = request.operands[3];
    if (!suits(a) || b.dtype != a.dtype) return nullptr;
    if (b.numel() == 0)
        return make_kernel(0, [count = matrices_of(a).batch](char* const* data, const Scalar*) {
            set_all(info_of(data[1]), count, 0);
        });
    const Operand columns = column_major(b);
    return make_kernel(0, [dtype = a.dtype, shape = matrices_of(a), count = matrices_of(b).columns, bytes = bytes_of(a),
                           b_bytes = bytes_of(b), copy = copy_kernel(contiguous(a), a), copy_b = copy_kernel(columns, b),
                           copy_out = copy_kernel(out, columns)](char* const* data, const Scalar*) {
        const Scratch<> matrices(bytes), right(b_bytes);
        run_copy(*copy, matrices.data(), data[2]);
        run_copy(*copy_b, right.data(), data[3]);
        Factors(dtype, shape, matrices.data(), info_of(data[1])).solve(right.data(), count, TRANSPOSED);
        run_copy(*copy_out, data[0], right.data());
    });
}

KernelPtr determinants(const Operand& a, int input) {
    if (!suits(a)) return nullptr;
    return make_kernel(0, [dtype = a.dtype, shape = matrices_of(a), bytes = bytes_of(a), input,
                           copy = copy_kernel(contiguous(a), a)](char* const* data, const Scalar*) {
        const Scratch<> matrices(bytes);
        const Scratch<int32_t> info(size_t(shape.batch));  // a singular one has a determinant too
        run_copy(*copy, matrices.data(), data[input]);
        Factors(dtype, shape, matrices.data(), info.data()).determinants(data[0], input == 2 ? data[1] : nullptr);
    });
}

KernelPtr det(const Request& request) { return determinants(request.operands[1], 1); }
KernelPtr slogdet(const Request& request) { return determinants(request.operands[2], 2); }

}  // namespace

void add_lu(Registry& registry) {
    registry["linalg_inv"] = inv;
    registry["linalg_solve"] = solve;
    registry["linalg_det"] = det;
    registry["linalg_slogdet"] = slogdet;
}

}  // namespace norch::linalg
