// Eigenvalues of symmetric matrices, and singular values, with and without vectors.
#include "common/staging.h"
#include "linalg/linalg.h"
#include "linalg/solver.h"

namespace norch::linalg {
namespace {

constexpr int64_t SMALL = 32;  // rows and columns of matrices that gesvdjBatched takes

/// Symmetric matrices become their eigenvectors, row after row.
void eigen(DType dtype, Matrices shape, bool vectors, int uplo, char* a, char* values, int32_t* info) {
    const Functions& f = functions();
    const int64_t n = shape.rows, batch = shape.batch;
    const int type = type_of(dtype);
    size_t device = 0, host = 0;
    if (batch == 1) {
        check_status(f.syevd_size(solver(), solver_params(), vectors, uplo, n, type, a, n, type, values, type, &device,
                                  &host), "to find eigenvalues");
        Workspace work(device, host);
        check_status(f.syevd(solver(), solver_params(), vectors, uplo, n, type, a, n, type, values, type, work.device(),
                             device, work.host(), host, info), "to find eigenvalues");
        return;
    }
    check_status(f.syev_batched_size(solver(), solver_params(), vectors, uplo, n, type, a, n, type, values, type, &device,
                                     &host, batch), "to find eigenvalues");
    Workspace work(device, host);
    check_status(f.syev_batched(solver(), solver_params(), vectors, uplo, n, type, a, n, type, values, type,
                                work.device(), device, work.host(), host, info, batch), "to find eigenvalues");
}

KernelPtr eigh_kernel(const Request& request, bool vectors) {
    const auto& o = request.operands;
    const int input = vectors ? 3 : 2;
    const Operand& a = o[size_t(input)];
    if (!suits(a) || !o[0].is_contiguous()) return nullptr;
    // The upper triangle of a row-major matrix is the lower one of what cuSOLVER sees.
    const int uplo = request.attrs.flag("upper") ? LOWER : UPPER;
    const Operand stored = contiguous(a);
    KernelPtr copy_out = vectors ? copy_kernel(o[1], transposed(stored)) : nullptr;
    return make_kernel(0, [=, dtype = a.dtype, shape = matrices_of(a), bytes = bytes_of(a), copy = copy_kernel(stored, a),
                           copy_out = std::move(copy_out)](char* const* data, const Scalar*) {
        const Scratch<> matrices(bytes);
        run_copy(*copy, matrices.data(), data[input]);
        eigen(dtype, shape, vectors, uplo, matrices.data(), data[0], info_of(data[input - 1]));
        if (vectors) run_copy(*copy_out, data[1], matrices.data());
    });
}
KernelPtr eigh(const Request& request) { return eigh_kernel(request, true); }
KernelPtr eigvalsh(const Request& request) { return eigh_kernel(request, false); }

/// A = U S V' by Jacobi's rotations. What cuSOLVER sees is A': its left vectors are V and its right ones U.
class Svd {
public:
    /// full: of square U and V. vectors: whether there are any.
    Svd(DType dtype, Matrices shape, bool full, bool vectors)
        : dtype_(dtype), shape_(shape), vectors_(vectors),
          is_batched_(shape.batch > 1 && shape.rows <= SMALL && shape.columns <= SMALL),
          k_(std::min(shape.rows, shape.columns)), full_(full || is_batched_) {}

    /// The rows of V' and columns of U that are made: all where a batch is taken at once.
    int64_t rows_of_v() const { return full_ ? shape_.columns : k_; }
    int64_t columns_of_u() const { return full_ ? shape_.rows : k_; }

