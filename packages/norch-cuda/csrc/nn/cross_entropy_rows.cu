// cross_entropy of many classes, and its gradient: each reads the scores once. What is kept between them is the
// logarithm of the sum of exponentials of each row.
#include "common/staging.h"
#include "nn/cross_entropy.cuh"

namespace norch::nn {
namespace {
namespace by_row {

constexpr int64_t FEWEST_CLASSES = 512;  // below, log_softmax keeps rows in registers and is as fast
constexpr int ROW_BLOCKS = 16;           // for each multiprocessor
constexpr int UNROLL = 4;

struct Rows {
    const char* in;
    char *sums, *losses;  // losses: one for each row where they are not reduced, else null
    int64_t rows, n;
    bool is_wide;  // the losses are of the compute dtype
    Targets targets;
    LossSum sum;
};

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS, 4) rows_kernel(const __grid_constant__ Rows a) {
    using C = computed<T>;
    const int64_t step = int64_t(THREADS) * VEC;
    double total = 0, counted = 0;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        int64_t index = -1;
        C score = 0;
        if (threadIdx.x == 0) {
            index = a.targets(row);
            if (index >= 0) score = C(upcast(in[index]));
        }
        const Ends<T, VEC> ends(in, a.n);
        RowSum<T> found;
        if (const int64_t single = ends.index(threadIdx.x); single >= 0) {
            const C x[1] = {C(upcast(in[single]))};
            found.add(x);
        }
        in += ends.head;
        int64_t i = int64_t(threadIdx.x) * VEC;
        for (; i + (UNROLL - 1) * step < ends.packed; i += UNROLL * step) {
            C x[UNROLL * VEC];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) load_values<T, VEC>(x + u * VEC, in + i + u * step);
            found.add(x);
        }
        for (; i < ends.packed; i += step) {
            C x[VEC];
            load_values<T, VEC>(x, in + i);
            found.add(x);
        }
        const C largest = reduce_row<true, Largest>(found.largest, 0);
        found.move_to(largest);
        const C log_sum = largest + std::log(reduce_row<true, Sum>(found.sum, 0));
        if (threadIdx.x == 0) {
            const C loss = index < 0 ? C(0) : log_sum - score;
            reinterpret_cast<C*>(a.sums)[row] = log_sum;
            if (a.losses && a.is_wide) reinterpret_cast<C*>(a.losses)[row] = loss;
            else if (a.losses) reinterpret_cast<T*>(a.losses)[row] = downcast<T>(loss);
            total += double(loss);
            counted += index >= 0;
        }
    }
    if (a.losses) return;
    if (a.is_wide) finish_loss<C>(a.sum, total, counted);
    else finish_loss<T>(a.sum, total, counted);
}

template <class T>
KernelPtr make_rows(const Rows& fixed, LossReduction reduction) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        Rows a = fixed;
        a.sums = data[1];
        a.in = data[2];
        a.targets.data = data[3];
        a.targets.sink = error_sink();
        const auto blocks = unsigned(std::max<int64_t>(1, std::min(a.rows, int64_t(multiprocessors()) * ROW_BLOCKS)));
        auto launch = [&] {
            launch_kernel("cross_entropy", rows_kernel<T, PER_16_BYTES<T>>, blocks, THREADS, a);
        };
        if (reduction == LossReduction::none) {
            a.losses = data[0];
            if (a.rows) launch();
            return;
        }
        const LossScratch scratch(blocks, data[0], reduction == LossReduction::mean ? 0 : 1);
        a.sum = scratch.sum;
        launch();
    });
}

bool has_kernel(const Operand& input, const Operand& target) {
    return are_plain(input, target) && input.shape.back() >= FEWEST_CLASSES;
}

int64_t rows_of(const Operand& input) { return input.ndim() == 2 ? input.shape[0] : 1; }

/// loss, sums, input, target
KernelPtr cross_entropy_rows(const Request& request) {
    if (!are_tensors(request, 4)) return nullptr;
    if (request.operands[2].ndim() > 2) return cross_entropy_planes(request);
    const Operand &loss = request.operands[0], &input = request.operands[2], &target = request.operands[3];
    if (!has_kernel(input, target)) return nullptr;
    const DType wide = computed_dtype(input.dtype);
    Rows fixed = {};
    fixed.rows = rows_of(input);
    fixed.n = input.shape.back();
    fixed.is_wide = loss.dtype == wide;
    fixed.targets = targets_of(target, fixed.n, request, "cross_entropy");
    const LossReduction reduction = reduction_of(request);
    KernelPtr body =
        visit_floating_device(input.dtype, [&]<class T>(Tag<T>) { return make_rows<T>(fixed, reduction); });
    return Staged::make(request, 2, {loss.dtype, wide, input.dtype, target.dtype}, std::move(body));
}

// --- The gradient ---------------------------------------------------------------------------------------------------

/// store_values of 16 bytes in one access: the compiler takes one of eight numbers apart.
template <class T, int VEC, class C>
__device__ inline void store_whole(T* to, const C (&x)[VEC]) {
    if constexpr (sizeof(T) == 2 && VEC == 8) {
        uint4 words;
        uint32_t* word = &words.x;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if constexpr (std::is_same_v<T, __half>) {
                const __half2 both = __floats2half2_rn(x[2 * j], x[2 * j + 1]);
                word[j] = *reinterpret_cast<const uint32_t*>(&both);
            } else {
                const __nv_bfloat162 both = __floats2bfloat162_rn(x[2 * j], x[2 * j + 1]);
                word[j] = *reinterpret_cast<const uint32_t*>(&both);
            }
        }
        __stwb(reinterpret_cast<uint4*>(to), words);
    } else {
        store_values<T, VEC>(to, x);
    }
}

