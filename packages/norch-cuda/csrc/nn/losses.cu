// nll_loss and mse_loss with their gradients, and that of cross_entropy, whose own kernels softmax.cu has.
#include "elementwise/elementwise.cuh"
#include "nn/target_counts.cuh"
#include "runtime/families.h"
#include "common/staging.h"

namespace norch::nn {
namespace {

constexpr int SUM_BLOCKS = 8;  // blocks for each multiprocessor, where all of them add up to one number

int64_t rows_of(const Operand& scores) { return scores.ndim() == 2 ? scores.shape[0] : 1; }

// --- nll_loss -------------------------------------------------------------------------------------------------------

/// Minus the elements of `logs` that the targets name: of each row, or summed up.
template <class T>
__global__ void __launch_bounds__(THREADS) nll_kernel(const char* logs, int64_t rows, const Targets targets,
                                                      char* losses, const LossSum s) {
    using C = computed<T>;
    double sum = 0, counted = 0;
    for (int64_t row = int64_t(blockIdx.x) * THREADS + threadIdx.x; row < rows; row += int64_t(gridDim.x) * THREADS) {
        const int64_t index = targets(row);
        const C loss = index < 0 ? C(0) : -C(upcast(reinterpret_cast<const T*>(logs)[row * targets.classes + index]));
        if (losses) reinterpret_cast<T*>(losses)[row] = downcast<T>(loss);
        sum += double(loss);
        counted += index >= 0;
    }
    if (!losses) finish_loss<T>(s, sum, counted);
}

template <class T>
KernelPtr make_nll(int64_t rows, LossReduction reduction, const Targets& fixed) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        Targets targets = fixed;
        targets.data = data[2];
        targets.sink = error_sink();
        const int64_t most = int64_t(multiprocessors()) * SUM_BLOCKS, wanted = ceil_div(rows, THREADS);
        if (reduction == LossReduction::none) {
            if (!rows) return;
            launch_kernel("nll_loss", nll_kernel<T>, unsigned(std::min(wanted, most * 8)), THREADS, data[1], rows, targets,
                          data[0], LossSum{});
        } else {
            const unsigned blocks = unsigned(std::max<int64_t>(1, std::min(wanted, most)));
            const LossScratch scratch(blocks, data[0], reduction == LossReduction::mean ? 0 : 1);
            launch_kernel("nll_loss", nll_kernel<T>, blocks, THREADS, data[1], rows, targets, nullptr, scratch.sum);
        }
    });
}

/// loss, input, target
KernelPtr nll_loss(const Request& request) {
    if (!are_tensors(request, 3)) return nullptr;
    const Operand &loss = request.operands[0], &input = request.operands[1], &target = request.operands[2];
    if (!are_plain(input, target) || loss.dtype != input.dtype || !input.shape.back()) return nullptr;
    const Targets targets = targets_of(target, input.shape.back(), request, "nll_loss");
    KernelPtr body = visit_floating_device(input.dtype, [&]<class T>(Tag<T>) {
        return make_nll<T>(rows_of(input), reduction_of(request), targets);
    });
    return Staged::make(request, 1, {loss.dtype, loss.dtype, target.dtype}, std::move(body));
}

// --- Gradients by class ---------------------------------------------------------------------------------------------

