// Counts of the threads of a block, summed up to each of them.
#pragma once

#include "runtime/device.cuh"

namespace norch::indexing {

/// The sum over a block of `SIZE` threads; `before`, of the threads before this one.
template <int SIZE = THREADS>
__device__ inline uint32_t over_block(uint32_t count, uint32_t& before) {
    __shared__ uint32_t warps[SIZE / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t reached = count;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, reached, step);
        if (lane >= step) reached += other;
    }
    if (lane == 31) warps[warp] = reached;
    __syncthreads();
    uint32_t total = 0;
    before = reached - count;
#pragma unroll
    for (int w = 0; w < SIZE / 32; ++w) {
        if (uint32_t(w) < warp) before += warps[w];
        total += warps[w];
    }
    __syncthreads();
    return total;
}

}  // namespace norch::indexing
