// The gradients of layer_norm and rms_norm. Those of weight and bias are sums over rows, in two stages: the parts of the
// first kernel add up rows of their own, a second kernel adds up the parts; both in an order that is always the same.
#include "nn/normalization_pieces.cuh"

namespace norch::nn {
namespace {

struct GradRows {
    char* out;
    const char *grad, *in;
    Parameter weight;
    int64_t rows, n;
    int lanes;
    bool is_centred;
    double eps;
    char* parts;  // for each warp, or block, the sums of its rows: of grad * x and, if is_centred, of grad. May be null
    char* stats;  // where rows are long: mean, what it lacks and scale of each, for the kernel that adds up columns
    const char* residual;  // what is added to the result, which may be that, or null
    char* also;            // the result in the gradient's type too, or null
};
constexpr int STATS = 3;

/// The numbers that the gradients of a row's elements have in common.
template <class C>
struct Slope {
    C off, scale, shift, slope;

    /// sums: of squares of x, of x, of the gradient, of the products of the two.
    __device__ Slope(const C (&sums)[4], C share, const GradRows& a) {
        const Centre<C> centre(sums, share, a.is_centred);
        const C square = centre.variance + C(a.eps);
        off = centre.off;
        scale = a.is_centred && share == C(1) ? C(0) : C(1) / std::sqrt(square);  // one element is normalised to 0
        shift = a.is_centred ? sums[2] * share : C(0);
        slope = (sums[3] - off * sums[2]) * share / square;
    }
    __device__ C normal(C x) const { return (x - off) * scale; }
    __device__ C operator()(C g, C x) const { return (g - shift - (x - off) * slope) * scale; }
};

/// Brings what `load_row` will load nearer, without registers for it: rows of 768 numbers took 55 us instead of 62.
template <class T, int VEC, int K>
__device__ inline void prefetch_row(const T* row, int n, int lanes, int lane) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int i = (k * lanes + lane) * VEC;
        if (i < n) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + i));
    }
}

/// G: the type of `grad`, T or 16 bits beside a T of float.
template <class T, class G, int VEC, int K, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? MAX_THREADS : ROW_THREADS) norm_grad_kernel(
    const __grid_constant__ GradRows a) {
    using C = computed<T>;
    constexpr int E = VEC * K;
    const RowPlace<BLOCK> at(a.lanes);
    const C share = C(1) / C(a.n);
    C weight[E], to_weight[E] = {}, to_bias[E] = {};
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int i = (k * at.lanes + at.lane) * VEC;
        if (i < a.n) a.weight.load<T, VEC>(weight + k * VEC, i, 1);
    }
    for (int64_t first = int64_t(blockIdx.x) * at.groups; first < a.rows; first += int64_t(gridDim.x) * at.groups) {
        const int64_t row = first + at.group, start = row * a.n;
        const int width = BLOCK || row < a.rows ? int(a.n) : 0;
        C x[E], g[E], mean = 0, sums[4] = {};
        load_row<T, VEC, K>(x, reinterpret_cast<const T*>(a.in) + start, width, at.lanes, at.lane, C(0));
        load_row<G, VEC, K>(g, reinterpret_cast<const G*>(a.grad) + start, width, at.lanes, at.lane, C(0));
        if (a.residual) prefetch_row<T, VEC, K>(reinterpret_cast<const T*>(a.residual) + start, width, at.lanes, at.lane);
        if (a.is_centred) {
#pragma unroll
            for (int i = 0; i < E; ++i) mean += x[i];
            mean = reduce_row<BLOCK, Sum>(mean, at.lanes) * share;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if ((k * at.lanes + at.lane) * VEC < width) {
#pragma unroll
                for (int i = k * VEC; i < k * VEC + VEC; ++i) {
                    const C part = g[i] * weight[i];
                    x[i] -= mean;
                    sums[0] += x[i] * x[i];
                    sums[1] += x[i];
                    sums[2] += part;
                    sums[3] += part * x[i];
                }
            }
        }
        reduce_row<BLOCK, Sum>(sums, at.lanes);
        const Slope<C> of(sums, share, a);
        T* out = reinterpret_cast<T*>(a.out) + start;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int i = (k * at.lanes + at.lane) * VEC;
            if (i < width) {
                C y[VEC];
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    const int e = k * VEC + j;
                    y[j] = of(g[e] * weight[e], x[e]);
                    to_weight[e] += g[e] * of.normal(x[e]);
                    to_bias[e] += g[e];
                }
                if (a.residual) {
                    C more[VEC];
                    load_values<T, VEC>(more, reinterpret_cast<const T*>(a.residual) + start + i);
#pragma unroll
                    for (int j = 0; j < VEC; ++j) y[j] += more[j];
                }
                store_values<T, VEC>(out + i, y);
                if (a.also) store_values<G, VEC>(reinterpret_cast<G*>(a.also) + start + i, y);
            }
        }
    }
    if (!a.parts) return;
    // The rows that a warp had side by side share one part.
    for (int o = BLOCK ? WARP : at.lanes; o < WARP; o *= 2) {
#pragma unroll
        for (int e = 0; e < E; ++e) {
            to_weight[e] += __shfl_xor_sync(EVERY_LANE, to_weight[e], o);
            to_bias[e] += __shfl_xor_sync(EVERY_LANE, to_bias[e], o);
        }
    }
    const int64_t part = BLOCK ? blockIdx.x : int64_t(blockIdx.x) * (ROW_THREADS / WARP) + threadIdx.x / WARP;
    if (!BLOCK && threadIdx.x % WARP >= at.lanes) return;
    C* to = reinterpret_cast<C*>(a.parts) + part * a.n * (a.is_centred ? 2 : 1);
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int i = (k * at.lanes + at.lane) * VEC;
        if (i >= a.n) break;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            to[i + j] = to_weight[k * VEC + j];
            if (a.is_centred) to[a.n + i + j] = to_bias[k * VEC + j];
        }
    }
}

