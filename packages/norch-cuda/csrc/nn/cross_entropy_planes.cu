// cross_entropy of images whose classes are planes, and its gradient: a thread has the classes of a place, which it reads
// once. What is kept between them is the logarithm of the sum of exponentials of each place.
#include "common/staging.h"
#include "nn/cross_entropy.cuh"

namespace norch::nn {
namespace {
namespace by_plane {

constexpr int64_t MOST_CLASSES = 1024;  // that a thread goes through
constexpr int PLACE_BLOCKS = 16;        // for each multiprocessor

struct Planes {
    char *out, *sums;  // out: of the gradient; or the losses of places where they are not reduced, else null
    const char *in, *grad;
    int64_t places;
    uint32_t inner;     // places of an image
    int n;
    bool is_wide;       // the losses are of the compute dtype
    bool is_mean, has_grads;  // has_grads: one gradient for each place
    const int64_t* counts;
    Targets targets;
    LossSum sum;

    /// Where the first class of a place is.
    __device__ int64_t start(int64_t place) const {
        const int64_t image = place / inner;
        return image * n * inner + (place - image * inner);
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) planes_kernel(const __grid_constant__ Planes a) {
    using C = computed<T>;
    constexpr int N = 8;
    double total = 0, counted = 0;
    const int64_t step = int64_t(gridDim.x) * THREADS;
    for (int64_t place = int64_t(blockIdx.x) * THREADS + threadIdx.x; place < a.places; place += step) {
        const T* const in = reinterpret_cast<const T*>(a.in) + a.start(place);
        const int64_t index = a.targets(place);
        const C score = index < 0 ? C(0) : C(upcast(in[index * a.inner]));
        RowSum<T> found;
        for (int first = 0; first < a.n; first += N) {
            C x[N];
#pragma unroll
            for (int j = 0; j < N; ++j)
                x[j] = first + j < a.n ? C(upcast(in[int64_t(first + j) * a.inner])) : negative_infinity<C>();
            found.add(x);
        }
        const C log_sum = found.largest + std::log(found.sum), loss = index < 0 ? C(0) : log_sum - score;
        reinterpret_cast<C*>(a.sums)[place] = log_sum;
        if (a.out && a.is_wide) reinterpret_cast<C*>(a.out)[place] = loss;
        else if (a.out) reinterpret_cast<T*>(a.out)[place] = downcast<T>(loss);
        total += double(loss);
        counted += index >= 0;
    }
    if (a.out) return;
    if (a.is_wide) finish_loss<C>(a.sum, total, counted);
    else finish_loss<T>(a.sum, total, counted);
}

/// The result may be written over `in`.
template <class T>
__global__ void __launch_bounds__(THREADS) planes_grad_kernel(const __grid_constant__ Planes a) {
    using C = computed<T>;
    constexpr int N = 8;
    const C divisor = a.is_mean ? C(count_targets(a.targets, a.places, a.counts)) : C(1);
    const int64_t step = int64_t(gridDim.x) * THREADS;
    for (int64_t place = int64_t(blockIdx.x) * THREADS + threadIdx.x; place < a.places; place += step) {
        const int64_t start = a.start(place), index = a.targets(place);
        const T* const in = reinterpret_cast<const T*>(a.in) + start;
        T* const out = reinterpret_cast<T*>(a.out) + start;
        const C scale = index < 0 ? C(0) : reinterpret_cast<const C*>(a.grad)[a.has_grads ? place : 0] / divisor;
        const C sum = reinterpret_cast<const C*>(a.sums)[place];
        for (int first = 0; first < a.n; first += N) {
            C x[N];
#pragma unroll
            for (int j = 0; j < N; ++j)
                x[j] = first + j < a.n ? C(upcast(in[int64_t(first + j) * a.inner])) : C(0);
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (first + j >= a.n) break;
                const C y = index < 0 ? C(0) : exp_of<T>(x[j] - sum) * scale - (first + j == index ? scale : C(0));
                out[int64_t(first + j) * a.inner] = downcast<T>(y);
            }
        }
    }
}

/// Whether the classes of scores are planes that a thread may go through, and targets fit them. Sets the sizes.
bool set_planes(const Request& request, const Operand& scores, const Operand& target, Planes& a) {
    if (!is_floating(scores.dtype) || is_floating(target.dtype) || target.dtype == DType::boolean) return false;
    const int64_t n = scores.shape[1];
    if (n < 1 || n > MOST_CLASSES || target.ndim() != scores.ndim() - 1) return false;
    int64_t inner = 1;
    for (int d = 2; d < scores.ndim(); ++d) inner *= scores.shape[d];
    if (inner < 1 || inner > INT32_MAX) return false;
    a.n = int(n), a.inner = uint32_t(inner), a.places = scores.shape[0] * inner;
    a.targets = targets_of(target, n, request, "cross_entropy");
    return true;
}

unsigned blocks_for(int64_t places) {
    return unsigned(std::clamp<int64_t>(ceil_div(places, THREADS), 1, int64_t(multiprocessors()) * PLACE_BLOCKS));
}

}  // namespace by_plane
}  // namespace

/// loss, sums, input, target
KernelPtr cross_entropy_planes(const Request& request) {
    using namespace by_plane;
    const Operand &loss = request.operands[0], &input = request.operands[2], &target = request.operands[3];
    const DType wide = computed_dtype(input.dtype);
    Planes fixed = {};
    if (!set_planes(request, input, target, fixed)) return nullptr;
    fixed.is_wide = loss.dtype == wide;
    const LossReduction reduction = reduction_of(request);
    KernelPtr body = visit_floating_device(input.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            Planes a = fixed;
            a.sums = data[1], a.in = data[2], a.targets.data = data[3];
            a.targets.sink = error_sink();
            const unsigned blocks = blocks_for(a.places);
            if (reduction == LossReduction::none) {
                a.out = data[0];
                if (a.places) launch_kernel("cross_entropy", planes_kernel<T>, blocks, THREADS, a);
                return;
            }
            const LossScratch scratch(blocks, data[0], reduction == LossReduction::mean ? 0 : 1);
            a.sum = scratch.sum;
            launch_kernel("cross_entropy", planes_kernel<T>, blocks, THREADS, a);
        });
    });
    return Staged::make(request, 2, {loss.dtype, wide, input.dtype, target.dtype}, std::move(body));
}

/// out, grad, input, sums, target
KernelPtr cross_entropy_planes_grad(const Request& request) {
    using namespace by_plane;
    const Operand &out = request.operands[0], &grad = request.operands[1], &target = request.operands[4];
    Planes fixed = {};
    if (!set_planes(request, out, target, fixed)) return nullptr;
    if (!out.numel()) return make_kernel(0, [](char* const*, const Scalar*) {});
    fixed.is_mean = reduction_of(request) == LossReduction::mean;
    fixed.has_grads = grad.ndim() > 0;
    const DType wide = computed_dtype(out.dtype);
    KernelPtr body = visit_floating_device(out.dtype, [&]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            Planes a = fixed;
            a.out = data[0], a.grad = data[1], a.in = data[2], a.sums = data[3], a.targets.data = data[4];
            a.targets.sink = error_sink();
            const TargetCounts counts(a.targets, a.is_mean ? a.places : 0);
            a.counts = counts.parts();
            launch_kernel("the gradient of cross_entropy", planes_grad_kernel<T>, blocks_for(a.places), THREADS, a);
        });
    });
    return Staged::make(request, 1, {out.dtype, wide, out.dtype, wide, target.dtype}, std::move(body));
}

}  // namespace norch::nn
