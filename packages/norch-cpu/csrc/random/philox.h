// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as
// norch.numpy_backend.philox defines it: counted, so that any part of a draw can be made on its own.
#pragma once

#include <algorithm>
#include <cstdint>

namespace norch::random {

/// Blocks made side by side, in loops that vectorise; draws are made in multiples of them.
constexpr int64_t PHILOX_LANES = 32;

/// The words of `blocks` counters from `first` on, four to a block; as many multiples of PHILOX_LANES as that takes.
inline void philox(uint64_t seed, uint64_t offset, uint64_t first, int64_t blocks, uint32_t* out) {
    constexpr int64_t L = PHILOX_LANES;
    for (int64_t done = 0; done < blocks; done += L, out += 4 * L) {
        uint32_t c0[L], c1[L], c2[L], c3[L];
        for (int64_t i = 0; i < L; ++i) {
            uint64_t block = first + uint64_t(done + i);
            c0[i] = uint32_t(block);
            c1[i] = uint32_t(block >> 32);
            c2[i] = uint32_t(offset);
            c3[i] = uint32_t(offset >> 32);
        }
        uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
        for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            for (int64_t i = 0; i < L; ++i) {
                uint64_t p0 = uint64_t(0xD2511F53u) * c0[i], p1 = uint64_t(0xCD9E8D57u) * c2[i];
                c0[i] = uint32_t(p1 >> 32) ^ c1[i] ^ k0;
                c1[i] = uint32_t(p1);
                c2[i] = uint32_t(p0 >> 32) ^ c3[i] ^ k1;
                c3[i] = uint32_t(p0);
            }
        }
        for (int64_t i = 0; i < L; ++i) {
            out[4 * i] = c0[i];
            out[4 * i + 1] = c1[i];
            out[4 * i + 2] = c2[i];
            out[4 * i + 3] = c3[i];
        }
    }
}

}  // namespace norch::random
