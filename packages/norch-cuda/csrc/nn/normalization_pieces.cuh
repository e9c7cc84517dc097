// Rows that are few and long: each is cut into pieces, of which blocks find the mean and what is summed around it. Every
// block of the next kernel puts those of its row together (T. Chan, G. Golub and R. LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979), in an order that is always the same.
#pragma once

#include "nn/normalization.cuh"
#include "runtime/allocator.h"

namespace norch::nn {

constexpr int PIECE_THREADS = 512;
constexpr int64_t LEAST_PIECE = 8192;

struct Pieces {
    int64_t size, n;
    int count;  // 1: rows are not to be cut

    Pieces(int64_t rows, int64_t row_size) : size(row_size), n(row_size), count(1) {
        if (rows < 1 || 2 * rows > multiprocessors() || n < 4 * LEAST_PIECE) return;
        const int64_t wanted = 4 * multiprocessors() / rows;
        size = std::max(LEAST_PIECE, ceil_div(ceil_div(n, wanted), 4096) * 4096);
        count = int(ceil_div(n, size));
    }
};

/// mean: of the piece, or 0. Sums of squares of what x is more than that, of the gradient, of the products of the two.
template <class C>
struct PieceSums {
    C mean, squares, grads, products;
};

/// grad: null where there is none.
template <class T, class G, int VEC>
__global__ void __launch_bounds__(PIECE_THREADS) piece_sums_kernel(const T* in, const G* grad, const Parameter weight,
                                                                   const Pieces p, bool is_centred,
                                                                   PieceSums<computed<T>>* to) {
    using C = computed<T>;
    const int64_t row = int64_t(blockIdx.y) * p.n, begin = int64_t(blockIdx.x) * p.size, end = min(begin + p.size, p.n);
    const int64_t first = begin + int64_t(threadIdx.x) * VEC, step = int64_t(PIECE_THREADS) * VEC;
    const C share = C(1) / C(end - begin);
    in += row;
    C mean = 0, sums[4] = {};  // of squares, numbers, gradients, products
    if (is_centred) {
#pragma unroll 4
        for (int64_t i = first; i < end; i += step) {
            C x[VEC];
            load_values<T, VEC>(x, in + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) mean += x[j];
        }
        mean = reduce_row<true, Sum>(mean, 0) * share;
    }
#pragma unroll 4
    for (int64_t i = first; i < end; i += step) {
        C x[VEC], g[VEC], w[VEC];
        load_values<T, VEC>(x, in + i);
        if (grad) {
            load_values<G, VEC>(g, grad + row + i);
            weight.load<T, VEC>(w, i, 1);
        }
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            const C away = x[j] - mean, part = grad ? g[j] * w[j] : C(0);
            sums[0] += away * away;
            sums[1] += away;
            sums[2] += part;
            sums[3] += part * away;
        }
    }
    reduce_row<true, Sum>(sums, 0);
    if (threadIdx.x) return;
    const C off = is_centred ? sums[1] * share : C(0);  // what the mean, which was rounded, lacks
    to[int64_t(blockIdx.y) * p.count + blockIdx.x] = {mean + off, sums[0] - off * sums[1], sums[2], sums[3] - off * sums[2]};
}

/// The mean of a row, and sums of squares of what x is more, of that (0), of the gradient, of the products of the two.
template <class C>
struct RowSums {
    C mean, sums[4] = {};

    __device__ RowSums(const PieceSums<C>* pieces, const Pieces& p, bool is_centred) {
        pieces += int64_t(blockIdx.y) * p.count;
        const auto size = [&](int k) { return C(k + 1 < p.count ? p.size : p.n - k * p.size); };
        C total = 0;
        for (int k = threadIdx.x; k < p.count; k += PIECE_THREADS) total += size(k) * pieces[k].mean;
        mean = reduce_row<true, Sum>(total, 0) / C(p.n);
        for (int k = threadIdx.x; k < p.count; k += PIECE_THREADS) {
            const PieceSums<C> piece = pieces[k];
            const C away = is_centred ? piece.mean - mean : C(0);
            sums[0] += piece.squares + size(k) * away * away;
            sums[2] += piece.grads;
            sums[3] += piece.products + piece.grads * away;
        }
        reduce_row<true, Sum>(sums, 0);
    }
};

}  // namespace norch::nn
