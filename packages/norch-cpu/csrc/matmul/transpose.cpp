#include "matmul/transpose.h"

#include <algorithm>

#include "runtime/simd.h"

namespace norch::matmul {
namespace {

/// A square of L * L, by interleaving row i with row i + L / 2 until every lane has its place.
template <int L, class T>
void transpose_square(const T* in, int64_t in_stride, T* out, int64_t out_stride) {
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

/// In squares of L * L; where one would hang over, it goes back over what is done. Does nothing if there is no room for one.
template <int L, class T>
bool transpose_squares(const T* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t out_stride) {
    if (rows < L || columns < L) return false;
    for (int64_t i = 0; i < rows; i += L) {
        for (int64_t j = 0; j < columns; j += L) {
            const int64_t r = std::min(i, rows - L), c = std::min(j, columns - L);
            transpose_square<L>(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
        }
    }
    return true;
}

}  // namespace

template <class T>
void transpose(const T* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t out_stride) {
    constexpr int L = SIMD_WIDTH<T>;
    if (transpose_squares<L>(in, in_stride, rows, columns, out, out_stride)) return;
    if constexpr (L >= 8)
        if (transpose_squares<L / 2>(in, in_stride, rows, columns, out, out_stride)) return;
    if constexpr (L >= 16)
        if (transpose_squares<L / 4>(in, in_stride, rows, columns, out, out_stride)) return;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) out[j * out_stride + i] = in[i * in_stride + j];
}

template void transpose(const float*, int64_t, int64_t, int64_t, float*, int64_t);
template void transpose(const double*, int64_t, int64_t, int64_t, double*, int64_t);

}  // namespace norch::matmul
