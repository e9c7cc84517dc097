#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/flushing.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace norch {
namespace {

// A worker looks out for the next job for so long before it sleeps: the next op of a model usually comes sooner. To wake
// one takes 10 us of the caller, on a virtual machine with a core of its own too, and it comes 30 to 90 us later.
constexpr auto SPIN = std::chrono::microseconds(200);
constexpr double WAKE_NS = 50000;  // less work than this, of all that found one asleep, wakes nobody
constexpr int PAUSES = 256;        // from one look at the clock to the next

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// What a thread begins with, in a cache line of its own.
struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
};
constexpr int MAX_SHARES = 32;

/// Each thread begins with a share that is the same at every call over as much data: that much of it as its caches hold
/// need not come from another core's. Then it takes of the others' what they have not begun.
struct Job {
    void (*body)(const void*, int64_t);
    const void* context;
    int threads, shares;
    uint64_t mode = floating_mode();  // of the caller, and so of all
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    Share share[MAX_SHARES];

    Job(int64_t count, void (*body)(const void*, int64_t), const void* context, int threads)
        : body(body), context(context), threads(threads), shares(std::min(threads, MAX_SHARES)) {
        for (int k = 0; k < shares; ++k) {
            share[k].next.store(count * k / shares, std::memory_order_relaxed);
            share[k].end = count * (k + 1) / shares;
        }
    }

    void work(int thread) {
        for (int k = 0; k < shares; ++k) {
            Share& own = share[(thread + k) % shares];
            if (own.next.load(std::memory_order_relaxed) < own.end) work_on(own);  // nobody writes to what is all begun
        }
    }

    void work_on(Share& own) {
        while (!failed.load(std::memory_order_relaxed)) {
            int64_t i = own.next.fetch_add(1, std::memory_order_relaxed);
            if (i >= own.end) break;
            try {
                body(context, i);
            } catch (...) {
                if (!failed.exchange(true)) error = std::current_exception();
            }
        }
    }
};

/// Threads that wait for a job, handed over without a lock. A worker that comes too late finds no job and nobody waits for
/// it: a caller waits only for workers that have begun. Either the worker, which says that it is active before it looks
/// for the job, finds none, or the caller, which takes the job away before it looks for active workers, finds this one:
/// both by the one order that all have of these operations.
class Pool {
public:
    void run(int64_t count, void (*body)(const void*, int64_t), const void* context, int threads, double ns) {
        Job job(count, body, context, threads);
        start_workers(threads - 1);
        job_.store(&job);
        generation_.store(((generation_.load(std::memory_order_relaxed) / ROOM + 1) & (INT_MAX / ROOM)) * ROOM + threads);
        if (sleeping_.load() != 0 && (unattended_ns_ += ns) >= WAKE_NS) {
            unattended_ns_ = 0;
            generation_.notify_all();
        }
        job.work(0);
        job_.store(nullptr);
        for (int i = 0; active_.load() != 0; ++i) {
            if (i < PAUSES * 4)
                pause();
            else
                std::this_thread::yield();
        }
        if (job.failed.load()) std::rethrow_exception(job.error);
    }

    /// Set while a job runs; a caller that finds it so, part of a job or another thread, works alone. No thread-local
    /// variable: the C library ends the process where it has no memory for one.
    std::atomic_flag busy;

private:
    void start_workers(int wanted) {
        try {
            for (; started_ < wanted; ++started_) std::thread([this, index = started_] { serve(index); }).detach();
        } catch (const std::system_error&) {
            // The system gives no more threads: those that there are will do.
        }
    }

    void serve(int index) {
        [[maybe_unused]] WorkerBlocks blocks;
        for (int seen = 0;;) {
            wait(seen);
            seen = generation_.load();
            if (index + 1 >= seen % ROOM) continue;  // not for so many threads
            active_.fetch_add(1);
            Job* job = job_.load();
            if (job && index + 1 < job->threads) {
                const FloatingMode as_caller(job->mode);
                job->work(index + 1);
            }
            active_.fetch_sub(1);
        }
    }

    void wait(int seen) {
        const auto until = std::chrono::steady_clock::now() + SPIN;
        do {
            for (int i = 0; i < PAUSES; ++i) {
                if (generation_.load(std::memory_order_acquire) != seen) return;
                pause();
            }
            std::this_thread::yield();  // to another process, if there is one that waits for this core
        } while (std::chrono::steady_clock::now() < until);
        sleeping_.fetch_add(1);
        generation_.wait(seen);
        sleeping_.fetch_sub(1);
    }

    static constexpr int ROOM = 2048;             // more than there can be threads
    alignas(64) std::atomic<int> generation_{0};  // of jobs, times ROOM, plus the threads of the last one
    alignas(64) std::atomic<int> active_{0};
    std::atomic<int> sleeping_{0};
    std::atomic<Job*> job_{nullptr};
    int started_ = 0;
    double unattended_ns_ = 0;
};

std::atomic<int> thread_count{1};
std::atomic<Pool*> pool{nullptr};

Pool& the_pool() {
    Pool* found = pool.load(std::memory_order_acquire);
    if (found) return *found;
    static std::mutex making;
    std::lock_guard<std::mutex> lock(making);
    found = pool.load();
    if (!found) {
#if !defined(_WIN32)
        // The child of a fork has none of the threads: it leaves the old pool alone and makes one when it needs one.
        static bool registered = pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); }) == 0;
        (void)registered;
#endif
        found = new Pool;  // never destroyed: its threads wait on it until the process ends
        pool.store(found, std::memory_order_release);
    }
    return *found;
}

}  // namespace

int num_threads() { return thread_count.load(std::memory_order_relaxed); }

void set_num_threads(int count) {
    if (count < 1 || count > 1024)
        throw std::invalid_argument("the number of threads must be from 1 to 1024, got " + std::to_string(count));
    thread_count.store(count);
}

void run_parallel(int64_t count, void (*body)(const void*, int64_t), const void* context, double ns) {
    int threads = int(std::min<int64_t>(num_threads(), count));
    if (threads > 1) {
        Pool& workers = the_pool();
        if (!workers.busy.test_and_set(std::memory_order_acquire)) {
            struct Free {
                std::atomic_flag& busy;
                ~Free() { busy.clear(std::memory_order_release); }
            } free{workers.busy};
            workers.run(count, body, context, threads, ns);
            return;
        }
    }
    for (int64_t i = 0; i < count; ++i) body(context, i);
}

void run_ranges(int64_t n, double ns_per_item, int64_t align, void (*body)(const void*, int64_t, int64_t),
                const void* context) {
    double total = double(n) * ns_per_item;
    int threads = total < PARALLEL_NS ? 1 : num_threads();
    if (threads == 1) {
        if (n > 0) body(context, 0, n);
        return;
    }
    // A few ranges a thread, so that one thread held up by another process does not hold up all.
    int64_t pieces = std::min<int64_t>(threads * 4, std::max<int64_t>(2, int64_t(total / (PARALLEL_NS / 2))));
    int64_t size = (n + pieces - 1) / pieces;
    size = (size + align - 1) / align * align;
    int64_t count = (n + size - 1) / size;
    struct Ranges {
        void (*body)(const void*, int64_t, int64_t);
        const void* context;
        int64_t n, size;
    } ranges{body, context, n, size};
    run_parallel(
        count,
        [](const void* given, int64_t i) {
            const auto& r = *static_cast<const Ranges*>(given);
            r.body(r.context, i * r.size, std::min(r.n, (i + 1) * r.size));
        },
        &ranges, total);
}

}  // namespace norch