/// The gradients of rows: (exp(logs) - [class is the target's]) * scale, without `logs` the second part alone.
struct ClassGrad {
    char* out;
    const char *grad, *logs;
    int64_t rows, n;
    int lanes;
    bool is_mean, has_grads;  // has_grads: one gradient for each row
    const int64_t* parts;
    Targets targets;
};

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) class_grad_kernel(const __grid_constant__ ClassGrad a) {
    using C = computed<T>;
    constexpr int UNROLL = 4;
    const C divisor = a.is_mean ? C(count_targets(a.targets, a.rows, a.parts)) : C(1);
    const int lane = threadIdx.x & (a.lanes - 1), groups = THREADS / a.lanes;
    const int64_t step = int64_t(a.lanes) * VEC;
    int64_t row = int64_t(blockIdx.x) * groups + threadIdx.x / a.lanes;
    for (; row < a.rows; row += int64_t(gridDim.x) * groups) {
        const int64_t index = a.targets(row);
        const T grad = reinterpret_cast<const T*>(a.grad)[a.has_grads ? row : 0];
        const C scale = index < 0 ? C(0) : C(upcast(grad)) / divisor;
        const T* logs = reinterpret_cast<const T*>(a.logs) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        const Ends<T, VEC> ends(out, a.n);
        for (int e = lane; e < ends.head + ends.tail; e += a.lanes) {
            const int64_t i = ends.index(e);
            const C x = a.logs && index >= 0 ? std::exp(C(upcast(logs[i]))) * scale : C(0);
            out[i] = downcast<T>(i == index ? x - scale : x);
        }
        out += ends.head;
        logs += ends.head;
        const int64_t at = index - ends.head;
        for (int64_t first = int64_t(lane) * VEC; first < ends.packed; first += UNROLL * step) {
            C x[UNROLL][VEC] = {};
            if (a.logs && index >= 0) {
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    if (first + u * step < ends.packed) load_values<T, VEC>(x[u], logs + first + u * step);
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
#pragma unroll
                    for (int j = 0; j < VEC; ++j) x[u][j] = std::exp(x[u][j]) * scale;
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const int64_t i = first + u * step;
                if (i >= ends.packed) break;
#pragma unroll
                for (int j = 0; j < VEC; ++j)
                    if (i + j == at && index >= 0) x[u][j] -= scale;
                store_values<T, VEC>(out + i, x[u]);
            }
        }
    }
}

template <class T>
KernelPtr make_class_grad(const ClassGrad& fixed, int target) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        ClassGrad a = fixed;
        a.out = data[0];
        a.grad = data[1];
        a.logs = target == 3 ? data[2] : nullptr;
        a.targets.data = data[target];
        a.targets.sink = error_sink();
        const bool are_alike = !a.logs || are_aligned_alike<T>(a.out, a.logs);
        const bool has_packets = rows_have_packets<T>(a.n, {a.out, a.logs}) || (a.n >= 512 && are_alike);
        const int vec = has_packets ? PER_16_BYTES<T> : 1;
        a.lanes = power_of_two(ceil_div(a.n, 4 * vec), THREADS);
        const TargetCounts counts(a.targets, a.is_mean ? a.rows : 0);
        a.parts = counts.parts();
        const char* what = "the gradient of a loss by class";
        const int64_t blocks = ceil_div(a.rows, THREADS / a.lanes), most = int64_t(multiprocessors()) * 16;
        const unsigned grid = unsigned(std::min(blocks, most));
        if (has_packets) launch_kernel(what, class_grad_kernel<T, PER_16_BYTES<T>>, grid, THREADS, a);
        else launch_kernel(what, class_grad_kernel<T, 1>, grid, THREADS, a);
    });
}

KernelPtr class_grad(const Request& request, int target_at, const char* op) {
    if (!are_tensors(request, size_t(target_at) + 1)) return nullptr;
    const Operand &out = request.operands[0], &grad = request.operands[1], &target = request.operands[target_at];
    if (!are_plain(out, target)) return nullptr;
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    ClassGrad fixed = {};
    fixed.rows = rows_of(out);
    fixed.n = out.shape.back();
    fixed.is_mean = reduction_of(request) == LossReduction::mean;
    fixed.has_grads = grad.ndim() == 1;
    fixed.targets = targets_of(target, fixed.n, request, op);
    KernelPtr body = visit_floating_device(
        out.dtype, [&]<class T>(Tag<T>) { return make_class_grad<T>(fixed, target_at); });
    std::vector<DType> wanted(request.operands.size(), out.dtype);
    wanted[size_t(target_at)] = target.dtype;
    return Staged::make(request, 1, wanted, std::move(body));
}

/// out, grad, target
KernelPtr nll_loss_grad(const Request& request) { return class_grad(request, 2, "nll_loss"); }
/// out, grad, logs, target
KernelPtr cross_entropy_grad(const Request& request) { return class_grad(request, 3, "cross_entropy"); }

// --- mse_loss -------------------------------------------------------------------------------------------------------