/// Rows that registers do not hold.
template <class T, class G>
__global__ void __launch_bounds__(MAX_THREADS) norm_grad_loop_kernel(const __grid_constant__ GradRows a) {
    using C = computed<T>;
    const C share = C(1) / C(a.n);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        const G* grad = reinterpret_cast<const G*>(a.grad) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        C mean = 0, sums[4] = {};
        if (a.is_centred) {
#pragma unroll 4
            for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) mean += C(upcast(in[i]));
            mean = reduce_row<true, Sum>(mean, 0) * share;
        }
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
            const C x = C(upcast(in[i])) - mean, g = C(upcast(grad[i])) * a.weight.at<T>(i, 1);
            sums[0] += x * x;
            sums[1] += x;
            sums[2] += g;
            sums[3] += g * x;
        }
        reduce_row<true, Sum>(sums, 0);
        const Slope<C> of(sums, share, a);
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
            C y = of(C(upcast(grad[i])) * a.weight.at<T>(i, 1), C(upcast(in[i])) - mean);
            if (a.residual) y += C(upcast(reinterpret_cast<const T*>(a.residual)[row * a.n + i]));
            out[i] = downcast<T>(y);
            if (a.also) reinterpret_cast<G*>(a.also)[row * a.n + i] = downcast<G>(y);
        }
        if (a.stats && threadIdx.x == 0) {
            C* stats = reinterpret_cast<C*>(a.stats) + STATS * row;
            stats[0] = mean, stats[1] = of.off, stats[2] = of.scale;
        }
    }
}

