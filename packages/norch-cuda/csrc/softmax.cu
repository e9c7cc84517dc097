// softmax and log_softmax along a dim, their gradients, and cross_entropy, which picks from the log_softmax.
#include "families.h"
#include "losses.cuh"
#include "staging.h"

namespace norch {
namespace {

// --- Rows -----------------------------------------------------------------------------------------------------------

/// Which of the rows' results make the loss of cross_entropy, if that is what is computed.
struct Pick {
    bool wanted, is_reduced;
    Targets targets;
    char* losses;  // one for each row where they are not reduced
    LossSum sum;
};

struct SoftmaxRows {
    char* out;
    const char* in;
    int64_t rows, n;
    int lanes;
    bool is_log;
    Pick pick;
};

/// What one thread of each row adds to the losses.
template <class T>
struct Picked {
    using C = computed<T>;
    double sum = 0, counted = 0;
    int64_t index = -1;
    C score = 0;

    /// Before the row's sums are known, so that these loads need not be waited for after them.
    __device__ void find(const Pick& pick, int64_t row, const T* in) {
        index = pick.targets(row);
        if (index >= 0) score = C(widen(in[index]));
    }
    __device__ void add(const Pick& pick, int64_t row, C largest, C log_sum) {
        // As the gradient will see it: rounded to what is stored.
        const C loss = index < 0 ? C(0) : -C(widen(narrow<T>((score - largest) - log_sum)));
        if (!pick.is_reduced) reinterpret_cast<T*>(pick.losses)[row] = narrow<T>(loss);
        sum += double(loss);
        counted += index >= 0;
    }
};

template <class T, int VEC, int K, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? MOST_THREADS : ROW_THREADS) softmax_kernel(
    const __grid_constant__ SoftmaxRows a) {
    using C = computed<T>;
    constexpr int E = VEC * K;
    const RowPlace<BLOCK> at(a.lanes);
    const int n = int(a.n);
    Picked<T> picked;
    for (int64_t first = int64_t(blockIdx.x) * at.groups; first < a.rows; first += int64_t(gridDim.x) * at.groups) {
        const int64_t row = first + at.group;
        const bool is_row = BLOCK || row < a.rows;
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        const int width = is_row ? n : 0;
        C x[E];
        load_row<T, VEC, K>(x, in, width, at.lanes, at.lane, negative_infinity<C>());
        if (a.pick.wanted && at.lane == 0 && is_row) picked.find(a.pick, row, in);
        C largest = negative_infinity<C>();
#pragma unroll
        for (int i = 0; i < E; ++i) largest = Largest::apply(largest, x[i]);
        largest = reduce_row<BLOCK, Largest>(largest, at.lanes);
        C sum = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if ((k * at.lanes + at.lane) * VEC < width) {
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    C& value = x[k * VEC + j];
                    value -= largest;
                    const C e = std::exp(value);
                    sum += e;
                    if (!a.is_log) value = e;
                }
            }
        }
        sum = reduce_row<BLOCK, Sum>(sum, at.lanes);
        const C last = a.is_log ? std::log(sum) : C(1) / sum;
#pragma unroll
        for (int i = 0; i < E; ++i) x[i] = a.is_log ? x[i] - last : x[i] * last;
        store_row<T, VEC, K>(reinterpret_cast<T*>(a.out) + row * a.n, x, width, at.lanes, at.lane);
        if (a.pick.wanted && at.lane == 0 && is_row) picked.add(a.pick, row, largest, last);
    }
    if (a.pick.wanted && a.pick.is_reduced) finish_loss<T>(a.pick.sum, picked.sum, picked.counted);
}

/// The largest and the sum of exponentials of what has been seen, which is brought to the largest as that grows
/// (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018).
template <class C>
struct Online {
    C largest = negative_infinity<C>(), sum = C(0);

    template <int N>
    __device__ void add(const C (&x)[N]) {
        C next = largest;
#pragma unroll
        for (int j = 0; j < N; ++j) next = Largest::apply(next, x[j]);
        move_to(next);
        const C base = origin();
#pragma unroll
        for (int j = 0; j < N; ++j) sum += std::exp(x[j] - base);
    }
    __device__ void move_to(C next) {
        if (next != largest) sum *= std::exp(largest - next);
        largest = next;
    }
    /// What to subtract: minus infinities alone would give NaN, where there may be larger numbers yet.
    __device__ C origin() const { return largest == negative_infinity<C>() ? C(0) : largest; }
};