/// The sum of (a - b) ** 2 over n elements, of which all but the last few go as packets.
template <class T, int VEC>
__global__ void __launch_bounds__(THREADS, 4) squares_kernel(const T* a, const T* b, int64_t n, const LossSum s) {
    using C = computed<T>;
    constexpr int UNROLL = VEC == 8 ? 2 : 4;
    const int64_t thread = int64_t(blockIdx.x) * THREADS + threadIdx.x, threads = int64_t(gridDim.x) * THREADS;
    const int64_t packets = n / VEC;
    double sum = 0;
    for (int64_t first = thread; first < packets; first += UNROLL * threads) {
        C x[UNROLL][VEC] = {}, y[UNROLL][VEC] = {}, part = 0;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int64_t i = first + u * threads;
            if (i < packets) {
                load_values<T, VEC>(x[u], a + i * VEC);
                load_values<T, VEC>(y[u], b + i * VEC);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < VEC; ++j) part += (x[u][j] - y[u][j]) * (x[u][j] - y[u][j]);
        sum += double(part);
    }
    const int64_t rest = packets * VEC + thread;
    if (rest < n) {
        const C difference = C(upcast(a[rest])) - C(upcast(b[rest]));
        sum += double(difference * difference);
    }
    finish_loss<T>(s, sum, 0);
}

template <class T>
KernelPtr make_squares(int64_t n, LossReduction reduction) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        constexpr int VEC = PER_16_BYTES<T>;
        const bool has_packets = is_aligned(data[1], 16) && is_aligned(data[2], 16);
        const int64_t wanted = ceil_div(n, int64_t(THREADS) * 4 * (has_packets ? VEC : 1));
        const int64_t most = int64_t(multiprocessors()) * 4;  // all of them run at once
        const unsigned blocks = unsigned(std::max<int64_t>(1, std::min(wanted, most)));
        // The mean of nothing is 0 / 0: the kernel counts no rows, and divides by that.
        const LossScratch scratch(blocks, data[0], reduction == LossReduction::mean ? double(n) : 1);
        const T *a = reinterpret_cast<const T*>(data[1]), *b = reinterpret_cast<const T*>(data[2]);
        if (has_packets) launch_kernel("mse_loss", squares_kernel<T, VEC>, blocks, THREADS, a, b, n, scratch.sum);
        else launch_kernel("mse_loss", squares_kernel<T, 1>, blocks, THREADS, a, b, n, scratch.sum);
    });
}

NORCH_BINARY(T, SquaredDifference, (a - b) * (a - b))

/// Of grad, input, target.
template <class C>
struct ScaledDifference {
    C factor;

    template <class>
    __device__ C call(C g, C a, C b) const {
        return (a - b) * (g * factor);
    }
};

/// loss, input, target
KernelPtr mse_loss(const Request& request) {
    if (!are_tensors(request, 3) || !is_difference_loss(request)) return nullptr;
    const Operand &out = request.operands[0], &a = request.operands[1], &b = request.operands[2];
    const LossReduction reduction = reduction_of(request);
    return visit_floating_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        if (reduction == LossReduction::none) return elementwise::map_op<T, SquaredDifference, 2>(request);
        KernelPtr body = make_squares<T>(a.numel(), reduction);
        return lie_alike(a, b) ? std::move(body) : Staged::make(request, 1, std::vector<DType>(3, out.dtype), std::move(body));
    });
}

KernelPtr mse_loss_grad(const Request& request) {
    const Operand& out = request.operands[0];
    if (!is_floating(out.dtype) || request.operands.size() != 4) return nullptr;
    const double factor = mse_loss_factor(request);
    return visit_floating_device(out.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return elementwise::map_op<T, void, 3>(request, ScaledDifference<computed<T>>{computed<T>(factor)});
    });
}

}  // namespace

void add_losses(Registry& registry) {
    registry["nll_loss"] = nll_loss;
    registry["nll_loss_grad"] = nll_loss_grad;
    registry["cross_entropy_grad"] = cross_entropy_grad;
    registry["mse_loss"] = mse_loss;
    registry["mse_loss_grad"] = mse_loss_grad;
    add_cross_entropy_rows(registry);
    add_margins(registry);
}

}  // namespace norch::nn