template <class T, class G, int VEC>
__global__ void __launch_bounds__(PIECE_THREADS) norm_grad_pieces_kernel(const __grid_constant__ GradRows a, const Pieces p,
                                                                         const PieceSums<computed<T>>* pieces) {
    using C = computed<T>;
    const RowSums<C> row(pieces, p, a.is_centred);
    const Slope<C> of(row.sums, C(1) / C(p.n), a);
    const int64_t start = int64_t(blockIdx.y) * p.n, begin = int64_t(blockIdx.x) * p.size, end = min(begin + p.size, p.n);
#pragma unroll 4
    for (int64_t i = begin + int64_t(threadIdx.x) * VEC; i < end; i += int64_t(PIECE_THREADS) * VEC) {
        C x[VEC], g[VEC], w[VEC];
        load_values<T, VEC>(x, reinterpret_cast<const T*>(a.in) + start + i);
        load_values<G, VEC>(g, reinterpret_cast<const G*>(a.grad) + start + i);
        a.weight.load<T, VEC>(w, i, 1);
#pragma unroll
        for (int j = 0; j < VEC; ++j) x[j] = of(g[j] * w[j], x[j] - row.mean);
        if (a.residual) {
            load_values<T, VEC>(g, reinterpret_cast<const T*>(a.residual) + start + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) x[j] += g[j];
        }
        store_values<T, VEC>(reinterpret_cast<T*>(a.out) + start + i, x);
        if (a.also) store_values<G, VEC>(reinterpret_cast<G*>(a.also) + start + i, x);
    }
    if (a.stats && blockIdx.x == 0 && threadIdx.x == 0) {
        C* stats = reinterpret_cast<C*>(a.stats) + STATS * blockIdx.y;
        stats[0] = row.mean, stats[1] = of.off, stats[2] = of.scale;
    }
}

template <class T, class G>
void launch_pieces(const GradRows& a, const Pieces& p, bool has_packets) {
    const char* what = "the gradient of layer_norm";
    const Scratch<PieceSums<computed<T>>> sums(size_t(a.rows * p.count));
    const dim3 grid{unsigned(p.count), unsigned(a.rows)};
    const auto both = [&]<int VEC>(std::integral_constant<int, VEC>) {
        launch_kernel(what, piece_sums_kernel<T, G, VEC>, grid, PIECE_THREADS, reinterpret_cast<const T*>(a.in),
                      reinterpret_cast<const G*>(a.grad), a.weight, p, a.is_centred, sums.data());
        launch_kernel(what, norm_grad_pieces_kernel<T, G, VEC>, grid, PIECE_THREADS, a, p, sums.data());
    };
    if (has_packets) both(std::integral_constant<int, PER_16_BYTES<T>>{});
    else both(std::integral_constant<int, 1>{});
}

constexpr int COLUMN_THREADS = 8;  // threads that share a column

template <class T, class G>
__global__ void __launch_bounds__(WARP * COLUMN_THREADS) norm_columns_kernel(const __grid_constant__ GradRows a) {
    using C = computed<T>;
    __shared__ C shared[2][COLUMN_THREADS][WARP];
    const int64_t i = int64_t(blockIdx.x) * WARP + threadIdx.x;
    const C* stats = reinterpret_cast<const C*>(a.stats);
    C to_weight = 0, to_bias = 0;
    if (i < a.n) {
#pragma unroll 4
        for (int64_t row = int64_t(blockIdx.y) * COLUMN_THREADS + threadIdx.y; row < a.rows; row += int64_t(gridDim.y) * COLUMN_THREADS) {
            const C x = C(upcast(reinterpret_cast<const T*>(a.in)[row * a.n + i]));
            const C g = C(upcast(reinterpret_cast<const G*>(a.grad)[row * a.n + i]));
            const C* found = stats + STATS * row;
            to_weight += g * ((x - found[0] - found[1]) * found[2]);
            to_bias += g;
        }
    }
    shared[0][threadIdx.y][threadIdx.x] = to_weight;
    shared[1][threadIdx.y][threadIdx.x] = to_bias;
    __syncthreads();
    if (i >= a.n || threadIdx.y >= (a.is_centred ? 2 : 1)) return;
    C sum = 0;
    for (int k = 0; k < COLUMN_THREADS; ++k) sum += shared[threadIdx.y][k][threadIdx.x];
    reinterpret_cast<C*>(a.parts)[(int64_t(blockIdx.y) * (a.is_centred ? 2 : 1) + threadIdx.y) * a.n + i] = sum;
}

