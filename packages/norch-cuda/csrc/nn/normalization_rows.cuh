// Rows of contiguous numbers less their mean, over their deviation, times weights, plus biases: one for each place of a row
// in layer_norm and rms_norm (normalization.cu), one for each channel in group_norm (groupnorm_forward.cu).
#pragma once

#include "common/staging.h"
#include "nn/normalization_pieces.cuh"

namespace norch::nn {

/// `affine.load<T, VEC>(weights, biases, row, i)` gives those of VEC numbers of a row from i on, which are several only where
/// `affine.has_packets(VEC)`.
template <class Affine>
struct NormRows {
    char* out;
    const char* in;
    const char* branch;  // what is added to `in`, in the result's type, or null
    char* total;         // where that sum goes
    Affine affine;
    int64_t rows, n;
    int lanes;
    bool is_centred;
    double eps;
};

template <class T, class S, int VEC, class A>
__device__ inline void store_normal(S* out, const NormRows<A>& a, int64_t row, int64_t i, const computed<T>* x,
                                    computed<T> off, computed<T> factor) {
    computed<T> weight[VEC], bias[VEC];
    a.affine.template load<T, VEC>(weight, bias, row, i);
#pragma unroll
    for (int j = 0; j < VEC; ++j) weight[j] = (x[j] - off) * factor * weight[j] + bias[j];
    store_values<S, VEC>(out + i, weight);
}

/// Two passes over registers, so that a mean that is large next to the deviation does no harm. S: the result's type.
template <class A, class T, class S, int VEC, int K, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? MAX_THREADS : ROW_THREADS) norm_kernel(
    const __grid_constant__ NormRows<A> a) {
    using C = computed<T>;
    const RowPlace<BLOCK> at(a.lanes);
    const C share = C(1) / C(a.n);
    for (int64_t first = int64_t(blockIdx.x) * at.groups; first < a.rows; first += int64_t(gridDim.x) * at.groups) {
        const int64_t row = first + at.group;
        const int width = BLOCK || row < a.rows ? int(a.n) : 0;
        C x[K * VEC], mean = 0, sums[2] = {};
        load_row<T, VEC, K>(x, reinterpret_cast<const T*>(a.in) + row * a.n, width, at.lanes, at.lane, C(0));
        if constexpr (!std::is_same_v<T, S>) {
            if (a.branch) {
                C more[K * VEC];
                load_row<S, VEC, K>(more, reinterpret_cast<const S*>(a.branch) + row * a.n, width, at.lanes, at.lane, C(0));
#pragma unroll
                for (int i = 0; i < K * VEC; ++i) x[i] += more[i];
                store_row<T, VEC, K>(reinterpret_cast<T*>(a.total) + row * a.n, x, width, at.lanes, at.lane);
            }
        }
        if (a.is_centred) {
#pragma unroll
            for (int i = 0; i < K * VEC; ++i) mean += x[i];
            mean = reduce_row<BLOCK, Sum>(mean, at.lanes) * share;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if ((k * at.lanes + at.lane) * VEC < width) {
#pragma unroll
                for (int i = k * VEC; i < k * VEC + VEC; ++i) {
                    x[i] -= mean;
                    sums[0] += x[i] * x[i];
                    sums[1] += x[i];
                }
            }
        }
        reduce_row<BLOCK, Sum>(sums, at.lanes);
        const Centre<C> centre(sums, share, a.is_centred);
        const C factor = C(1) / std::sqrt(centre.variance + C(a.eps));
        S* out = reinterpret_cast<S*>(a.out) + row * a.n;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int i = (k * at.lanes + at.lane) * VEC;
            if (i < width) store_normal<T, S, VEC>(out, a, row, i, x + k * VEC, centre.off, factor);
        }
    }
}

template <class A, class T, class S, int VEC>
__global__ void __launch_bounds__(MAX_THREADS) norm_loop_kernel(const __grid_constant__ NormRows<A> a) {
    using C = computed<T>;
    const int64_t step = int64_t(blockDim.x) * VEC, start = int64_t(threadIdx.x) * VEC;
    const C share = C(1) / C(a.n);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        S* out = reinterpret_cast<S*>(a.out) + row * a.n;
        C mean = 0, sums[2] = {};
        if constexpr (!std::is_same_v<T, S>) {
            if (a.branch) {
                T* total = reinterpret_cast<T*>(a.total) + row * a.n;
                const S* branch = reinterpret_cast<const S*>(a.branch) + row * a.n;
                for (int64_t i = start; i < a.n; i += step)
                    for (int j = 0; j < VEC; ++j) total[i + j] = in[i + j] + C(upcast(branch[i + j]));
                in = total;  // of which each thread reads what it wrote
            }
        }
        if (a.is_centred) {
#pragma unroll 4
            for (int64_t i = start; i < a.n; i += step) {
                C x[VEC];
                load_values<T, VEC>(x, in + i);
#pragma unroll
                for (int j = 0; j < VEC; ++j) mean += x[j];
            }
            mean = reduce_row<true, Sum>(mean, 0) * share;
        }
#pragma unroll 4
        for (int64_t i = start; i < a.n; i += step) {
            C x[VEC];
            load_values<T, VEC>(x, in + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                sums[0] += (x[j] - mean) * (x[j] - mean);
                sums[1] += x[j] - mean;
            }
        }
        reduce_row<true, Sum>(sums, 0);
        const Centre<C> centre(sums, share, a.is_centred);
        const C factor = C(1) / std::sqrt(centre.variance + C(a.eps));
#pragma unroll 2
        for (int64_t i = start; i < a.n; i += step) {
            C x[VEC];
            load_values<T, VEC>(x, in + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[j] -= mean;
            store_normal<T, S, VEC>(out, a, row, i, x, centre.off, factor);
        }
    }
}

