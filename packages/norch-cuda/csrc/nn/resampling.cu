// resample: along one dim each element of the result is a sum of neighbours in the input, with weights. A thread for each
// packet of elements that lie within the dim; along the last dim, for a result of some lines, whose weights are the same.
#include <algorithm>

#include "common/image_layout.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::nn {
namespace {
namespace resampling {

constexpr int LINES = 4;  // of a thread

/// A dim of n elements that gets `count`, each the sum of `taps`; the dims before it, and those within it in memory.
struct Along {
    int64_t outer = 1, inner = 1;
    int n, count, taps;
    int32_t op;

    Along(const Request& r)
        : n(int(r.operands[1].shape[size_t(r.attrs.integer("dim"))])), count(int(r.operands[3].shape[0])),
          taps(int(r.operands[3].shape[1])), op(op_number("resample")) {
        const Operand &out = r.operands[0], &x = r.operands[1];
        const int64_t dim = r.attrs.integer("dim");
        const bool is_last = !x.is_contiguous() || !out.is_contiguous();  // the channels are, of which dim is none
        for (int64_t d = 0; d < x.ndim(); ++d)
            if (d != dim) (d > dim || (is_last && d == 1) ? inner : outer) *= x.shape[size_t(d)];
    }
};

/// The threads: of `inner` packets or, along the last dim, one of groups of lines.
struct Threads {
    FastDivide inner, counts;
    uint32_t total;

    Threads(const Along& a, int64_t outer, int64_t inner)
        : inner(uint32_t(inner)), counts(uint32_t(a.count)), total(uint32_t(outer * a.count * inner)) {}
    unsigned blocks() const { return unsigned(ceil_div(total, THREADS)); }
};

/// Where the neighbours of result i begin; a place outside is reported.
__device__ inline int64_t first_of(const int64_t* first, uint32_t i, const Along& a, const ErrorSink& sink) {
    const int64_t at = first[i];
    if (at >= 0 && at <= a.n - a.taps) return at;
    report_index(sink, a.op, at, a.n);
    return 0;
}

template <class T, int VEC>
__global__ void __launch_bounds__(THREADS) sum_rows(const __grid_constant__ Along a, const __grid_constant__ Threads threads,
                                                    T* out, const T* x, const int64_t* first, const T* weights,
                                                    const ErrorSink sink) {
    using Elements = Packet<T, VEC>;
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads.total) return;
    const uint32_t row = threads.inner.quotient(f), packet = f - row * threads.inner.divisor;
    const uint32_t outer = threads.counts.quotient(row), i = row - outer * threads.counts.divisor;
    const int64_t place = outer * int64_t(a.n) + first_of(first, i, a, sink);
    const Elements* from = reinterpret_cast<const Elements*>(x) + place * threads.inner.divisor + packet;
    weights += int64_t(i) * a.taps;
    Elements sum{};
#pragma unroll 4
    for (int t = 0; t < a.taps; t += 2) {
        const bool is_last = t + 1 == a.taps;
        const Elements one = from[int64_t(t) * threads.inner.divisor];
        const Elements two = from[int64_t(is_last ? t : t + 1) * threads.inner.divisor];
        const T by = weights[t], then = is_last ? T(0) : weights[t + 1];
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            sum.v[j] += by * (by != T(0) ? one.v[j] : T(0));  // what has weight 0 may be NaN
            sum.v[j] += then * (then != T(0) ? two.v[j] : T(0));
        }
    }
    reinterpret_cast<Elements*>(out)[f] = sum;
}

template <class T>
__global__ void __launch_bounds__(THREADS) sum_lines(const __grid_constant__ Along a, const __grid_constant__ Threads threads,
                                                     T* out, const T* x, const int64_t* first, const T* weights,
                                                     const ErrorSink sink) {
    const uint32_t f = blockIdx.x * THREADS + threadIdx.x;
    if (f >= threads.total) return;
    const uint32_t group = threads.counts.quotient(f), i = f - group * threads.counts.divisor;
    const int64_t line = int64_t(group) * LINES, place = first_of(first, i, a, sink);
    const T* from[LINES];
#pragma unroll
    for (int k = 0; k < LINES; ++k) from[k] = x + min(line + k, a.outer - 1) * a.n + place;
    weights += int64_t(i) * a.taps;
    T sum[LINES] = {};
#pragma unroll 4
    for (int t = 0; t < a.taps; ++t) {
        const T by = weights[t];
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            const T value = from[k][t];
            sum[k] += by * (by != T(0) ? value : T(0));
        }
    }
#pragma unroll
    for (int k = 0; k < LINES; ++k)
        if (line + k < a.outer) out[(line + k) * a.count + i] = sum[k];
}

template <class T>
KernelPtr resample(const Request& r) {
    constexpr int VEC = PER_16_BYTES<T>;
    const Along a(r);
    if (a.taps > a.n) return nullptr;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        if (!a.outer || !a.inner || !a.count) return;
        T* const out = reinterpret_cast<T*>(data[0]);
        const T *const x = reinterpret_cast<const T*>(data[1]), *const weights = reinterpret_cast<const T*>(data[3]);
        const int64_t* const first = reinterpret_cast<const int64_t*>(data[2]);
        const bool has_packets = a.inner % VEC == 0 && is_aligned(out, 16) && is_aligned(x, 16);
        const bool is_lines = a.inner == 1;
        const Threads threads(a, is_lines ? ceil_div(a.outer, LINES) : a.outer, has_packets ? a.inner / VEC : a.inner);
        auto* const kernel = is_lines ? sum_lines<T> : has_packets ? sum_rows<T, VEC> : sum_rows<T, 1>;
        launch_kernel("resample", kernel, threads.blocks(), THREADS, a, threads, out, x, first, weights, error_sink());
    });
}

}  // namespace resampling
}  // namespace

void add_resampling(Registry& registry) {
    registry["resample"] = [](const Request& r) -> KernelPtr {
        constexpr int64_t LIMIT = (int64_t(1) << 31) - THREADS;
        const Operand &out = r.operands[0], &x = r.operands[1];
        const auto is_last = [](const Operand& o) { return o.ndim() == 4 && is_channels_last(o); };
        if (!(out.is_contiguous() && x.is_contiguous()) && !(r.attrs.integer("dim") > 1 && is_last(out) && is_last(x)))
            return nullptr;
        if (x.dtype != out.dtype || r.operands[3].dtype != out.dtype || r.operands[2].dtype != DType::i64) return nullptr;
        for (size_t i : {2, 3})
            if (!r.operands[i].is_contiguous()) return nullptr;
        if (out.numel() > LIMIT || x.numel() > LIMIT) return nullptr;
        if (out.dtype == DType::f32) return resampling::resample<float>(r);
        return out.dtype == DType::f64 ? resampling::resample<double>(r) : nullptr;
    };
}

}  // namespace norch::nn
