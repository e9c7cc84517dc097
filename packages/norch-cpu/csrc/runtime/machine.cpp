// What the machine can do, for benchmarks to compare with: arithmetic and copies at full speed on every thread.
#include "runtime/machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "matmul/tiles.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace norch {
namespace {

constexpr int LANES = VECTOR_BYTES / int(sizeof(float));
constexpr int CHAINS = VECTOR_BYTES == 64 ? 24 : 12;  // enough for the latency of a multiply-add, few enough for the registers
constexpr int ROUNDS = 100000;
constexpr int TRIES = 15;

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));

float multiply_add(float seed) {
    Lanes sums[CHAINS];
    Lanes factor = Lanes{} + (0.5f + seed), term = Lanes{} + seed;
    NORCH_UNROLL
    for (int c = 0; c < CHAINS; ++c) sums[c] = Lanes{} + float(c);
    for (int r = 0; r < ROUNDS; ++r) {
        NORCH_UNROLL  // else they are kept in memory
        for (int c = 0; c < CHAINS; ++c) sums[c] = sums[c] * factor + term;
    }
    float total = 0;
    NORCH_UNROLL
    for (int c = 0; c < CHAINS; ++c) total += sums[c][c % LANES];
    return total;
}

/// The shortest time, in seconds, in which `body` runs once on each of `threads`.
template <class Body>
double best_time(int threads, const Body& body) {
    double best = 1e30;
    for (int i = 0; i < TRIES; ++i) {
        auto start = std::chrono::steady_clock::now();
        run_parallel(
            threads, [](const void* given, int64_t at) { (*static_cast<const Body*>(given))(at); }, &body);
        std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        best = std::min(best, passed.count());
    }
    return best;
}

/// Lets run_parallel use `threads` for a while.
class Threads {
public:
    explicit Threads(int threads) : before_(num_threads()) { set_num_threads(threads); }
    ~Threads() { set_num_threads(before_); }

private:
    int before_;
};

}  // namespace

double fma_peak(int threads) {
    Threads chosen(threads);
    Scratch<float> results(threads);
    double seconds = best_time(threads, [&](int64_t at) { results[at] = multiply_add(0.01f * float(at)); });
    return 2.0 * LANES * CHAINS * ROUNDS * threads / seconds;
}

double tile_peak(int threads) {
    if (!matmul::multiplies_blocks(matmul::Parts::one)) return 0;
    Threads chosen(threads);
    // 32 rows and columns that stay in the first cache.
    constexpr int64_t STEPS = 8, PRODUCTS = 500;
    const Scratch<uint32_t> factors(2 * STEPS * matmul::BLOCK);
    const Scratch<float> sums(threads * 32 * 32);
    std::fill_n(factors.data(), 2 * STEPS * matmul::BLOCK, 0u);
    const matmul::TileFactors all{factors.data(), factors.data(), STEPS * matmul::BLOCK, STEPS * matmul::BLOCK, STEPS,
                                  matmul::Parts::one, 2, 2};
    double seconds = best_time(threads, [&](int64_t at) {
        const matmul::TileRegisters registers;
        for (int64_t i = 0; i < PRODUCTS; ++i) matmul::multiply_blocks(all, false, sums.data() + at * 32 * 32, 32);
    });
    return 2.0 * 32 * 32 * 32 * double(STEPS * PRODUCTS) * threads / seconds;
}

double copy_bandwidth(int64_t nbytes, int threads) {
    Threads chosen(threads);
    Scratch<> from(nbytes), to(nbytes);
    std::memset(from.data(), 1, size_t(nbytes));
    std::memset(to.data(), 1, size_t(nbytes));
    int64_t part = nbytes / threads / 64 * 64;
    int repeats = int(std::max<int64_t>(1, (int64_t(32) << 20) / std::max<int64_t>(1, nbytes)));
    double seconds = best_time(threads, [&](int64_t at) {
        for (int r = 0; r < repeats; ++r) std::memcpy(to.data() + at * part, from.data() + at * part, size_t(part));
    });
    return 2.0 * double(part) * threads * repeats / seconds;
}

}  // namespace norch