template <class T, int VEC>
__global__ void __launch_bounds__(MOST_THREADS) softmax_loop_kernel(const __grid_constant__ SoftmaxRows a) {
    using C = computed<T>;
    constexpr int UNROLL = VEC == 1 ? 8 : 4;
    const int64_t step = int64_t(blockDim.x) * VEC, start = int64_t(threadIdx.x) * VEC;
    Picked<T> picked;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        if (a.pick.wanted && threadIdx.x == 0) picked.find(a.pick, row, in);
        const Ends<T, VEC> ends(in, a.n);
        const int64_t single = ends.index(threadIdx.x), n = ends.packed;
        Online<C> found;
        if (single >= 0) {
            const C x[1] = {C(widen(in[single]))};
            found.add(x);
        }
        const T* packed_in = in + ends.head;
        T* packed_out = out + ends.head;
        int64_t i = start;
        for (; i + (UNROLL - 1) * step < n; i += UNROLL * step) {
            C x[UNROLL * VEC];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) load_values<T, VEC>(x + u * VEC, packed_in + i + u * step);
            found.add(x);
        }
        for (; i < n; i += step) {
            C x[VEC];
            load_values<T, VEC>(x, packed_in + i);
            found.add(x);
        }
        const C largest = reduce_row<true, Largest>(found.largest, 0);
        found.move_to(largest);
        const C sum = reduce_row<true, Sum>(found.sum, 0);
        const C last = a.is_log ? std::log(sum) : C(1) / sum;
        // Backwards: what was read last is the likeliest to be in a cache still.
        const int64_t packets = n > start ? (n - start + step - 1) / step : 0;
#pragma unroll UNROLL
        for (int64_t k = packets - 1; k >= 0; --k) {
            C x[VEC];
            load_values<T, VEC>(x, packed_in + start + k * step);
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                x[j] -= largest;
                x[j] = a.is_log ? x[j] - last : std::exp(x[j]) * last;
            }
            store_values<T, VEC>(packed_out + start + k * step, x);
        }
        if (single >= 0) {
            const C x = C(widen(in[single])) - largest;
            out[single] = narrow<T>(a.is_log ? x - last : std::exp(x) * last);
        }
        if (a.pick.wanted && threadIdx.x == 0) picked.add(a.pick, row, largest, last);
    }
    if (a.pick.wanted && a.pick.is_reduced) finish_loss<T>(a.pick.sum, picked.sum, picked.counted);
}

/// The gradient of the result and the result.
struct GradRows {
    char* out;
    const char *grad, *y;
    int64_t rows, n;
    int lanes;
    bool is_log;
};

template <class C>
__device__ inline C share_of(bool is_log, C g, C y) {
    return is_log ? g : g * y;
}
template <class C>
__device__ inline C gradient_of(bool is_log, C g, C y, C sum) {
    return is_log ? g - std::exp(y) * sum : (g - sum) * y;
}

template <class T, int VEC, int K, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? MOST_THREADS : ROW_THREADS) softmax_grad_kernel(const GradRows a) {
    using C = computed<T>;
    constexpr int E = VEC * K;
    const RowPlace<BLOCK> at(a.lanes);
    for (int64_t first = int64_t(blockIdx.x) * at.groups; first < a.rows; first += int64_t(gridDim.x) * at.groups) {
        const int64_t row = first + at.group, start = row * a.n;
        const int width = BLOCK || row < a.rows ? int(a.n) : 0;
        C g[E], y[E], sum = 0;
        load_row<T, VEC, K>(g, reinterpret_cast<const T*>(a.grad) + start, width, at.lanes, at.lane, C(0));
        load_row<T, VEC, K>(y, reinterpret_cast<const T*>(a.y) + start, width, at.lanes, at.lane, C(0));
#pragma unroll
        for (int i = 0; i < E; ++i) sum += share_of(a.is_log, g[i], y[i]);
        sum = reduce_row<BLOCK, Sum>(sum, at.lanes);
#pragma unroll
        for (int i = 0; i < E; ++i) g[i] = gradient_of(a.is_log, g[i], y[i], sum);
        store_row<T, VEC, K>(reinterpret_cast<T*>(a.out) + start, g, width, at.lanes, at.lane);
    }
}