/// out[i] = the sum of the i-th elements of `count` parts, of which n go to weight and, if there are more, n to bias.
template <class C>
__global__ void __launch_bounds__(WARP * WARP) finish_kernel(C* to_weight, C* to_bias, const C* parts, int64_t count,
                                                             int64_t n) {
    __shared__ double shared[WARP][WARP + 1];
    const int64_t i = int64_t(blockIdx.x) * WARP + threadIdx.x, width = to_bias ? 2 * n : n;
    double sum = 0;
    if (i < width) {
#pragma unroll 4
        for (int64_t k = threadIdx.y; k < count; k += WARP) sum += double(parts[k * width + i]);
    }
    shared[threadIdx.x][threadIdx.y] = sum;
    __syncthreads();
    double v[1] = {shared[threadIdx.y][threadIdx.x]};
    reduce_lanes<Sum>(v, WARP);
    const int64_t to = int64_t(blockIdx.x) * WARP + threadIdx.y;
    if (threadIdx.x == 0 && to < width) (to < n ? to_weight + to : to_bias + (to - n))[0] = C(v[0]);
}

/// 64 bytes of a row in each thread of a warp, 8 numbers in each thread of a block: four of each are kept.
template <class T>
using KeptGradRows = Kept<T, sizeof(T) == 2 ? 2 : 4, sizeof(T) == 2 ? 1 : 2, 8, false>;

template <class T, class G = T>
void launch(GradRows& a, bool is_affine, char* to_weight, char* to_bias) {
    using C = computed<T>;
    const bool has_packets = rows_have_packets<T>(a.n, {a.out, a.grad, a.in, a.weight.data, a.residual, a.also});
    const RowPlan plan = plan_rows(a.n, has_packets, KeptGradRows<T>::keep);
    const bool is_loop = plan.kind == RowPlan::loop_packets || plan.kind == RowPlan::loop_single;
    const bool is_block = plan.kind == RowPlan::block_packets;
    const unsigned blocks = plan.blocks(a.rows, is_affine && !is_loop ? std::max(1, 1024 / plan.threads) : 64);
    const int64_t columns = ceil_div(a.n, WARP);
    const int64_t tall = std::min(ceil_div(a.rows, 4 * COLUMN_THREADS), ceil_div(int64_t(multiprocessors()) * 16, columns));
    int64_t parts = is_loop ? tall : is_block ? blocks : int64_t(blocks) * (ROW_THREADS / WARP);
    if (!is_affine || !a.rows) parts = 0;
    const Scratch<C> part_scratch(std::max<int64_t>(1, parts * a.n * (to_bias ? 2 : 1)));
    const Scratch<C> stat_scratch(is_affine && is_loop ? std::max<int64_t>(1, a.rows * STATS) : 1);
    a.parts = is_affine ? reinterpret_cast<char*>(part_scratch.data()) : nullptr;
    a.stats = is_affine ? reinterpret_cast<char*>(stat_scratch.data()) : nullptr;
    a.lanes = plan.lanes;
    const cudaStream_t stream = stream_handle();
    if (a.rows) {
        with_row_access<KeptGradRows<T>>(plan, [&]<int VEC, int K, bool BLOCK>(RowAccess<VEC, K, BLOCK>) {
            if constexpr (K > 0) {
                norm_grad_kernel<T, G, VEC, K, BLOCK><<<blocks, plan.threads, 0, stream>>>(a);
            } else {
                if (const Pieces pieces(a.rows, a.n); pieces.count > 1) launch_pieces<T, G>(a, pieces, has_packets);
                else norm_grad_loop_kernel<T, G><<<blocks, plan.threads, 0, stream>>>(a);
                const dim3 grid{unsigned(columns), unsigned(tall)};
                if (is_affine) norm_columns_kernel<T, G><<<grid, dim3(WARP, COLUMN_THREADS), 0, stream>>>(a);
            }
        });
    }
    if (is_affine) {
        const unsigned grid = unsigned(ceil_div(to_bias ? 2 * a.n : a.n, WARP));
        finish_kernel<<<grid, dim3(WARP, WARP), 0, stream>>>(reinterpret_cast<C*>(to_weight),
                                                            reinterpret_cast<C*>(to_bias),
                                                            reinterpret_cast<const C*>(a.parts), parts, a.n);
    }
    check_launch("the gradient of layer_norm");
}

