// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as norch.numpy_backend.philox
// defines it: counted, so that any thread makes what it needs.
#pragma once

#include "device.cuh"

namespace norch {

/// The keys of all rounds, and the part of the counter that a draw shares.
struct Philox {
    static constexpr int ROUNDS = 10;
    uint32_t key0[ROUNDS], key1[ROUNDS], offset0, offset1;

    Philox(uint64_t seed, uint64_t offset) : offset0(uint32_t(offset)), offset1(uint32_t(offset >> 32)) {
        for (uint32_t round = 0; round < ROUNDS; ++round) {
            key0[round] = uint32_t(seed) + round * 0x9E3779B9u;
            key1[round] = uint32_t(seed >> 32) + round * 0xBB67AE85u;
        }
    }

    /// The four words of a block.
    __device__ uint4 operator()(uint64_t block) const {
        uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = offset0, c3 = offset1;
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
            c0 = uint32_t(p1 >> 32) ^ c1 ^ key0[round];
            c1 = uint32_t(p1);
            c2 = uint32_t(p0 >> 32) ^ c3 ^ key1[round];
            c3 = uint32_t(p0);
        }
        return make_uint4(c0, c1, c2, c3);
    }
};

}  // namespace norch