template <class T, int VEC>
__global__ void __launch_bounds__(MOST_THREADS) softmax_grad_loop_kernel(const GradRows a) {
    using C = computed<T>;
    const int64_t step = int64_t(blockDim.x) * VEC, start = int64_t(threadIdx.x) * VEC;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* grad = reinterpret_cast<const T*>(a.grad) + row * a.n;
        const T* y = reinterpret_cast<const T*>(a.y) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        C sum = 0;
#pragma unroll 4
        for (int64_t i = start; i < a.n; i += step) {
            C gs[VEC], ys[VEC];
            load_values<T, VEC>(gs, grad + i);
            load_values<T, VEC>(ys, y + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) sum += share_of(a.is_log, gs[j], ys[j]);
        }
        sum = reduce_row<true, Sum>(sum, 0);
#pragma unroll 4
        for (int64_t i = start; i < a.n; i += step) {
            C gs[VEC], ys[VEC];
            load_values<T, VEC>(gs, grad + i);
            load_values<T, VEC>(ys, y + i);
#pragma unroll
            for (int j = 0; j < VEC; ++j) gs[j] = gradient_of(a.is_log, gs[j], ys[j], sum);
            store_values<T, VEC>(out + i, gs);
        }
    }
}

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
        for (int u = 0; u < UNROLL; ++u) x[u] = C(widen(in[(first + u * blockDim.y) * a.inner]));
        found.add(x);
    }
    for (; first < n; first += blockDim.y) {
        const C x[1] = {C(widen(in[first * a.inner]))};
        found.add(x);
    }
    const C largest = reduce_column<Largest>(found.largest, shared);
    found.move_to(largest);
    const C sum = reduce_column<Sum>(found.sum, shared);
    const C last = a.is_log ? std::log(sum) : C(1) / sum;
#pragma unroll 8
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y) {
        const C x = C(widen(in[k * a.inner])) - largest;
        out[k * a.inner] = narrow<T>(a.is_log ? x - last : std::exp(x) * last);
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
        sum += share_of(a.is_log, C(widen(grad[k * a.inner])), C(widen(y[k * a.inner])));
    sum = reduce_column<Sum>(sum, shared);
#pragma unroll 4
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y)
        out[k * a.inner] =
            narrow<T>(gradient_of(a.is_log, C(widen(grad[k * a.inner])), C(widen(y[k * a.inner])), sum));
}

// --- Launches -------------------------------------------------------------------------------------------------------

/// 128 bytes of a row in each thread of a warp, 16 numbers in each thread of a block.
template <class T>
struct Kept {
    static constexpr int VEC = PER_16_BYTES<T>, SINGLE = 16;
    static constexpr int LANES = std::min(8, 32 / VEC), BLOCK = std::min(4, 16 / VEC);
    static constexpr Keep keep{VEC, LANES, BLOCK, SINGLE, true};
};

constexpr int WAVES = 64;  // blocks for each multiprocessor that share out the rows

template <class T>
void launch_softmax(SoftmaxRows& a, const RowPlan& plan, unsigned blocks) {
    using K = Kept<T>;
    const cudaStream_t stream = stream_handle();
    a.lanes = plan.lanes;
    switch (plan.kind) {
        case RowPlan::short_packets:
            softmax_kernel<T, K::VEC, SHORT_PACKETS, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::lanes_packets:
            softmax_kernel<T, K::VEC, K::LANES, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::block_packets:
            softmax_kernel<T, K::VEC, K::BLOCK, true><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::short_single:
            softmax_kernel<T, 1, SHORT_SINGLE, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::lanes_single:
            softmax_kernel<T, 1, K::SINGLE, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        default:
            if (are_aligned_alike<T>(a.out, a.in))
                softmax_loop_kernel<T, K::VEC><<<blocks, plan.threads, 0, stream>>>(a);
            else
                softmax_loop_kernel<T, 1><<<blocks, plan.threads, 0, stream>>>(a);
    }
    check_launch("softmax");
}

template <class T>
void launch_softmax_grad(GradRows& a, const RowPlan& plan, unsigned blocks) {
    using K = Kept<T>;
    const cudaStream_t stream = stream_handle();
    a.lanes = plan.lanes;
    switch (plan.kind) {
        case RowPlan::short_packets:
            softmax_grad_kernel<T, K::VEC, SHORT_PACKETS, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::lanes_packets:
            softmax_grad_kernel<T, K::VEC, K::LANES, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::block_packets:
            softmax_grad_kernel<T, K::VEC, K::BLOCK, true><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::short_single:
            softmax_grad_kernel<T, 1, SHORT_SINGLE, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::lanes_single:
            softmax_grad_kernel<T, 1, K::SINGLE, false><<<blocks, plan.threads, 0, stream>>>(a);
            break;
        case RowPlan::loop_packets: softmax_grad_loop_kernel<T, K::VEC><<<blocks, plan.threads, 0, stream>>>(a); break;
        default: softmax_grad_loop_kernel<T, 1><<<blocks, plan.threads, 0, stream>>>(a);
    }
    check_launch("the gradient of softmax");
}

