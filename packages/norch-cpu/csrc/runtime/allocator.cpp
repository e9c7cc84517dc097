#include "runtime/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

#include "runtime/guard.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#include <unistd.h>
#endif

namespace norch {
namespace {

constexpr size_t ALIGNMENT = 64;
constexpr size_t HUGE_PAGE = size_t(2) << 20;
constexpr int STEPS = 8;  // size classes in each doubling: at most an eighth of a block is waste
constexpr int CLASSES = 64 * STEPS;

struct SizeClass {
    int index;
    size_t nbytes;
};

SizeClass size_class(size_t nbytes) {
    if (nbytes <= ALIGNMENT * STEPS) {
        size_t count = nbytes ? (nbytes + ALIGNMENT - 1) / ALIGNMENT : 1;
        return {int(count) - 1, count * ALIGNMENT};
    }
    int log = 63 - __builtin_clzll(nbytes - 1);
    size_t step = size_t(1) << (log - 3);
    size_t count = (nbytes - 1) / step + 1;  // 9 to 16 steps
    return {(log - 9) * STEPS + int(count) - 1, count * step};
}

void* take_from_system(size_t nbytes) {
#if defined(__linux__)
    if (nbytes >= HUGE_PAGE) {
        // Fresh pages cost more than the arithmetic on them, small ones far more: ask for huge ones, aligned.
        size_t room = nbytes + HUGE_PAGE;
        if (room < nbytes) return nullptr;
        void* start = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED) return nullptr;
        char* first = static_cast<char*>(start);
        char* aligned = reinterpret_cast<char*>((uintptr_t(first) + HUGE_PAGE - 1) & ~uintptr_t(HUGE_PAGE - 1));
        if (aligned != first) munmap(first, size_t(aligned - first));
        size_t tail = size_t(first + room - (aligned + nbytes));
        if (tail) munmap(aligned + nbytes, tail);
        madvise(aligned, nbytes, MADV_HUGEPAGE);
        return aligned;
    }
#endif
    void* block = nullptr;
    return posix_memalign(&block, ALIGNMENT, nbytes) ? nullptr : block;
}

void return_to_system(void* block, size_t nbytes) {
#if defined(__linux__)
    if (nbytes >= HUGE_PAGE) {
        munmap(block, nbytes);
        return;
    }
#endif
    std::free(block);
}

constexpr int64_t SMALLEST_LIMIT = int64_t(128) << 20;
constexpr int64_t FIRST_PAUSE = 4096;  // blocks
constexpr int64_t KEPT_OF_NOTHING = int64_t(32) << 20;
constexpr int64_t WINDOW = 64;  // times the limit: the bytes handed out between two looks at what was not needed

int64_t largest_limit() {
    int64_t limit = int64_t(4) << 30;
    int64_t installed = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    return installed > 0 && installed / 4 < limit ? installed / 4 : limit;
}

struct FreeBlock {
    FreeBlock* next;
};

/// Blocks kept to be used again. What a training step gives back it takes again soon, what a deleted model held nobody
/// does: the limit starts low, grows by what was returned to the system and then wanted again, and shrinks by what was
/// not needed for a while. Where next to nothing is in use any more, nearly all is returned; a program that then wants
/// it again after all waits twice as long for the next time.
struct Cache {
    std::mutex mutex;
    FreeBlock* free[CLASSES] = {};
    MemoryStats stats = {};
    const int64_t largest = largest_limit(), smallest = std::min(SMALLEST_LIMIT, largest);
    int64_t limit = smallest;
    int64_t taken = 0;     // bytes handed out in this window,
    int64_t returned = 0;  // those returned to the system and not wanted since,
    int64_t unneeded = 0;  // and the least that was cached
    int64_t blocks = 0, dropped_at = -FIRST_PAUSE, pause = FIRST_PAUSE;  // blocks handed out; when nearly all was returned
    bool is_regretted = true;                                            // whether it was wanted again

    static size_t class_bytes(int index) {
        if (index < STEPS) return size_t(index + 1) * ALIGNMENT;
        int log = index / STEPS + 8;
        return size_t(index % STEPS + 9) << (log - 3);
    }

    void* take(SizeClass size) {
        int64_t nbytes = int64_t(size.nbytes);
        taken += nbytes;
        ++blocks;
        FreeBlock* block = free[size.index];
        if (block) {
            free[size.index] = block->next;
            stats.cached -= nbytes;
            unneeded = std::min(unneeded, stats.cached);
            ++stats.hits;
        } else {
            int64_t again = std::min(nbytes, returned);
            returned -= again;
            limit = std::min(limit + again, largest);
            if (again && !is_regretted && blocks - dropped_at < pause) {
                is_regretted = true;
                pause *= 2;
            }
            ++stats.misses;
        }
        if (taken > WINDOW * limit) start_window();
        return block;
    }

    void start_window() {
        int64_t excess = std::max<int64_t>(0, std::min(unneeded, limit - smallest));
        limit -= excess;
        trim(std::min(limit, stats.cached - excess));
        taken = returned = 0;
        unneeded = stats.cached;
    }

    void keep(void* block, SizeClass size) {
        int64_t nbytes = int64_t(size.nbytes);
        if (nbytes > limit / 2) {
            returned += nbytes;
            return_to_system(block, size.nbytes);
            return;
        }
        if (stats.cached + nbytes > limit) trim(limit - nbytes);
        auto* free_block = static_cast<FreeBlock*>(block);
        free_block->next = free[size.index];
        free[size.index] = free_block;
        stats.cached += nbytes;
    }

