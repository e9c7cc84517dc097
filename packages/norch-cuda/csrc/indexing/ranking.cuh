// What topk and select_along share: a block finds the key of a rank in a row, digit by digit, by counting.
#pragma once

#include "indexing/block_counts.cuh"
#include "indexing/sorting.cuh"

namespace norch::indexing::ranking {

constexpr int RANKING = 512, DIGIT_BITS = 11, BINS = 1 << DIGIT_BITS;  // threads of a block; what is counted at once

/// What the threads of a block share.
struct Counts {
    uint32_t of_digit[BINS], digit, below;
};

/// The key that `need` of a row's n keys, of `bits` bits each, do not come after, counted from 1; `need` becomes its
/// number among those that equal it.
template <class KeyOf>
__device__ inline uint64_t key_of_rank(const KeyOf& key_of, int64_t n, int bits, uint32_t& need, Counts& shared) {
    uint64_t prefix = 0, mask = 0;
    for (int shift = bits; shift > 0;) {
        const int digit_bits = min(DIGIT_BITS, shift);
        shift -= digit_bits;
        const uint64_t digits = (uint64_t(1) << digit_bits) - 1;
        for (int b = threadIdx.x; b < BINS; b += RANKING) shared.of_digit[b] = 0;
        __syncthreads();
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < n; i += RANKING) {
            const uint64_t key = key_of(i);
            if ((key & mask) == prefix) atomicAdd(&shared.of_digit[key >> shift & digits], 1u);
        }
        __syncthreads();
        constexpr int EACH = BINS / RANKING;
        uint32_t own[EACH], sum = 0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) sum += own[j] = shared.of_digit[threadIdx.x * EACH + j];
        uint32_t before;
        over_block<RANKING>(sum, before);
        if (before < need && need <= before + sum) {  // one thread
            int j = 0;
            while (before + own[j] < need) before += own[j++];
            shared.digit = threadIdx.x * EACH + j;
            shared.below = before;
        }
        __syncthreads();
        prefix |= uint64_t(shared.digit) << shift;
        mask |= digits << shift;
        need -= shared.below;
        __syncthreads();
    }
    return prefix;
}

}  // namespace norch::indexing::ranking