template <class T>
void launch_columns(const Columns& a) {
    const int width = power_of_two(a.columns, WARP);
    const dim3 threads(width, THREADS / width);
    const unsigned blocks = unsigned(ceil_div(a.columns, width));
    if (a.y) softmax_grad_columns_kernel<T><<<blocks, threads, 0, stream_handle()>>>(a);
    else softmax_columns_kernel<T><<<blocks, threads, 0, stream_handle()>>>(a);
    check_launch("softmax along a dim that is not the last");
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
        const RowPlan plan = plan_rows(dims.n, rows_have_packets<T>(dims.n, {data[0], data[1]}), Kept<T>::keep);
        SoftmaxRows a = {data[0], data[1], dims.outer, dims.n, 0, is_log, {}};
        launch_softmax<T>(a, plan, plan.blocks(a.rows, WAVES));
    });
}

template <class T>
KernelPtr make_softmax_grad(const Dims& dims, bool is_log) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (dims.inner > 1)
            return launch_columns<T>({data[0], data[1], data[2], dims.outer * dims.inner, dims.n, dims.inner, is_log});
        const bool has_packets = rows_have_packets<T>(dims.n, {data[0], data[1], data[2]});
        const RowPlan plan = plan_rows(dims.n, has_packets, Kept<T>::keep);
        GradRows a = {data[0], data[1], data[2], dims.outer, dims.n, 0, is_log};
        launch_softmax_grad<T>(a, plan, plan.blocks(a.rows, WAVES));
    });
}

KernelPtr no_work() {
    return make_kernel(0, [](char* const*, const Scalar*) {});
}

bool takes(const Request& request, size_t operands) {
    if (request.operands.size() != operands || !is_floating(request.operands[0].dtype)) return false;
    return std::none_of(request.operands.begin(), request.operands.end(), [](const Operand& o) { return o.is_scalar; });
}

template <bool is_log>
KernelPtr softmax(const Request& request) {
    if (!takes(request, 2)) return nullptr;
    const Operand& out = request.operands[0];
    if (!out.numel()) return no_work();
    const Dims dims(out, request.attrs.integer("dim"));
    KernelPtr body = visit_floating_device(
        out.dtype, [&](auto tag) { return make_softmax<typename decltype(tag)::type>(dims, is_log); });
    return Staged::make(request, 1, std::vector<DType>(2, out.dtype), std::move(body));
}

template <bool is_log>
KernelPtr softmax_grad(const Request& request) {
    if (!takes(request, 3)) return nullptr;
    const Operand& out = request.operands[0];
    if (!out.numel()) return no_work();
    const Dims dims(out, request.attrs.integer("dim"));
    KernelPtr body = visit_floating_device(
        out.dtype, [&](auto tag) { return make_softmax_grad<typename decltype(tag)::type>(dims, is_log); });
    return Staged::make(request, 1, std::vector<DType>(3, out.dtype), std::move(body));
}

template <class T>
KernelPtr make_cross_entropy(int64_t rows, LossReduction reduction, const Targets& targets) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const int64_t n = targets.classes;
        const RowPlan plan = plan_rows(n, rows_have_packets<T>(n, {data[1], data[2]}), Kept<T>::keep);
        SoftmaxRows a = {data[1], data[2], rows, n, 0, true, {}};
        a.pick.wanted = true;
        a.pick.is_reduced = reduction != LossReduction::none;
        a.pick.targets = targets;
        a.pick.targets.data = data[3];
        a.pick.targets.sink = error_sink();
        a.pick.losses = data[0];
        // One block at least: the mean of no rows is NaN.
        const unsigned blocks = std::max(1u, plan.blocks(rows, a.pick.is_reduced ? WAVES / 2 : WAVES));
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
    if (!takes(request, 4) || !are_plain(input, target)) return nullptr;
    if (loss.dtype != input.dtype || !input.shape.back()) return nullptr;
    const Targets targets = targets_of(target, input.shape.back(), request, "cross_entropy");
    const int64_t rows = input.ndim() == 2 ? input.shape[0] : 1;
    KernelPtr body = visit_floating_device(input.dtype, [&](auto tag) {
        return make_cross_entropy<typename decltype(tag)::type>(rows, reduction_of(request), targets);
    });
    return Staged::make(request, 2, {loss.dtype, loss.dtype, loss.dtype, target.dtype}, std::move(body));
}

}  // namespace

void add_softmax(Registry& registry) {
    registry["softmax"] = softmax<false>;
    registry["log_softmax"] = softmax<true>;
    registry["softmax_grad"] = softmax_grad<false>;
    registry["log_softmax_grad"] = softmax_grad<true>;
    registry["cross_entropy"] = cross_entropy;
}

}  // namespace norch
