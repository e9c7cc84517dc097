// What the kernels share on the device: element types, 16-byte accesses, division by a constant, launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "common/arithmetic_ops.h"
#include "common/kernel.h"
#include "common/layout.h"
#include "runtime/runtime.h"

namespace norch {

constexpr int THREADS = 256;

/// Throws where a kernel could not be launched.
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

struct Grid {
    dim3 blocks, threads;
    size_t shared;  // bytes for each block, besides the kernel's own
};

/// A kernel with its arguments converted to what it takes.
template <class... P>
void note_launch(void (*kernel)(P...), const Grid& grid, const P&... arguments) {
    const void* pointers[] = {&arguments...};
    const size_t sizes[] = {sizeof(P)...};
    launch_notes->add(reinterpret_cast<const void*>(kernel), grid.blocks, grid.threads, grid.shared, pointers, sizes,
                      sizeof...(P));
}

/// Launches a kernel on the stream of the launch, or notes that.
template <class... P, class... A>
void launch_kernel(const char* what, void (*kernel)(P...), const Grid& grid, const A&... arguments) {
    if (launch_notes) {
        note_launch<P...>(kernel, grid, arguments...);
        if (!launch_notes->makes_them) return;
    }
    kernel<<<grid.blocks, grid.threads, grid.shared, stream_handle()>>>(arguments...);
    check_launch(what);
}
template <class... P, class... A>
void launch_kernel(const char* what, void (*kernel)(P...), dim3 blocks, dim3 threads, const A&... arguments) {
    launch_kernel(what, kernel, Grid{blocks, threads, 0}, arguments...);
}

/// The same for a kernel that was not compiled with this package.
inline void launch_compiled(const char* what, const void* kernel, const Grid& grid, const void* const* arguments,
                            const size_t* sizes, int number) {
    if (launch_notes) {
        launch_notes->add(kernel, grid.blocks, grid.threads, grid.shared, arguments, sizes, number);
        if (!launch_notes->makes_them) return;
    }
    check(cudaLaunchKernel(kernel, grid.blocks, grid.threads, const_cast<void**>(arguments), grid.shared, stream_handle()),
          what);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// --- Element types --------------------------------------------------------------------------------------------------

template <>
struct Compute<__half> {
    using type = float;
};
template <>
struct Compute<__nv_bfloat16> {
    using type = float;
};
template <class T>
using computed = compute_t<T>;

template <class T>
__host__ __device__ inline T upcast(T x) {
    return x;
}
__host__ __device__ inline float upcast(__half x) { return __half2float(x); }
__host__ __device__ inline float upcast(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__host__ __device__ inline T downcast(computed<T> x) {
    if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
    else return x;
}

/// The type on the device of a dtype's C++ type; a bool is a byte.
template <class T>
struct DeviceType {
    using type = std::conditional_t<std::is_same_v<T, half>, __half,
                                    std::conditional_t<std::is_same_v<T, bfloat16>, __nv_bfloat16,
                                                       std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>>;
};

/// Calls f(Tag<T>) with the device's type of a dtype.
template <class F>
auto visit_device(DType dtype, const F& f) {
    return visit(dtype, [&]<class T>(Tag<T>) { return f(Tag<typename DeviceType<T>::type>{}); });
}
template <class F>
auto visit_floating_device(DType dtype, const F& f) {
    return visit_floating(dtype, [&]<class T>(Tag<T>) { return f(Tag<typename DeviceType<T>::type>{}); });
}

/// A scalar operand of a dtype as a number of type C: integers wrap around; for a C that only moves bits, a float's bits.
template <class C>
C scalar_as(const Scalar& value, DType dtype) {
    if constexpr (std::is_floating_point_v<C>) return C(value.f);
    return visit(dtype, [&]<class T>(Tag<T>) {
        if constexpr (std::is_integral_v<T>) return C(T(value.i));
        else if constexpr (sizeof(T) == sizeof(C)) return bit_cast<C>(store<T>(compute_t<T>(value.f)));
        else return C(value.f);
    });
}

// --- Memory ---------------------------------------------------------------------------------------------------------

/// VEC elements that are loaded and stored at once.
template <class T, int VEC>
struct alignas(sizeof(T) * VEC) Packet {
    T v[VEC];
};

/// How many elements of T fit 16 bytes.
template <class T>
constexpr int PER_16_BYTES = 16 / int(sizeof(T));

inline bool is_aligned(const void* data, size_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

// --- Index arithmetic -----------------------------------------------------------------------------------------------

/// Division of n < 2**31 by a constant: multiply high, add, shift (T. Granlund and P. Montgomery, "Division by invariant
/// integers using multiplication", PLDI 1994).
struct FastDivide {
    uint32_t divisor = 1, magic = 0, shift = 0;

    FastDivide() = default;
    explicit FastDivide(uint32_t d) : divisor(d) {
        while (shift < 32 && (uint64_t(1) << shift) < d) ++shift;
        magic = uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d)) / d + 1);
    }
    __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
};

/// The places along dims, innermost first, of a number that counts all of them.
struct Digits {
    uint32_t rest;