/// out and, if affine, the gradients of weight and bias; grad, input, weight where it is given
template <bool Centred>
KernelPtr backward(const Request& request) {
    const bool is_affine = request.attrs.flag("affine");
    const int outputs = is_affine ? Centred ? 3 : 2 : 1;
    const Operand& out = request.operands[0];
    if (!fits(request, out)) return nullptr;
    const bool is_weighted = request.attrs.integers("given")[2];
    GradRows fixed = {};
    fixed.n = row_size(request);
    if (!fixed.n || (!is_affine && !out.numel())) return make_kernel(0, [](char* const*, const Scalar*) {});
    fixed.rows = out.numel() / fixed.n;
    fixed.is_centred = Centred;
    fixed.eps = request.attrs.number("eps");
    std::vector<DType> wanted(request.operands.size(), out.dtype);
    for (int i = 1; i < outputs; ++i) wanted[size_t(i)] = computed_dtype(out.dtype);
    if (is_weighted) {
        wanted.back() = parameter_dtype(request.operands.back(), out);
        fixed.weight.is_upcast = wanted.back() != out.dtype;
    }
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            GradRows a = fixed;
            a.out = data[0];
            a.grad = data[outputs];
            a.in = data[outputs + 1];
            a.weight.data = is_weighted ? data[outputs + 2] : nullptr;
            launch<T>(a, is_affine, is_affine ? data[1] : nullptr, outputs == 3 ? data[2] : nullptr);
        });
    });
    return Staged::make(request, outputs, wanted, std::move(body));
}

/// total, the gradients of weight and bias, total in 16 bits if asked for; grad, input, residual and weight if given
KernelPtr residual_norm_backward(const Request& request) {
    const auto& given = request.attrs.integers("given");
    const int also = request.attrs.text("also").empty() ? 0 : 3, outputs = also ? 4 : 3;
    const Operand &out = request.operands[0], &grad = request.operands[size_t(outputs)];
    if (out.dtype != DType::f32 || request.operands[size_t(outputs) + 1].dtype != DType::f32) return nullptr;
    if (also && request.operands[3].dtype != grad.dtype) return nullptr;
    if (!is_half(grad.dtype) && (grad.dtype != DType::f32 || also)) return nullptr;
    GradRows fixed = {};
    fixed.n = row_size(request);
    if (!fixed.n) return nullptr;
    fixed.rows = out.numel() / fixed.n;
    fixed.is_centred = true;
    fixed.eps = request.attrs.number("eps");
    std::vector<DType> wanted(request.operands.size(), DType::f32);
    wanted[size_t(outputs)] = grad.dtype;
    if (also) wanted[3] = grad.dtype;
    const int residual = given[2] ? outputs + 2 : 0, weight = given[3] ? outputs + 2 + int(given[2]) : 0;
    const auto make = [&]<class G>(Tag<G>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            GradRows a = fixed;
            a.out = data[0];
            a.grad = data[outputs];
            a.in = data[outputs + 1];
            a.residual = residual ? data[residual] : nullptr;
            a.weight.data = weight ? data[weight] : nullptr;
            a.also = also ? data[also] : nullptr;
            launch<float, G>(a, true, data[1], data[2]);
        });
    };
    KernelPtr body = is_half(grad.dtype) ? visit_half(grad.dtype, make) : make(Tag<float>{});
    return Staged::make(request, outputs, wanted, std::move(body));
}

}  // namespace

KernelPtr residual_norm_grad(const Request& request) { return residual_norm_backward(request); }
KernelPtr layer_norm_grad(const Request& request) { return backward<true>(request); }
KernelPtr rms_norm_grad(const Request& request) { return backward<false>(request); }

}  // namespace norch::nn
