#include "matmul/transpose.h"

#include <algorithm>

#include "runtime/simd.h"

namespace norch::matmul {
namespace {

/// A square of L * L, by interleaving row i with row i + L / 2 until every lane has its place.
template <class T>
void transpose_square(const T* in, int64_t in_stride, T* out, int64_t out_stride) {
    constexpr int L = SIMD_WIDTH<T>;
    vector_t<T, L> a[L], b[L];
    NORCH_UNROLL
    for (int i = 0; i < L; ++i) a[i] = load_vector<L>(in + i * in_stride);
    NORCH_UNROLL
    for (int stage = 1; stage < L; stage *= 2) {
        NORCH_UNROLL
        for (int i = 0; i < L / 2; ++i) {
            b[2 * i] = interleave<false, L>(a[i], a[i + L / 2]);
            b[2 * i + 1] = interleave<true, L>(a[i], a[i + L / 2]);
        }
        NORCH_UNROLL
        for (int i = 0; i < L; ++i) a[i] = b[i];
    }
    NORCH_UNROLL
    for (int i = 0; i < L; ++i) store_vector(out + i * out_stride, a[i]);
}

}  // namespace

template <class T>
void transpose(const T* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t out_stride) {
    constexpr int64_t L = SIMD_WIDTH<T>;
    // Where a square would hang over, it goes back over what is done.
    const int64_t height = std::min(L, rows), width = std::min(L, columns);
    for (int64_t i = 0; i < rows; i += L) {
        for (int64_t j = 0; j < columns; j += L) {
            const int64_t r = std::min(i, rows - height), c = std::min(j, columns - width);
            const T* from = in + r * in_stride + c;
            T* to = out + c * out_stride + r;
            if (height == L && width == L)
                transpose_square(from, in_stride, to, out_stride);
            else
                for (int64_t k = 0; k < height; ++k)
                    for (int64_t l = 0; l < width; ++l) to[l * out_stride + k] = from[k * in_stride + l];
        }
    }
}

template void transpose(const float*, int64_t, int64_t, int64_t, float*, int64_t);
template void transpose(const double*, int64_t, int64_t, int64_t, double*, int64_t);

}  // namespace norch::matmul
