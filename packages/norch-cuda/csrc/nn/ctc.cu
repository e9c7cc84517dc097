// ctc_alphas and ctc_grad: how likely each state of a target is after each step, and the way back. A block for each sample
// has a thread for each state, and goes from step to step.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace ctc {

constexpr size_t SHARED_BYTES = 48 << 10;  // of a block; longer targets are decomposed

/// Stands for log(0): sums of it stay finite.
template <class T>
constexpr T NEVER = T(-1e30);

/// A batch of targets. States are blank, label, blank, ..., blank; places have two more, before them.
struct Batch {
    int64_t steps, count, classes;
    int longest, states, blank;
    int32_t op;

    Batch(const Request& r, const Operand& labels, int64_t steps, int64_t classes)
        : steps(steps), count(labels.shape[0]), classes(classes), longest(int(labels.shape[1])), states(2 * longest + 1),
          blank(int(r.attrs.integer("blank"))), op(op_number("ctc_loss")) {}
    __host__ __device__ int places() const { return states + 2; }
    unsigned threads() const { return unsigned(std::clamp<int64_t>(ceil_div(places(), 32) * 32, 32, 1024)); }
};

/// A label, and for one out of range, which is reported, a blank.
__device__ inline int label_at(const Batch& b, const int64_t* labels, int i, const ErrorSink& sink) {
    const int64_t label = labels[i];
    if (uint64_t(label) < uint64_t(b.classes)) return int(label);
    report_index(sink, b.op, label, b.classes);
    return b.blank;
}

__device__ inline int64_t length_at(const int64_t* lengths, int64_t n, int64_t most) {
    return max(int64_t(0), min(lengths[n], most));
}

/// What is reached past another state: a label that differs from the last.
__device__ inline bool is_reached_past(const int* labels, int state) {
    return state % 2 == 1 && (state == 1 || labels[state / 2] != labels[state / 2 - 1]);
}

template <class T>
__device__ inline T log_sum(T a, T b) {
    const T most = a > b ? a : b;
    return most + log(exp(a - most) + exp(b - most));
}

/// The three paths to a state, from two before it, from the last and from itself.
template <class T>
struct Paths {
    T a, b, c, most;

    __device__ Paths(const T* last, bool is_past, int state)
        : a(last[state] + (is_past ? T(0) : NEVER<T>)), b(last[state + 1]), c(last[state + 2]) {
        const T ab = a > b ? a : b;
        most = ab > c ? ab : c;
    }
};

template <class T>
__global__ void __launch_bounds__(1024) alphas_kernel(const __grid_constant__ Batch b, T* loss, T* out, const char* logs,
                                                      int64_t step_stride, int64_t sample_stride, int64_t class_stride,
                                                      const int64_t* targets, const int64_t* times,
                                                      const int64_t* sizes, const ErrorSink sink) {
    extern __shared__ double shared[];
    const int places = b.places();
    T* last = reinterpret_cast<T*>(shared);
    T* next = last + places;
    int* const labels = reinterpret_cast<int*>(next + places);
    const int64_t n = blockIdx.x, row = b.count * places;
    for (int i = threadIdx.x; i < b.longest; i += blockDim.x) labels[i] = label_at(b, targets + n * b.longest, i, sink);
    out += n * places;
    for (int p = threadIdx.x; p < places; p += blockDim.x) {
        last[p] = out[p] = p == 1 ? T(0) : NEVER<T>;
        next[p] = NEVER<T>;
    }
    __syncthreads();
    const int64_t time = length_at(times, n, b.steps);
    logs += n * sample_stride;
    for (int64_t t = 0; t < time; ++t, logs += step_stride) {
        out += row;
        for (int s = threadIdx.x; s < b.states; s += blockDim.x) {
            const int label = s % 2 ? labels[s / 2] : b.blank;
            const T emitted = *reinterpret_cast<const T*>(logs + label * class_stride);
            const Paths<T> from(last, is_reached_past(labels, s), s);
            const T sum = exp(from.a - from.most) + exp(from.b - from.most) + exp(from.c - from.most);
            next[s + 2] = out[s + 2] = from.most + log(sum) + (emitted < NEVER<T> ? NEVER<T> : emitted);
        }
        if (threadIdx.x < 2) out[threadIdx.x] = NEVER<T>;
        if (t == 1 && threadIdx.x == 0) next[1] = NEVER<T>;  // where all paths began, one step after the last was read
        __syncthreads();
        T* const swapped = last;
        last = next, next = swapped;
    }
    if (threadIdx.x == 0) {
        const int64_t size = length_at(sizes, n, b.longest);
        const T chance = log_sum(last[2 * size + 1], last[2 * size + 2]);
        loss[n] = chance <= NEVER<T> / 2 ? std::numeric_limits<T>::infinity() : -chance;
    }
    for (int64_t t = time; t < b.steps; ++t) {
        out += row;
        for (int p = threadIdx.x; p < places; p += blockDim.x) out[p] = NEVER<T>;
    }
}