    /// `a` is overwritten. `u` gets U column by column, `vh` V' row by row.
    void run(char* a, char* s, char* u, char* vh, int32_t* info) const {
        const Typed& f = functions().of(dtype_);
        const int m = int(shape_.rows), n = int(shape_.columns), batch = int(shape_.batch), econ = !full_;
        const int64_t size = size_of(dtype_);
        int elements = 0;
        if (is_batched_) {
            check_status(f.gesvdj_batched_size(solver(), vectors_, n, m, a, n, s, vh, n, u, m, &elements, jacobi_params(),
                                               batch), "to find singular values");
            const Workspace work(size_t(elements * size));
            check_status(f.gesvdj_batched(solver(), vectors_, n, m, a, n, s, vh, n, u, m, work.device(), elements, info,
                                          jacobi_params(), batch), "to find singular values");
            return;
        }
        check_status(f.gesvdj_size(solver(), vectors_, econ, n, m, a, n, s, vh, n, u, m, &elements, jacobi_params()),
                     "to find singular values");
        const Workspace work(size_t(elements) * size_t(size));
        for (int64_t i = 0; i < batch; ++i)
            check_status(f.gesvdj(solver(), vectors_, econ, n, m, a + i * shape_.numel() * size, n, s + i * k_ * size,
                                  vh + i * n * rows_of_v() * size, n, u + i * m * columns_of_u() * size, m, work.device(),
                                  elements, info + i, jacobi_params()), "to find singular values");
    }

private:
    DType dtype_;
    Matrices shape_;
    bool vectors_, is_batched_;
    int64_t k_;
    bool full_;
};

KernelPtr svd(const Request& request) {
    const auto& o = request.operands;
    const Operand &u = o[0], &s = o[1], &vh = o[2], &a = o[4];
    if (!suits(a) || !s.is_contiguous()) return nullptr;
    const Matrices shape = matrices_of(a);
    const Svd body(a.dtype, shape, request.attrs.flag("full_matrices"), true);
    const int64_t m = shape.rows, n = shape.columns, size = size_of(a.dtype);
    const Operand made_u = within(u, m * body.columns_of_u(), 1, m), made_v = within(vh, n * body.rows_of_v(), n, 1);
    return make_kernel(0, [body, bytes = bytes_of(a), u_bytes = size_t(shape.batch * m * body.columns_of_u() * size),
                           v_bytes = size_t(shape.batch * n * body.rows_of_v() * size), copy = copy_kernel(contiguous(a), a),
                           copy_u = copy_kernel(u, made_u), copy_v = copy_kernel(vh, made_v)](char* const* data,
                                                                                             const Scalar*) {
        const Scratch<> matrices(bytes), left(u_bytes), right(v_bytes);
        run_copy(*copy, matrices.data(), data[4]);
        body.run(matrices.data(), data[1], left.data(), right.data(), info_of(data[3]));
        run_copy(*copy_u, data[0], left.data());
        run_copy(*copy_v, data[2], right.data());
    });
}

KernelPtr svdvals(const Request& request) {
    const Operand &s = request.operands[0], &a = request.operands[2];
    if (!suits(a) || !s.is_contiguous()) return nullptr;
    const Matrices shape = matrices_of(a);
    const Svd body(a.dtype, shape, false, false);
    const size_t size = size_t(size_of(a.dtype)), u_bytes = size_t(shape.batch * shape.rows * body.columns_of_u()) * size,
                 v_bytes = size_t(shape.batch * shape.columns * body.rows_of_v()) * size;
    return make_kernel(0, [=, bytes = bytes_of(a), copy = copy_kernel(contiguous(a), a)](char* const* data, const Scalar*) {
        // Some versions write to where the vectors would be.
        const Scratch<> matrices(bytes), left(u_bytes), right(v_bytes);
        run_copy(*copy, matrices.data(), data[2]);
        body.run(matrices.data(), data[0], left.data(), right.data(), info_of(data[1]));
    });
}

}  // namespace

void add_spectral(Registry& registry) {
    registry["linalg_eigh"] = eigh;
    registry["linalg_eigvalsh"] = eigvalsh;
    registry["linalg_svd"] = svd;
    registry["linalg_svdvals"] = svdvals;
}

}  // namespace norch::linalg