    __device__ int next(const FastDivide& size) {
        const uint32_t quotient = size.quotient(rest), at = rest - quotient * size.divisor;
        rest = quotient;
        return int(at);
    }
};

constexpr int MAX_DIMS = 8;

/// Strides of N operands over some dims, innermost first, in bytes; fewer than 2**31 elements.
template <int N>
struct Layout {
    uint32_t numel = 0;
    int ndim = 0;
    FastDivide size[MAX_DIMS];
    int64_t stride[N][MAX_DIMS] = {};

    /// The byte offsets of element i of each operand.
    __device__ void offsets(uint32_t i, int64_t (&out)[N]) const {
#pragma unroll
        for (int k = 0; k < N; ++k) out[k] = 0;
#pragma unroll
        for (int d = 0; d < MAX_DIMS; ++d) {
            if (d == ndim) break;
            uint32_t rest = d + 1 == ndim ? 0 : size[d].quotient(i);
            uint32_t at = i - rest * size[d].divisor;
#pragma unroll
            for (int k = 0; k < N; ++k) out[k] += int64_t(at) * stride[k][d];
            i = rest;
        }
    }
};

/// A part of some loops that is small enough for 32-bit indices, and where it starts in each operand (bytes).
template <int N>
struct Piece {
    Layout<N> layout;
    int64_t start[N];
};

/// Cuts loops (of N operands) into pieces of at most MAX_DIMS dims and 2**30 elements. Nearly always there is one.
template <int N>
std::vector<Piece<N>> cut(const Loops& loops) {
    constexpr int64_t LIMIT = int64_t(1) << 30;
    std::vector<Piece<N>> out;
    if (loops.numel == 0) return out;
    if (loops.ndim() <= MAX_DIMS && loops.numel <= LIMIT) {
        Piece<N> piece = {};
        piece.layout.numel = uint32_t(loops.numel);
        piece.layout.ndim = loops.ndim();
        for (int d = 0; d < loops.ndim(); ++d) {
            int from = loops.ndim() - 1 - d;
            piece.layout.size[d] = FastDivide(uint32_t(loops.shape[from]));
            for (int k = 0; k < N; ++k) piece.layout.stride[k][d] = loops.strides[k][from];
        }
        out.push_back(piece);
        return out;
    }
    const int64_t inner = loops.numel / loops.shape[0];
    const int64_t rows = loops.ndim() > MAX_DIMS || inner > LIMIT ? 1 : LIMIT / inner;
    for (int64_t first = 0; first < loops.shape[0]; first += rows) {
        Loops part = loops;
        part.shape[0] = std::min(rows, loops.shape[0] - first);
        part.numel = inner * part.shape[0];
        if (rows == 1) {
            part.shape.erase(part.shape.begin());
            for (auto& strides : part.strides) strides.erase(strides.begin());
        }
        for (Piece<N> piece : cut<N>(part)) {
            for (int k = 0; k < N; ++k) piece.start[k] += first * loops.strides[k][0];
            out.push_back(piece);
        }
    }
    return out;
}

// --- Errors ---------------------------------------------------------------------------------------------------------

/// Notes that op number `op` met an index out of range, or with size -1 a weight that is none; only the first of them all
/// is kept.
__device__ inline void report_index(const ErrorSink& sink, int32_t op, int64_t index, int64_t size) {
    if (atomicCAS(sink.claim, 0, 1) != 0) return;
    volatile IndexErrorRecord* record = sink.record;
    record->index = index;
    record->size = size;
    record->op = op;
    __threadfence_system();
    record->is_set = 1;
}

}  // namespace norch
