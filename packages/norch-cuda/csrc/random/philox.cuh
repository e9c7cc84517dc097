// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as
// norch.numpy_backend.philox defines it: counted, so that any thread makes what it needs.
#pragma once

#include "runtime/device.cuh"

namespace norch::random {

/// One draw, for blocks that have the high word of their number in common: what of the first two rounds is the same for
/// all of them, and the keys of the others.
struct Philox {
    static constexpr int ROUNDS = 10;
    static constexpr uint32_t M0 = 0xD2511F53u, M1 = 0xCD9E8D57u, W0 = 0x9E3779B9u, W1 = 0xBB67AE85u;
    uint32_t key0[ROUNDS], key1[ROUNDS], first2, second0, second2, second3, offset0, offset1;

    Philox(uint64_t seed, uint64_t offset, uint64_t block = 0)
        : offset0(uint32_t(offset)), offset1(uint32_t(offset >> 32)) {
        for (uint32_t round = 0; round < ROUNDS; ++round) {
            key0[round] = uint32_t(seed) + round * W0;
            key1[round] = uint32_t(seed >> 32) + round * W1;
        }
        const uint64_t p1 = uint64_t(M1) * offset0;
        const uint64_t p0 = uint64_t(M0) * (uint32_t(p1 >> 32) ^ uint32_t(block >> 32) ^ key0[0]);
        first2 = offset1 ^ key1[0];
        second0 = uint32_t(p1) ^ key0[1];
        second2 = uint32_t(p0 >> 32) ^ key1[1];
        second3 = uint32_t(p0);
    }

    /// The four words of the block with this low word.
    __device__ uint4 operator()(uint32_t block) const {
        const uint64_t first = uint64_t(M0) * block, second = uint64_t(M1) * (uint32_t(first >> 32) ^ first2);
        uint32_t c0 = uint32_t(second >> 32) ^ second0, c1 = uint32_t(second);
        uint32_t c2 = second2 ^ uint32_t(first), c3 = second3;
        rounds<2>(c0, c1, c2, c3);
        return make_uint4(c0, c1, c2, c3);
    }

    /// The four words of any block, of this draw or of that whose offset is as much more in its high word.
    __device__ uint4 any(uint64_t block, uint32_t high = 0) const {
        uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = offset0, c3 = offset1 + high;
        rounds<0>(c0, c1, c2, c3);
        return make_uint4(c0, c1, c2, c3);
    }

private:
    template <int FIRST>
    __device__ void rounds(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3) const {
#pragma unroll
        for (int round = FIRST; round < ROUNDS; ++round) {
            const uint64_t p0 = uint64_t(M0) * c0, p1 = uint64_t(M1) * c2;
            c0 = uint32_t(p1 >> 32) ^ c1 ^ key0[round];
            c1 = uint32_t(p1);
            c2 = uint32_t(p0 >> 32) ^ c3 ^ key1[round];
            c3 = uint32_t(p0);
        }
    }
};

/// A float64 uniform of two words.
__device__ inline double uniform64(uint32_t a, uint32_t b) {
    return (double(int32_t(a >> 5)) * 0x1p26 + double(int32_t(b >> 6))) * 0x1p-53;
}

}  // namespace norch::random
