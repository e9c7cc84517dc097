// How many targets count, which the mean of their losses divides by.
#pragma once

#include "nn/losses.cuh"

namespace norch::nn {

constexpr int COUNT_BLOCKS = 128;          // blocks that count targets, of
constexpr int64_t COUNTED_AT_ONCE = 4096;  // more than each block of the gradient can count for itself

static __global__ void __launch_bounds__(THREADS) count_kernel(const Targets targets, int64_t rows, int64_t* parts) {
    int64_t v[1] = {0};
    for (int64_t row = int64_t(blockIdx.x) * THREADS + threadIdx.x; row < rows; row += int64_t(gridDim.x) * THREADS)
        v[0] += targets.counts(row);
    reduce_block<Sum>(v);
    if (threadIdx.x == 0) parts[blockIdx.x] = v[0];
}

/// How many targets count, for each thread of a block: from the parts where there are any.
__device__ inline int64_t count_targets(const Targets& targets, int64_t rows, const int64_t* parts) {
    int64_t v[1] = {0};
    if (parts) {
        for (int i = threadIdx.x; i < COUNT_BLOCKS; i += blockDim.x) v[0] += parts[i];
    } else {
        for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) v[0] += targets.counts(row);
    }
    reduce_block<Sum>(v);
    return v[0];
}

/// What `count_targets` adds up, where there are many rows.
class TargetCounts {
public:
    TargetCounts(const Targets& targets, int64_t rows)
        : is_counted_(rows > COUNTED_AT_ONCE), parts_(is_counted_ ? COUNT_BLOCKS : 1) {
        if (is_counted_)
            launch_kernel("counting targets", count_kernel, COUNT_BLOCKS, THREADS, targets, rows, parts_.data());
    }
    const int64_t* parts() const { return is_counted_ ? parts_.data() : nullptr; }

private:
    bool is_counted_;
    Scratch<int64_t> parts_;
};

}  // namespace norch::nn
