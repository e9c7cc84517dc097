// cuSOLVER, and the batched routines of cuBLAS, which are loaded when the first of them is wanted. Their headers are not
// needed: what is used of their C interfaces is declared here. Matrices are column-major, `ld` elements a column.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/operands.h"
#include "linalg/linalg.h"
#include "runtime/allocator.h"
#include "runtime/runtime.h"

namespace norch::linalg {

using Handle = void*;
enum Operation { PLAIN = 0, TRANSPOSED = 1 };
enum Triangle { LOWER = 0, UPPER = 1 };
enum Side { LEFT = 0, RIGHT = 1 };

/// Rows from which a batch is taken matrix by matrix: a routine for batches is then no faster.
constexpr int64_t LOOPED = 512;

/// Those that have a name of their own for each dtype.
struct Typed {
    // cuBLAS
    int (*getrf_batched)(Handle, int n, void* const* a, int lda, int* pivots, int* info, int batch);
    int (*getrs_batched)(Handle, int trans, int n, int columns, const void* const* a, int lda, const int* pivots,
                         void* const* b, int ldb, int* host_info, int batch);
    int (*getri_batched)(Handle, int n, const void* const* a, int lda, const int* pivots, void* const* out, int ldo,
                         int* info, int batch);
    int (*matinv_batched)(Handle, int n, const void* const* a, int lda, void* const* out, int ldo, int* info, int batch);
    int (*trsm_batched)(Handle, int side, int uplo, int trans, int diag, int m, int n, const void* alpha,
                        const void* const* a, int lda, void* const* b, int ldb, int batch);
    int (*trsm)(Handle, int side, int uplo, int trans, int diag, int m, int n, const void* alpha, const void* a, int lda,
                void* b, int ldb);
    // cuSOLVER
    int (*potrf_batched)(Handle, int uplo, int n, void* const* a, int lda, int* info, int batch);
    int (*orgqr_size)(Handle, int m, int n, int k, const void* a, int lda, const void* tau, int* elements);
    int (*orgqr)(Handle, int m, int n, int k, void* a, int lda, const void* tau, void* work, int elements, int* info);
    int (*gesvdj_size)(Handle, int vectors, int econ, int m, int n, const void* a, int lda, const void* s, const void* u,
                       int ldu, const void* v, int ldv, int* elements, void* params);
    int (*gesvdj)(Handle, int vectors, int econ, int m, int n, void* a, int lda, void* s, void* u, int ldu, void* v,
                  int ldv, void* work, int elements, int* info, void* params);
    int (*gesvdj_batched_size)(Handle, int vectors, int m, int n, const void* a, int lda, const void* s, const void* u,
                               int ldu, const void* v, int ldv, int* elements, void* params, int batch);
    int (*gesvdj_batched)(Handle, int vectors, int m, int n, void* a, int lda, void* s, void* u, int ldu, void* v,
                          int ldv, void* work, int elements, int* info, void* params, int batch);
};

/// Those that are told the dtype (`type`).
struct Functions {
    int (*getrf_size)(Handle, void* params, int64_t m, int64_t n, int type, const void* a, int64_t lda, int compute,
                      size_t* device, size_t* host);
    int (*getrf)(Handle, void* params, int64_t m, int64_t n, int type, void* a, int64_t lda, int64_t* pivots, int compute,
                 void* device, size_t device_bytes, void* host, size_t host_bytes, int* info);
    int (*getrs)(Handle, void* params, int trans, int64_t n, int64_t columns, int type, const void* a, int64_t lda,
                 const int64_t* pivots, int b_type, void* b, int64_t ldb, int* info);
    int (*potrf_size)(Handle, void* params, int uplo, int64_t n, int type, const void* a, int64_t lda, int compute,
                      size_t* device, size_t* host);
    int (*potrf)(Handle, void* params, int uplo, int64_t n, int type, void* a, int64_t lda, int compute, void* device,
                 size_t device_bytes, void* host, size_t host_bytes, int* info);
    int (*geqrf_size)(Handle, void* params, int64_t m, int64_t n, int type, const void* a, int64_t lda, int tau_type,
                      const void* tau, int compute, size_t* device, size_t* host);
    int (*geqrf)(Handle, void* params, int64_t m, int64_t n, int type, void* a, int64_t lda, int tau_type, void* tau,
                 int compute, void* device, size_t device_bytes, void* host, size_t host_bytes, int* info);
    int (*syevd_size)(Handle, void* params, int vectors, int uplo, int64_t n, int type, const void* a, int64_t lda,
                      int w_type, const void* w, int compute, size_t* device, size_t* host);
    int (*syevd)(Handle, void* params, int vectors, int uplo, int64_t n, int type, void* a, int64_t lda, int w_type,
                 void* w, int compute, void* device, size_t device_bytes, void* host, size_t host_bytes, int* info);
    int (*syev_batched_size)(Handle, void* params, int vectors, int uplo, int64_t n, int type, const void* a, int64_t lda,
                             int w_type, const void* w, int compute, size_t* device, size_t* host, int64_t batch);
    int (*syev_batched)(Handle, void* params, int vectors, int uplo, int64_t n, int type, void* a, int64_t lda,
                        int w_type, void* w, int compute, void* device, size_t device_bytes, void* host,
                        size_t host_bytes, int* info, int64_t batch);
    Typed typed[2];  // of float32, of float64

