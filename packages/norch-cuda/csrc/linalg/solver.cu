// Loading cuSOLVER and cuBLAS, and the small kernels around their routines.
#include "linalg/solver.h"

#include <memory>

#include "runtime/device.cuh"
#include "runtime/library.h"

namespace norch::linalg {
namespace {

struct Loaded {
    Functions functions;
    int (*solver_create)(Handle*);
    int (*solver_set_stream)(Handle, cudaStream_t);
    int (*blas_create)(Handle*);
    int (*blas_set_stream)(Handle, cudaStream_t);
    void *params = nullptr, *jacobi = nullptr;
};

template <class F>
void get_typed(const Library& from, Functions& out, F Typed::*member, const std::string& before, const std::string& after) {
    from.get(out.typed[0].*member, (before + "S" + after).c_str());
    from.get(out.typed[1].*member, (before + "D" + after).c_str());
}

std::unique_ptr<const Loaded> load() {
    // cuSOLVER needs cuBLAS, and finds it where that has been opened.
    const Library blas("cublas", "libcublas.so.13", "linear algebra", "norch-cuda[linalg]");
    const Library solver("cusolver", "libcusolver.so.12", "linear algebra", "norch-cuda[linalg]");
    auto out = std::make_unique<Loaded>();
    Functions& f = out->functions;
    auto of_blas = [&](auto member, const char* after) { get_typed(blas, f, member, "cublas", after); };
    auto of_solver = [&](auto member, const char* after) { get_typed(solver, f, member, "cusolverDn", after); };
    blas.get(out->blas_create, "cublasCreate_v2");
    blas.get(out->blas_set_stream, "cublasSetStream_v2");
    of_blas(&Typed::getrf_batched, "getrfBatched");
    of_blas(&Typed::getrs_batched, "getrsBatched");
    of_blas(&Typed::getri_batched, "getriBatched");
    of_blas(&Typed::matinv_batched, "matinvBatched");
    of_blas(&Typed::trsm_batched, "trsmBatched");
    of_blas(&Typed::trsm, "trsm_v2");
    solver.get(out->solver_create, "cusolverDnCreate");
    solver.get(out->solver_set_stream, "cusolverDnSetStream");
    of_solver(&Typed::potrf_batched, "potrfBatched");
    of_solver(&Typed::orgqr_size, "orgqr_bufferSize");
    of_solver(&Typed::orgqr, "orgqr");
    of_solver(&Typed::gesvdj_size, "gesvdj_bufferSize");
    of_solver(&Typed::gesvdj, "gesvdj");
    of_solver(&Typed::gesvdj_batched_size, "gesvdjBatched_bufferSize");
    of_solver(&Typed::gesvdj_batched, "gesvdjBatched");
    solver.get(f.getrf_size, "cusolverDnXgetrf_bufferSize");
    solver.get(f.getrf, "cusolverDnXgetrf");
    solver.get(f.getrs, "cusolverDnXgetrs");
    solver.get(f.potrf_size, "cusolverDnXpotrf_bufferSize");
    solver.get(f.potrf, "cusolverDnXpotrf");
    solver.get(f.geqrf_size, "cusolverDnXgeqrf_bufferSize");
    solver.get(f.geqrf, "cusolverDnXgeqrf");
    solver.get(f.syevd_size, "cusolverDnXsyevd_bufferSize");
    solver.get(f.syevd, "cusolverDnXsyevd");
    solver.get(f.syev_batched_size, "cusolverDnXsyevBatched_bufferSize");
    solver.get(f.syev_batched, "cusolverDnXsyevBatched");
    int (*create_params)(void**) = nullptr;
    solver.get(create_params, "cusolverDnCreateParams");
    check_status(create_params(&out->params), "to start");
    solver.get(create_params, "cusolverDnCreateGesvdjInfo");
    check_status(create_params(&out->jacobi), "to start");
    return out;
}

const Loaded& loaded() {
    static const std::unique_ptr<const Loaded> all = load();
    return *all;
}

Handle handle_of(std::vector<Handle>& handles, int (*create)(Handle*), int (*set_stream)(Handle, cudaStream_t)) {
    const int device = launch_stream().device;
    if (handles.size() <= size_t(device)) handles.resize(size_t(device) + 1);
    Handle& handle = handles[size_t(device)];
    const cudaStream_t stream = stream_handle();
    if (!handle) {
        RelaxedCapture relaxed;
        check_status(create(&handle), "to start");
    }
    check_status(set_stream(handle, stream), "to use a stream");
    return handle;
}

__global__ void fill_addresses(void** out, char* first, int64_t step, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) out[i] = first + i * step;
}

__global__ void fill_integers(int32_t* out, int64_t count, int32_t value) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) out[i] = value;
}

template <class T>
__global__ void zero_triangle(T* data, bool keeps_upper, int64_t rows, int64_t columns, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t column = i % columns, row = i / columns % rows;
    if (keeps_upper ? column < row : column > row) data[i] = T(0);
}

}  // namespace

bool is_available() {
    static const bool found = [] {
        try {
            loaded();
            return true;
        } catch (const std::runtime_error&) {
            return false;
        }
    }();
    return found;
}

const Functions& functions() { return loaded().functions; }

Handle solver() {
    static std::vector<Handle> handles;
    return handle_of(handles, loaded().solver_create, loaded().solver_set_stream);
}
Handle blas() {
    static std::vector<Handle> handles;
    return handle_of(handles, loaded().blas_create, loaded().blas_set_stream);
}
void* solver_params() { return loaded().params; }
void* jacobi_params() { return loaded().jacobi; }

void check_status(int status, const char* what) {
    if (status == 0) return;
    throw std::runtime_error(std::string("cuSOLVER or cuBLAS failed ") + what + ": status " + std::to_string(status));
}

Addresses::Addresses(const void* first, int64_t step, int64_t count) : memory_(size_t(count)) {
    launch_kernel("addresses of matrices", fill_addresses, unsigned(ceil_div(count, THREADS)), THREADS, memory_.data(),
                  static_cast<char*>(const_cast<void*>(first)), step, count);
}

Operand column_major(const Operand& o) { return transposed(contiguous(transposed(o))); }

Operand within(const Operand& o, int64_t matrix, int64_t row, int64_t column) {
    Operand out = o;
    const size_t d = o.shape.size() - 2;
    out.strides[d] = row, out.strides[d + 1] = column;
    int64_t step = matrix;
    for (size_t i = d; i-- > 0;) {
        out.strides[i] = step;
        step *= o.shape[i];
    }
    return out;
}

void keep_triangle(DType dtype, bool upper, Matrices shape, void* data) {
    const int64_t count = shape.batch * shape.numel();
    const auto blocks = unsigned(ceil_div(count, THREADS));
    if (dtype == DType::f64)
        launch_kernel("a triangle", zero_triangle<double>, blocks, THREADS, static_cast<double*>(data), upper, shape.rows,
                      shape.columns, count);
    else
        launch_kernel("a triangle", zero_triangle<float>, blocks, THREADS, static_cast<float*>(data), upper, shape.rows,
                      shape.columns, count);
}

void set_all(int32_t* data, int64_t count, int32_t value) {
    launch_kernel("a fill", fill_integers, unsigned(ceil_div(count, THREADS)), THREADS, data, count, value);
}

}  // namespace norch::linalg
