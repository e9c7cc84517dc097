// softmax and log_softmax along a dim, their gradients, and cross_entropy, which picks from the log_softmax.
#include "nn/softmax_rows.cuh"
#include "runtime/families.h"
#include "common/staging.h"

namespace norch::nn {
namespace {

// --- Columns --------------------------------------------------------------------------------------------------------

/// Along another dim than the last: column c is element c % inner of block c / inner, its elements `inner` apart.
struct Columns {
    char* out;
    const char *in, *y;  // y for the gradients only
    int64_t columns, n, inner;
    bool is_log;
};

/// Threads of one column are blockDim.x apart.
template <class Op, class C>
__device__ inline C reduce_column(C value, C* shared) {
    __syncthreads();
    shared[threadIdx.y * blockDim.x + threadIdx.x] = value;
    __syncthreads();
    for (int k = 0; k < int(blockDim.y); ++k) {
        const C other = shared[k * blockDim.x + threadIdx.x];
        value = k ? Op::apply(value, other) : other;
    }
    return value;
}

template <class T>
__global__ void __launch_bounds__(THREADS) softmax_columns_kernel(const Columns a) {
    using C = computed<T>;
    __shared__ C shared[THREADS];
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool is_column = c < a.columns;
    const int64_t start = is_column ? c / a.inner * a.n * a.inner + c % a.inner : 0, n = is_column ? a.n : 0;
    const T* in = reinterpret_cast<const T*>(a.in) + start;
    T* out = reinterpret_cast<T*>(a.out) + start;
    Online<C> found;
    constexpr int UNROLL = 8;
    int64_t first = threadIdx.y;
    for (; first + (UNROLL - 1) * blockDim.y < n; first += UNROLL * blockDim.y) {
        C x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) x[u] = C(upcast(in[(first + u * blockDim.y) * a.inner]));
        found.add(x);
    }
    for (; first < n; first += blockDim.y) {
        const C x[1] = {C(upcast(in[first * a.inner]))};
        found.add(x);
    }
    const C largest = reduce_column<Largest>(found.largest, shared);
    found.move_to(largest);
    const C sum = reduce_column<Sum>(found.sum, shared);
    const C last = a.is_log ? std::log(sum) : C(1) / sum;
#pragma unroll 8
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y) {
        const C x = C(upcast(in[k * a.inner])) - largest;
        out[k * a.inner] = downcast<T>(a.is_log ? x - last : std::exp(x) * last);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) softmax_grad_columns_kernel(const Columns a) {
    using C = computed<T>;
    __shared__ C shared[THREADS];
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool is_column = c < a.columns;
    const int64_t start = is_column ? c / a.inner * a.n * a.inner + c % a.inner : 0, n = is_column ? a.n : 0;
    const T *grad = reinterpret_cast<const T*>(a.in) + start, *y = reinterpret_cast<const T*>(a.y) + start;
    T* out = reinterpret_cast<T*>(a.out) + start;
    C sum = 0;
#pragma unroll 4
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y)
        sum += share_of(a.is_log, C(upcast(grad[k * a.inner])), C(upcast(y[k * a.inner])));
    sum = reduce_column<Sum>(sum, shared);
#pragma unroll 4
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y)
        out[k * a.inner] =
            downcast<T>(gradient_of(a.is_log, C(upcast(grad[k * a.inner])), C(upcast(y[k * a.inner])), sum));
}

// --- Launches -------------------------------------------------------------------------------------------------------

template <class T>
void launch_softmax(SoftmaxRows& a, const RowPlan& plan, unsigned blocks) {
    a.lanes = plan.lanes;
    with_row_access<KeptRows<T>>(plan, [&]<int VEC, int K, bool BLOCK>(RowAccess<VEC, K, BLOCK>) {
        const char* what = "softmax";
        if constexpr (K > 0)
            launch_kernel(what, softmax_kernel<T, VEC, K, BLOCK>, blocks, plan.threads, a);
        else if (are_aligned_alike<T>(a.out, a.in))
            launch_kernel(what, softmax_loop_kernel<T, PER_16_BYTES<T>>, blocks, plan.threads, a);
        else
            launch_kernel(what, softmax_loop_kernel<T, 1>, blocks, plan.threads, a);
    });
}

template <class T>
void launch_softmax_grad(GradRows& a, const RowPlan& plan, unsigned blocks) {
    a.lanes = plan.lanes;
    with_row_access<KeptRows<T>>(plan, [&]<int VEC, int K, bool BLOCK>(RowAccess<VEC, K, BLOCK>) {
        const char* what = "the gradient of softmax";
        if constexpr (K > 0) launch_kernel(what, softmax_grad_kernel<T, VEC, K, BLOCK>, blocks, plan.threads, a);
        else launch_kernel(what, softmax_grad_loop_kernel<T, VEC>, blocks, plan.threads, a);
    });
}