    const Typed& of(DType dtype) const { return typed[dtype == DType::f64]; }
};

const Functions& functions();
/// The handles of the device of the launch, which work on its stream.
Handle solver();
Handle blas();
void* solver_params();  // the defaults
void* jacobi_params();
void check_status(int status, const char* what);

inline int type_of(DType dtype) { return dtype == DType::f64 ? 1 : 0; }

/// The scratch memory of a routine of cuSOLVER's on the device and on the host.
class Workspace {
public:
    explicit Workspace(size_t device_bytes, size_t host_bytes = 0) : device_(device_bytes + 16), host_(host_bytes + 16) {}
    void* device() const { return device_.data(); }
    void* host() { return host_.data(); }

private:
    Scratch<> device_;
    std::vector<char> host_;
};

/// The addresses of matrices that lie `step` bytes apart, on the device.
class Addresses {
public:
    Addresses(const void* first, int64_t step, int64_t count);
    void* const* data() const { return memory_.data(); }

private:
    Scratch<void*> memory_;
};

/// (*batch, rows, columns), as one batch dim.
struct Matrices {
    int64_t batch = 1, rows, columns;
    int64_t numel() const { return rows * columns; }
};
inline Matrices matrices_of(const Operand& o) {
    const size_t d = o.shape.size() - 2;
    Matrices out{1, o.shape[d], o.shape[d + 1]};
    for (size_t i = 0; i < d; ++i) out.batch *= o.shape[i];
    return out;
}

/// The same shape without gaps, column by column.
Operand column_major(const Operand& o);
/// A part of matrices that lie without gaps in more columns or rows: `row` and `column` elements from one to the next.
Operand within(const Operand& o, int64_t matrix, int64_t row, int64_t column);

/// Whether matrices can be handed over: the libraries are there, the dtype is theirs, and there is something to do.
inline bool suits(const Operand& a) {
    return (a.dtype == DType::f32 || a.dtype == DType::f64) && a.numel() > 0 && is_available();
}
/// The bytes of an operand without gaps.
inline size_t bytes_of(const Operand& o) { return size_t(o.numel() * size_of(o.dtype)); }
inline int32_t* info_of(char* data) { return reinterpret_cast<int32_t*>(data); }

/// Keeps one triangle (with the diagonal) of row-major matrices, and zeroes the other.
void keep_triangle(DType dtype, bool upper, Matrices shape, void* data);
/// Writes a number to `count` int32.
void set_all(int32_t* data, int64_t count, int32_t value);

}  // namespace norch::linalg
