// multi_margin_rows and its gradient: a warp for each row of scores, which it reads once.
#include "common/staging.h"
#include "nn/target_counts.cuh"

namespace norch::nn {
namespace {
namespace margin_rows {

constexpr int WARPS = THREADS / 32, ROW_BLOCKS = 16;  // rows of a block at a time; blocks for each multiprocessor

struct Margins {
    char* out;
    const char *grads, *in;
    int64_t rows, n;
    double margin;
    bool is_squared;
    Targets targets;
};

/// Calls body(row, index, edge) for the rows of a warp; a score above -edge is too near that of the target.
template <class T, class F>
__device__ inline void each_row(const Margins& a, const F& body) {
    for (int64_t row = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32; row < a.rows; row += int64_t(gridDim.x) * WARPS) {
        const int64_t index = a.targets(row);
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        body(row, index, in, index < 0 ? computed<T>(0) : computed<T>(a.margin) - computed<T>(upcast(in[index])));
    }
}

template <class C>
__device__ inline C over_lanes(C sum) {
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

template <class T>
__global__ void __launch_bounds__(THREADS) losses_kernel(const __grid_constant__ Margins a) {
    using C = computed<T>;
    const int lane = threadIdx.x % 32;
    each_row<T>(a, [&](int64_t row, int64_t index, const T* in, C edge) {
        C sum = 0;
#pragma unroll 4
        for (int64_t i = lane; i < (index < 0 ? 0 : a.n); i += 32) {
            const C excess = edge + C(upcast(in[i]));
            if (i != index && !(excess <= 0)) sum += a.is_squared ? excess * excess : excess;
        }
        sum = over_lanes(sum);
        if (lane == 0) reinterpret_cast<T*>(a.out)[row] = downcast<T>(sum / C(a.n));
    });
}

template <class T>
__global__ void __launch_bounds__(THREADS) grads_kernel(const __grid_constant__ Margins a) {
    using C = computed<T>;
    const int lane = threadIdx.x % 32;
    each_row<T>(a, [&](int64_t row, int64_t index, const T* in, C edge) {
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        const C scale = index < 0 ? C(0) : C(upcast(reinterpret_cast<const T*>(a.grads)[row])) / C(a.n);
        C sum = 0;
#pragma unroll 4
        for (int64_t i = lane; i < a.n; i += 32) {
            const C excess = edge + C(upcast(in[i]));
            C step = 0;
            if (index >= 0 && a.is_squared && !(excess <= 0)) step = 2 * excess * scale;
            if (index >= 0 && !a.is_squared && excess > 0) step = scale;
            if (i == index) continue;
            sum += step;
            out[i] = downcast<T>(step);
        }
        sum = over_lanes(sum);
        if (lane == 0 && index >= 0) out[index] = downcast<T>(-sum);
    });
}

/// out, the gradients of the losses where `has_grads`, input, target
KernelPtr make(const Request& request, bool has_grads) {
    const size_t at = has_grads ? 2 : 1;
    if (!are_tensors(request, at + 2)) return nullptr;
    const Operand &out = request.operands[0], &input = request.operands[at], &target = request.operands[at + 1];
    if (!are_plain(input, target) || input.ndim() != 2) return nullptr;
    for (size_t i = 0; i < at; ++i)
        if (request.operands[i].dtype != input.dtype) return nullptr;
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    Margins fixed = {};
    fixed.rows = input.shape[0], fixed.n = input.shape[1];
    fixed.margin = request.attrs.number("margin");
    fixed.is_squared = request.attrs.integer("p") == 2;
    fixed.targets.dtype = target.dtype, fixed.targets.classes = fixed.n;
    fixed.targets.ignored = INT64_MIN, fixed.targets.op = op_number("multi_margin_loss");
    KernelPtr body = visit_floating_device(input.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            Margins a = fixed;
            a.out = data[0];
            a.grads = has_grads ? data[1] : nullptr;
            a.in = data[at];
            a.targets.data = data[at + 1];
            a.targets.sink = error_sink();
            const int64_t most = int64_t(multiprocessors()) * ROW_BLOCKS;
            const unsigned blocks = unsigned(std::min(ceil_div(a.rows, WARPS), most));
            launch_kernel("multi_margin_loss", has_grads ? grads_kernel<T> : losses_kernel<T>, blocks, THREADS, a);
        });
    });
    std::vector<DType> wanted(at + 1, input.dtype);
    wanted.push_back(target.dtype);
    return Staged::make(request, 1, wanted, std::move(body));
}

}  // namespace margin_rows
}  // namespace

void add_margins(Registry& registry) {
    registry["multi_margin_rows"] = [](const Request& request) { return margin_rows::make(request, false); };
    registry["multi_margin_rows_grad"] = [](const Request& request) { return margin_rows::make(request, true); };
}

}  // namespace norch::nn