/// What came to each state from itself and the two after it. It is summed where it is read, so that a step needs but one
/// barrier.
template <class T>
struct Arrived {
    T *past, *last, *same;  // by the state that it came from, which is two on, one on and the same

    __device__ Arrived(T* memory, int states) : past(memory), last(memory + states + 2), same(memory + 2 * states + 4) {}
    /// Two more than states, so that none is read beyond the end.
    static constexpr int arrays_of(int states) { return 3 * (states + 2); }
    __device__ T at(int state) const { return past[state + 2] + last[state + 1] + same[state]; }
};

/// A chain from each label to where it comes next in the target, by the label's place; labels that stand again, and those
/// that are the blank, begin none.
constexpr int END = -1, NO_CHAIN = -2, IS_BLANK = -3;

template <class T>
__global__ void __launch_bounds__(1024) grad_kernel(const __grid_constant__ Batch b, T* out, const T* grad,
                                                    const int64_t* targets, const int64_t* times, const int64_t* sizes,
                                                    const T* alphas, const ErrorSink sink) {
    extern __shared__ double shared[];
    const int places = b.places();
    const int64_t n = blockIdx.x, row = b.count * places;
    T* const memory = reinterpret_cast<T*>(shared);
    const int arrays = Arrived<T>::arrays_of(b.states);
    Arrived<T> now(memory, b.states), before(memory + arrays, b.states);
    int* const labels = reinterpret_cast<int*>(memory + 2 * arrays);
    int* const following = labels + b.longest;
    int* const kinds = following + b.longest;
    for (int i = threadIdx.x; i < b.longest; i += blockDim.x) labels[i] = label_at(b, targets + n * b.longest, i, sink);
    for (int k = threadIdx.x; k < 2 * arrays; k += blockDim.x) memory[k] = T(0);
    __syncthreads();
    for (int i = threadIdx.x; i < b.longest; i += blockDim.x) {
        int next = i + 1, earlier = i - 1;
        while (next < b.longest && labels[next] != labels[i]) ++next;
        while (earlier >= 0 && labels[earlier] != labels[i]) --earlier;
        following[i] = next < b.longest ? next : END;
        kinds[i] = labels[i] == b.blank ? IS_BLANK : earlier >= 0 ? NO_CHAIN : 0;
    }
    const int64_t time = length_at(times, n, b.steps), size = length_at(sizes, n, b.longest);
    alphas += time * row + n * places;
    out += (time * b.count + n) * b.classes;
    if (threadIdx.x == 0) {
        const T one = alphas[2 * size + 1], two = alphas[2 * size + 2], chance = log_sum(one, two);
        const T weight = chance <= NEVER<T> / 2 ? T(0) : -grad[n], share = T(1) / (T(1) + exp(one - two));
        if (size > 0) now.same[2 * size - 1] = weight * (T(1) - share);
        now.same[2 * size] = weight * share;
    }
    __syncthreads();
    for (int64_t t = time - 1; t >= 0; --t) {
        alphas -= row;
        out -= b.count * b.classes;
        for (int s = threadIdx.x; s < b.states; s += blockDim.x) {
            const Paths<T> from(alphas, is_reached_past(labels, s), s);
            const T p = exp(from.a - from.most), q = exp(from.b - from.most), r = exp(from.c - from.most);
            const T factor = now.at(s) / (p + q + r);
            before.past[s] = p * factor, before.last[s] = q * factor, before.same[s] = r * factor;
            if (s % 2 && kinds[s / 2] == 0) {
                T sum = now.at(s);
                for (int i = following[s / 2]; i != END; i = following[i]) sum += now.at(2 * i + 1);
                out[labels[s / 2]] = sum;
            }
        }
        if (threadIdx.x < 32) {
            T sum = T(0);
            for (int s = threadIdx.x; s < b.states; s += 32)
                if (s % 2 == 0 || kinds[s / 2] == IS_BLANK) sum += now.at(s);
#pragma unroll
            for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (threadIdx.x == 0) out[b.blank] = sum;
        }
        __syncthreads();
        const Arrived<T> swapped = now;
        now = before, before = swapped;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) clear_kernel(T* out, int64_t n) {
    for (int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x; i < n; i += int64_t(gridDim.x) * THREADS) out[i] = T(0);
}

template <class T>
KernelPtr alphas(const Request& r) {
    const Operand& logs = r.operands[2];
    const Batch b(r, r.operands[3], logs.shape[0], logs.shape[2]);
    const norch::Grid grid{unsigned(b.count), b.threads(), 2 * b.places() * sizeof(T) + b.longest * sizeof(int)};
    if (grid.shared > SHARED_BYTES) return nullptr;
    const int64_t itemsize = sizeof(T);
    const int64_t steps = logs.strides[0] * itemsize, samples = logs.strides[1] * itemsize, of = logs.strides[2] * itemsize;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (b.count == 0) return;
        launch_kernel("ctc_alphas", alphas_kernel<T>, grid, b, reinterpret_cast<T*>(data[0]), reinterpret_cast<T*>(data[1]),
                      data[2], steps, samples, of, reinterpret_cast<const int64_t*>(data[3]),
                      reinterpret_cast<const int64_t*>(data[4]), reinterpret_cast<const int64_t*>(data[5]), error_sink());
    });
}

