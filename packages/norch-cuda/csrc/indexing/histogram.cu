// Counts: histogram of numbers, bin_counts of integers. Blocks count in shared memory, where that has room for all bins.
#include <algorithm>

#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::indexing {
namespace {

constexpr int64_t SHARED_BINS = 8192, EACH = 16;  // EACH: elements of a thread, at least

using Count = unsigned long long;

/// The bin of a number by norch's formula, operation by operation; -1 outside.
template <class T>
struct ByRange {
    const T* x;
    T low, high, bins, span;
    int64_t last;

    __device__ int64_t operator()(int64_t i) const {
        const T value = x[i];
        if (!(value >= low) || !(value <= high)) return -1;
        if constexpr (sizeof(T) == 4) return min(int64_t(__fdiv_rn(__fmul_rn(__fsub_rn(value, low), bins), span)), last);
        else return min(int64_t(__ddiv_rn(__dmul_rn(__dsub_rn(value, low), bins), span)), last);
    }
};

/// The integer itself; one that is out of range is not counted: who asks has looked for the largest.
struct ByIndex {
    const int64_t* x;
    int64_t bins;

    __device__ int64_t operator()(int64_t i) const { return uint64_t(x[i]) < uint64_t(bins) ? x[i] : -1; }
};

__global__ void __launch_bounds__(THREADS) clear_counts(Count* counts, int64_t bins) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < bins) counts[i] = 0;
}

template <class Bin>
__global__ void __launch_bounds__(THREADS) count_bins(const Bin bin_of, int64_t n, int64_t bins, Count* counts,
                                                      bool is_shared) {
    extern __shared__ uint32_t own[];
    if (is_shared)
        for (int64_t b = threadIdx.x; b < bins; b += THREADS) own[b] = 0;
    __syncthreads();
    const int64_t step = int64_t(gridDim.x) * THREADS;
#pragma unroll 4
    for (int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t bin = bin_of(i);
        if (bin < 0) continue;
        if (is_shared) atomicAdd(&own[bin], 1u);
        else atomicAdd(&counts[bin], Count(1));
    }
    if (!is_shared) return;
    __syncthreads();
    for (int64_t b = threadIdx.x; b < bins; b += THREADS)
        if (own[b]) atomicAdd(&counts[b], Count(own[b]));
}

template <class Bin>
void run_counts(const Bin& bin_of, int64_t n, int64_t bins, char* out) {
    auto* const counts = reinterpret_cast<Count*>(out);
    launch_kernel("counts", clear_counts, unsigned(ceil_div(bins, THREADS)), THREADS, counts, bins);
    if (!n) return;
    const bool is_shared = bins <= SHARED_BINS;
    const int64_t most = std::max<int64_t>(4 * int64_t(multiprocessors()), n >> 31);  // of a block 2**31 at most
    const int64_t blocks = std::min(ceil_div(n, THREADS * EACH), most);
    launch_kernel("counts", count_bins<Bin>, Grid{unsigned(blocks), THREADS, is_shared ? size_t(bins) * 4 : 0}, bin_of, n,
                  bins, counts, is_shared);
}

bool are_counts(const Request& request) {
    const Operand &out = request.operands[0], &x = request.operands[1];
    return out.dtype == DType::i64 && out.is_contiguous() && x.is_contiguous() && out.numel() > 0 &&
           out.numel() <= int64_t(1) << 31;
}

/// counts (bins), x (n): null for other numbers, which norch's formula serves.
KernelPtr histogram(const Request& request) {
    const int64_t bins = request.operands[0].numel(), n = request.operands[1].numel();
    const double low = request.attrs.number("low"), high = request.attrs.number("high");
    const DType dtype = request.operands[1].dtype;
    if (!are_counts(request) || (dtype != DType::f32 && dtype != DType::f64)) return nullptr;
    const auto make = [=]<class T>(Tag<T>) {
        return make_kernel(0, [=](char* const* data, const Scalar*) {
            const ByRange<T> bin{reinterpret_cast<const T*>(data[1]), T(low), T(high), T(bins), T(high - low), bins - 1};
            run_counts(bin, n, bins, data[0]);
        });
    };
    return dtype == DType::f32 ? make(Tag<float>{}) : make(Tag<double>{});
}

KernelPtr bin_counts(const Request& request) {
    const int64_t bins = request.operands[0].numel(), n = request.operands[1].numel();
    if (!are_counts(request) || request.operands[1].dtype != DType::i64) return nullptr;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        run_counts(ByIndex{reinterpret_cast<const int64_t*>(data[1]), bins}, n, bins, data[0]);
    });
}

}  // namespace

void add_histograms(Registry& registry) {
    registry["histogram"] = histogram;
    registry["bin_counts"] = bin_counts;
}

}  // namespace norch::indexing