template <class A, class T, int VEC>
__global__ void __launch_bounds__(PIECE_THREADS) norm_pieces_kernel(const __grid_constant__ NormRows<A> a, const Pieces p,
                                                                    const PieceSums<computed<T>>* pieces) {
    using C = computed<T>;
    const RowSums<C> of(pieces, p, a.is_centred);
    const C factor = C(1) / std::sqrt(of.sums[0] / C(p.n) + C(a.eps));
    const int64_t row = int64_t(blockIdx.y) * p.n, begin = int64_t(blockIdx.x) * p.size, end = min(begin + p.size, p.n);
#pragma unroll 4
    for (int64_t i = begin + int64_t(threadIdx.x) * VEC; i < end; i += int64_t(PIECE_THREADS) * VEC) {
        C x[VEC];
        load_values<T, VEC>(x, reinterpret_cast<const T*>(a.in) + row + i);
        store_normal<T, T, VEC>(reinterpret_cast<T*>(a.out) + row, a, blockIdx.y, i, x, of.mean, factor);
    }
}

template <class T, class A>
void launch_pieces(const NormRows<A>& a, const Pieces& p, bool has_packets) {
    const Scratch<PieceSums<computed<T>>> sums(size_t(a.rows * p.count));
    const dim3 grid{unsigned(p.count), unsigned(a.rows)};
    const auto both = [&]<int VEC>(std::integral_constant<int, VEC>) {
        const T *in = reinterpret_cast<const T*>(a.in), *none = nullptr;
        launch_kernel(A::NAME, piece_sums_kernel<T, T, VEC>, grid, PIECE_THREADS, in, none, Parameter{}, p, a.is_centred,
                      sums.data());
        launch_kernel(A::NAME, norm_pieces_kernel<A, T, VEC>, grid, PIECE_THREADS, a, p, sums.data());
    };
    if (has_packets) both(std::integral_constant<int, PER_16_BYTES<T>>{});
    else both(std::integral_constant<int, 1>{});
}

/// 64 bytes of a row in each thread of a warp, 8 numbers in each thread of a block: blocks come and go while others wait,
/// and rows of 768 numbers took 41 us instead of the 52 that a warp for each took.
template <class T>
using KeptNormRows = Kept<T, sizeof(T) == 2 ? 2 : 4, sizeof(T) == 2 ? 1 : 2, 16, true>;

template <class T, class S, class A>
void launch_norm(NormRows<A>& a) {
    const auto &weight = a.affine.weight, &bias = a.affine.bias;
    const bool has_packets = a.affine.has_packets(PER_16_BYTES<T>) &&
                             rows_have_packets<T>(a.n, {a.out, a.in, a.branch, a.total, weight.data, bias.data});
    if constexpr (std::is_same_v<T, S>) {
        if (const Pieces pieces(a.rows, a.n); pieces.count > 1) return launch_pieces<T>(a, pieces, has_packets);
    }
    const RowPlan plan = plan_rows(a.n, has_packets, KeptNormRows<T>::keep);
    const unsigned blocks = plan.blocks(a.rows);
    a.lanes = plan.lanes;
    with_row_access<KeptNormRows<T>>(plan, [&]<int VEC, int K, bool BLOCK>(RowAccess<VEC, K, BLOCK>) {
        if constexpr (K > 0) launch_kernel(A::NAME, norm_kernel<A, T, S, VEC, K, BLOCK>, blocks, plan.threads, a);
        else launch_kernel(A::NAME, norm_loop_kernel<A, T, S, VEC>, blocks, plan.threads, a);
    });
}

/// The kernel of a request for out and input, in rows of one dtype as `fixed` has them, weight and bias where they are given.
template <class A>
KernelPtr affine_norm(const Request& request, NormRows<A> fixed) {
    const Operand& out = request.operands[0];
    const auto& given = request.attrs.integers("given");
    const int weight = given[1] ? 2 : 0, bias = fixed.is_centred && given[2] ? 2 + int(given[1]) : 0;
    std::vector<DType> wanted(2, out.dtype);
    for (size_t i = 2; i < request.operands.size(); ++i) wanted.push_back(parameter_dtype(request.operands[i], out));
    fixed.eps = request.attrs.number("eps");
    fixed.affine.weight.is_upcast = wanted[size_t(weight)] != out.dtype;
    fixed.affine.bias.is_upcast = wanted[size_t(bias)] != out.dtype;
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            NormRows<A> a = fixed;
            a.out = data[0];
            a.in = data[1];
            a.affine.weight.data = weight ? data[weight] : nullptr;
            a.affine.bias.data = bias ? data[bias] : nullptr;
            launch_norm<T, T>(a);
        });
    });
    return Staged::make(request, 1, wanted, std::move(body));
}

}  // namespace norch::nn