template <class T>
KernelPtr grads(const Request& r) {
    const Operand& out = r.operands[0];
    const Batch b(r, r.operands[2], out.shape[0], out.shape[2]);
    const size_t shared = 2 * Arrived<T>::arrays_of(b.states) * sizeof(T) + 3 * b.longest * sizeof(int);
    const norch::Grid grid{unsigned(b.count), b.threads(), shared};
    if (grid.shared > SHARED_BYTES) return nullptr;
    const int64_t n = out.numel();
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (n == 0) return;
        const auto blocks = unsigned(std::min<int64_t>(ceil_div(n, THREADS), 16 * multiprocessors()));
        launch_kernel("ctc_grad", clear_kernel<T>, blocks, THREADS, reinterpret_cast<T*>(data[0]), n);
        launch_kernel("ctc_grad", grad_kernel<T>, grid, b, reinterpret_cast<T*>(data[0]), reinterpret_cast<const T*>(data[1]),
                      reinterpret_cast<const int64_t*>(data[2]), reinterpret_cast<const int64_t*>(data[3]),
                      reinterpret_cast<const int64_t*>(data[4]), reinterpret_cast<const T*>(data[5]), error_sink());
    });
}

/// `operands`: which must lie row by row.
template <class F>
KernelPtr floating(const Request& r, std::initializer_list<size_t> operands, const F& make) {
    for (size_t i : operands)
        if (!r.operands[i].is_contiguous()) return nullptr;
    const DType dtype = r.operands[0].dtype;
    if (r.operands[1].dtype != dtype) return nullptr;
    return dtype == DType::f32 ? make(float()) : dtype == DType::f64 ? make(double()) : nullptr;
}

}  // namespace ctc
}  // namespace

void add_ctc(Registry& registry) {
    registry["ctc_alphas"] = [](const Request& r) {
        return ctc::floating(r, {0, 1, 3, 4, 5}, [&]<class T>(T) { return ctc::alphas<T>(r); });
    };
    registry["ctc_grad"] = [](const Request& r) {
        return ctc::floating(r, {0, 1, 2, 3, 4, 5}, [&]<class T>(T) { return ctc::grads<T>(r); });
    };
}

}  // namespace norch::nn