/// (exp(in - sums of its row) - [class is the target's]) * grad / divisor, which may be written over `in`.
struct RowsGrad {
    char* out;
    const char *grad, *in, *sums;
    int64_t rows, n;
    bool is_mean, has_grads;  // has_grads: one gradient for each row
    const int64_t* counts;
    Targets targets;
};

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS, 4) rows_grad_kernel(const __grid_constant__ RowsGrad a) {
    using C = computed<T>;
    const int64_t step = int64_t(THREADS) * VEC;
    const C divisor = a.is_mean ? C(count_targets(a.targets, a.rows, a.counts)) : C(1);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const int64_t index = a.targets(row);
        const C scale = index < 0 ? C(0) : reinterpret_cast<const C*>(a.grad)[a.has_grads ? row : 0] / divisor;
        const C sum = reinterpret_cast<const C*>(a.sums)[row];
        const T* in = reinterpret_cast<const T*>(a.in) + row * a.n;
        T* out = reinterpret_cast<T*>(a.out) + row * a.n;
        const bool counts = index >= 0;
        const Ends<T, VEC> ends(out, a.n);
        if (const int64_t single = ends.index(threadIdx.x); single >= 0) {
            const C x = counts ? exp_of<T>(C(upcast(in[single])) - sum) * scale : C(0);
            out[single] = downcast<T>(single == index ? x - scale : x);
        }
        in += ends.head;
        out += ends.head;
        // All loads of a turn come before its first store, and none is conditional: they are under way together.
        auto change = [&]<int N>(std::integral_constant<int, N>, int64_t first) {
            Packet<T, VEC> packets[N];
#pragma unroll
            for (int u = 0; u < N; ++u) packets[u] = *reinterpret_cast<const Packet<T, VEC>*>(in + first + u * step);
#pragma unroll
            for (int u = 0; u < N; ++u) {
                const int64_t behind = index - ends.head - (first + u * step);
                const int past = behind >= 0 && behind < VEC ? int(behind) : -1;
                C x[VEC];
#pragma unroll
                for (int j = 0; j < VEC; ++j)
                    x[j] = exp_of<T>(C(upcast(packets[u].v[j])) - sum) * scale - (past == j ? scale : C(0));
                store_whole<T, VEC>(out + first + u * step, x);
            }
        };
        int64_t i = int64_t(threadIdx.x) * VEC;
        if (counts) {
            for (; i + (UNROLL - 1) * step < ends.packed; i += UNROLL * step)
                change(std::integral_constant<int, UNROLL>{}, i);
            for (; i < ends.packed; i += step) change(std::integral_constant<int, 1>{}, i);
        } else {
            constexpr C none[VEC] = {};
            for (; i < ends.packed; i += step) store_whole<T, VEC>(out + i, none);
        }
    }
}

template <class T>
KernelPtr make_rows_grad(const RowsGrad& fixed) {
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        RowsGrad a = fixed;
        a.out = data[0];
        a.grad = data[1];
        a.in = data[2];
        a.sums = data[3];
        a.targets.data = data[4];
        a.targets.sink = error_sink();
        const TargetCounts counts(a.targets, a.is_mean ? a.rows : 0);
        a.counts = counts.parts();
        const auto blocks = unsigned(std::min(a.rows, int64_t(multiprocessors()) * ROW_BLOCKS));
        const char* what = "the gradient of cross_entropy";
        if (are_aligned_alike<T>(a.out, a.in))
            launch_kernel(what, rows_grad_kernel<T, PER_16_BYTES<T>>, blocks, THREADS, a);
        else
            launch_kernel(what, rows_grad_kernel<T, 1>, blocks, THREADS, a);
    });
}

/// out, grad, input, sums, target
KernelPtr cross_entropy_rows_grad(const Request& request) {
    if (!are_tensors(request, 5)) return nullptr;
    if (request.operands[0].ndim() > 2) return cross_entropy_planes_grad(request);
    const Operand &out = request.operands[0], &grad = request.operands[1], &target = request.operands[4];
    if (!has_kernel(out, target)) return nullptr;
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    RowsGrad fixed = {};
    fixed.rows = rows_of(out);
    fixed.n = out.shape.back();
    fixed.is_mean = reduction_of(request) == LossReduction::mean;
    fixed.has_grads = grad.ndim() == 1;
    fixed.targets = targets_of(target, fixed.n, request, "cross_entropy");
    const DType wide = computed_dtype(out.dtype);
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) { return make_rows_grad<T>(fixed); });
    return Staged::make(request, 1, {out.dtype, wide, out.dtype, wide, target.dtype}, std::move(body));
}

}  // namespace by_row
}  // namespace

void add_cross_entropy_rows(Registry& registry) {
    registry["cross_entropy_rows"] = by_row::cross_entropy_rows;
    registry["cross_entropy_rows_grad"] = by_row::cross_entropy_rows_grad;
}

}  // namespace norch::nn