    /// Called once a block is kept: `stats.allocated` is what is still in use.
    void drop_if_idle() {
        if (stats.cached <= KEPT_OF_NOTHING || stats.allocated > stats.cached / 16 || blocks - dropped_at < pause) return;
        trim(KEPT_OF_NOTHING);
        limit = smallest;
        dropped_at = blocks;
        is_regretted = false;
    }

    /// Returns cached blocks, the largest first, until at most `keep` bytes are left.
    void trim(int64_t keep) {
        for (int i = CLASSES - 1; i >= 0 && stats.cached > keep; --i) {
            while (free[i] && stats.cached > keep) {
                FreeBlock* block = free[i];
                free[i] = block->next;
                int64_t nbytes = int64_t(class_bytes(i));
                stats.cached -= nbytes;
                returned += nbytes;
                return_to_system(block, size_t(nbytes));
            }
        }
        unneeded = std::min(unneeded, stats.cached);
    }
};

Cache& cache() {
    static Cache* instance = [] {
        auto* fresh = new Cache;  // never destroyed: tensors may outlive static destructors
#if !defined(_WIN32)
        // A fork while another thread allocates would leave the child's lock taken for ever.
        pthread_atfork([] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); }, [] { cache().mutex.unlock(); });
#endif
        return fresh;
    }();
    return *instance;
}

constexpr size_t LARGEST_OWN = size_t(512) << 10, MOST_OWN = size_t(2) << 20;

// A key, no thread-local variable: the C library ends the process where it has no memory for one.
#if defined(_WIN32)
thread_local WorkerBlocks* own_blocks = nullptr;
WorkerBlocks* worker_blocks() { return own_blocks; }
void set_worker_blocks(WorkerBlocks* blocks) { own_blocks = blocks; }
#else
const pthread_key_t* worker_key() {
    static pthread_key_t key;
    static const bool is_made = pthread_key_create(&key, nullptr) == 0;
    return is_made ? &key : nullptr;
}
WorkerBlocks* worker_blocks() {
    const pthread_key_t* key = worker_key();
    return key ? static_cast<WorkerBlocks*>(pthread_getspecific(*key)) : nullptr;
}
void set_worker_blocks(WorkerBlocks* blocks) {
    if (const pthread_key_t* key = worker_key()) pthread_setspecific(*key, blocks);
}
#endif

WorkerBlocks* blocks_for(size_t nbytes) { return nbytes > LARGEST_OWN || guarding() ? nullptr : worker_blocks(); }

}  // namespace

void* allocate_block(size_t nbytes) {
    if (nbytes > (size_t(1) << 62)) throw std::bad_alloc();
    SizeClass size = size_class(nbytes);
    Cache& c = cache();
    std::lock_guard<std::mutex> lock(c.mutex);
    void* block = guarding() ? allocate_guarded(nbytes) : c.take(size);
    if (!block) {
        if (guarding()) throw std::bad_alloc();
        block = take_from_system(size.nbytes);
        if (!block) {
            c.trim(0);
            block = take_from_system(size.nbytes);
            if (!block) throw std::bad_alloc();
        }
    }
    c.stats.allocated += int64_t(size.nbytes);
    if (c.stats.allocated > c.stats.peak_allocated) c.stats.peak_allocated = c.stats.allocated;
    return block;
}

void release_block(void* block, size_t nbytes) noexcept {
    SizeClass size = size_class(nbytes);
    Cache& c = cache();
    std::lock_guard<std::mutex> lock(c.mutex);
    c.stats.allocated -= int64_t(size.nbytes);
    if (guarding())
        release_guarded(block, nbytes);
    else {
        c.keep(block, size);
        c.drop_if_idle();
    }
}

WorkerBlocks::WorkerBlocks() { set_worker_blocks(this); }
WorkerBlocks::~WorkerBlocks() {
    set_worker_blocks(nullptr);
    while (count_) remove(count_ - 1);
}

void WorkerBlocks::remove(int i) noexcept {
    const Block removed = take_out(i);
    return_to_system(removed.data, removed.nbytes);
}

WorkerBlocks::Block WorkerBlocks::take_out(int i) noexcept {
    const Block found = blocks_[i];
    kept_ -= found.nbytes;
    std::copy(blocks_ + i + 1, blocks_ + count_--, blocks_ + i);
    return found;
}

void* WorkerBlocks::take(size_t nbytes) {
    nbytes = size_class(nbytes).nbytes;
    for (int i = count_ - 1; i >= 0; --i)
        if (blocks_[i].nbytes == nbytes) return take_out(i).data;
    void* fresh = take_from_system(nbytes);
    if (!fresh) {
        empty_cache();
        fresh = take_from_system(nbytes);
        if (!fresh) throw std::bad_alloc();
    }
    return fresh;
}

void WorkerBlocks::keep(void* block, size_t nbytes) noexcept {
    nbytes = size_class(nbytes).nbytes;
    while (count_ == MOST || kept_ + nbytes > MOST_OWN) remove(0);
    blocks_[count_++] = {block, nbytes};
    kept_ += nbytes;
}

void* allocate_scratch(size_t nbytes) {
    WorkerBlocks* const own = blocks_for(nbytes);
    return own ? own->take(nbytes) : allocate_block(nbytes);
}

void release_scratch(void* block, size_t nbytes) noexcept {
    if (WorkerBlocks* const own = blocks_for(nbytes)) own->keep(block, nbytes);
    else release_block(block, nbytes);
}

MemoryStats memory_stats() {
    std::lock_guard<std::mutex> lock(cache().mutex);
    return cache().stats;
}

void reset_peak_memory_stats() {
    std::lock_guard<std::mutex> lock(cache().mutex);
    cache().stats.peak_allocated = cache().stats.allocated;
}

void empty_cache() {
    std::lock_guard<std::mutex> lock(cache().mutex);
    cache().trim(0);
    cache().returned = 0;
}

}  // namespace norch