template <class T>
void launch_columns(const Columns& a) {
    const int width = power_of_two(a.columns, WARP);
    const dim3 threads(width, THREADS / width);
    const unsigned blocks = unsigned(ceil_div(a.columns, width));
    const char* what = "softmax along a dim that is not the last";
    if (a.y) launch_kernel(what, softmax_grad_columns_kernel<T>, blocks, threads, a);
    else launch_kernel(what, softmax_columns_kernel<T>, blocks, threads, a);
}

/// A contiguous tensor seen from one of its dims.
struct Dims {
    int64_t outer = 1, n = 1, inner = 1;

    Dims(const Operand& operand, int64_t dim) {
        if (dim < 0) dim += operand.ndim();
        for (int d = 0; d < operand.ndim(); ++d) (d < dim ? outer : d == dim ? n : inner) *= operand.shape[d];
    }
};

template <class T>
KernelPtr make_softmax(const Dims& dims, bool is_log) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (dims.inner > 1)
            return launch_columns<T>({data[0], data[1], nullptr, dims.outer * dims.inner, dims.n, dims.inner, is_log});
        const RowPlan plan = plan_rows(dims.n, rows_have_packets<T>(dims.n, {data[0], data[1]}), KeptRows<T>::keep);
        SoftmaxRows a = {data[0], data[1], dims.outer, dims.n, 0, is_log, {}};
        launch_softmax<T>(a, plan, plan.blocks(a.rows));
    });
}

template <class T>
KernelPtr make_softmax_grad(const Dims& dims, bool is_log) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (dims.inner > 1)
            return launch_columns<T>({data[0], data[1], data[2], dims.outer * dims.inner, dims.n, dims.inner, is_log});
        const bool has_packets = rows_have_packets<T>(dims.n, {data[0], data[1], data[2]});
        const RowPlan plan = plan_rows(dims.n, has_packets, KeptRows<T>::keep);
        GradRows a = {data[0], data[1], data[2], dims.outer, dims.n, 0, is_log};
        launch_softmax_grad<T>(a, plan, plan.blocks(a.rows));
    });
}

KernelPtr no_work() {
    return make_kernel(0, [](char* const*, const Scalar*) {});
}

template <bool IS_LOG, bool IS_GRAD>
KernelPtr softmax(const Request& request) {
    constexpr size_t OPERANDS = IS_GRAD ? 3 : 2;
    const Operand& out = request.operands[0];
    if (!are_tensors(request, OPERANDS) || !is_floating(out.dtype)) return nullptr;
    if (!out.numel()) return no_work();
    const Dims dims(out, request.attrs.integer("dim"));
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return IS_GRAD ? make_softmax_grad<T>(dims, IS_LOG) : make_softmax<T>(dims, IS_LOG);
    });
    return Staged::make(request, 1, std::vector<DType>(OPERANDS, out.dtype), std::move(body));
}

template <class T>
KernelPtr make_cross_entropy(int64_t rows, LossReduction reduction, const Targets& targets) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const int64_t n = targets.classes;
        const RowPlan plan = plan_rows(n, rows_have_packets<T>(n, {data[1], data[2]}), KeptRows<T>::keep);
        SoftmaxRows a = {data[1], data[2], rows, n, 0, true, {}};
        a.pick.wanted = true;
        a.pick.is_reduced = reduction != LossReduction::none;
        a.pick.targets = targets;
        a.pick.targets.data = data[3];
        a.pick.targets.sink = error_sink();
        a.pick.losses = data[0];
        // One block at least: the mean of no rows is NaN.
        const unsigned blocks = std::max(1u, a.pick.is_reduced ? plan.blocks(rows, 32) : plan.blocks(rows));
        if (!a.pick.is_reduced) {
            if (rows) launch_softmax<T>(a, plan, blocks);
            return;
        }
        const LossScratch scratch(blocks, data[0], reduction == LossReduction::mean ? 0 : 1);
        a.pick.sum = scratch.sum;
        launch_softmax<T>(a, plan, blocks);
    });
}

/// loss, logs, input, target
KernelPtr cross_entropy(const Request& request) {
    const Operand &loss = request.operands[0], &input = request.operands[2], &target = request.operands[3];
    if (!are_tensors(request, 4) || !are_plain(input, target)) return nullptr;
    if (loss.dtype != input.dtype || !input.shape.back()) return nullptr;
    const Targets targets = targets_of(target, input.shape.back(), request, "cross_entropy");
    const int64_t rows = input.ndim() == 2 ? input.shape[0] : 1;
    KernelPtr body = visit_floating_device(input.dtype, [&]<class T>(Tag<T>) {
        return make_cross_entropy<T>(rows, reduction_of(request), targets);
    });
    return Staged::make(request, 2, {loss.dtype, loss.dtype, loss.dtype, target.dtype}, std::move(body));
}

}  // namespace

void add_softmax(Registry& registry) {
    registry["softmax"] = softmax<false, false>;
    registry["log_softmax"] = softmax<true, false>;
    registry["softmax_grad"] = softmax<false, true>;
    registry["log_softmax_grad"] = softmax<true, true>;
    registry["cross_entropy"] = cross_entropy;
}

}  // namespace norch::nn
