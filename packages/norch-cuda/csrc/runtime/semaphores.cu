// Each stream has a semaphore, since its kernels come one after the other. So do the kernels of a graph, which may be
// replayed on any stream; as there is no telling for how long, theirs are never given to others. (But a stream that is
// recorded for one program at a time is known to be done with those before.)
#include "runtime/semaphores.h"

#include <unordered_map>
#include <vector>

#include "runtime/runtime.h"

namespace norch {
namespace {

constexpr int PAGE = 1024;

struct Pool {
    unsigned* next = nullptr;
    int left = 0;
    std::unordered_map<const Stream*, unsigned*> of_stream;
};

unsigned* new_semaphore(Pool& pool) {
    if (!pool.left) {
        const RelaxedCapture relaxed;
        void* page = nullptr;
        cudaError_t error = cudaMalloc(&page, PAGE * sizeof(unsigned));
        if (error == cudaSuccess) error = cudaMemset(page, 0, PAGE * sizeof(unsigned));
        // The default stream's order does not bind the other streams.
        if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
        check(error, "making semaphores");
        pool.next = static_cast<unsigned*>(page);
        pool.left = PAGE;
    }
    --pool.left;
    return pool.next++;
}

}  // namespace

unsigned* take_semaphore() {
    static auto pools = std::vector<Pool>(size_t(device_count()));
    const Stream& stream = launch_stream();
    Pool& pool = pools[size_t(stream.device)];
    if (stream.is_capturing && !stream.is_programs) return new_semaphore(pool);
    unsigned*& found = pool.of_stream[&stream];
    if (!found) found = new_semaphore(pool);
    return found;
}

}  // namespace norch
