// The caching allocator behind tensors and the kernels' scratch memory. Blocks are 64-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace norch {

/// A block of at least `nbytes`, contents undefined. Throws std::bad_alloc, after the cache was emptied in vain.
void* allocate_block(size_t nbytes);
/// Gives a block back; `nbytes` is what it was asked for with.
void release_block(void* block, size_t nbytes) noexcept;

struct MemoryStats {
    int64_t allocated;       // bytes in use
    int64_t peak_allocated;  // the most there have been
    int64_t cached;          // bytes kept to be used again
    int64_t hits, misses;    // large blocks taken from the cache, and from the system
};
MemoryStats memory_stats();
void reset_peak_memory_stats();
/// Returns cached blocks to the system.
void empty_cache();

/// Scratch memory that a worker of the thread pool keeps for itself, made by the worker: threads of one kernel would wait for
/// each other at the cache's lock, and get blocks that lie in another core's cache. It holds at most 2 MB in blocks of at most
/// 512 KB, which `memory_stats` does not count.
class WorkerBlocks {
public:
    WorkerBlocks();
    WorkerBlocks(const WorkerBlocks&) = delete;
    WorkerBlocks& operator=(const WorkerBlocks&) = delete;
    ~WorkerBlocks();

    void* take(size_t nbytes);
    void keep(void* block, size_t nbytes) noexcept;

private:
    static constexpr int MOST = 16;
    struct Block {
        void* data;
        size_t nbytes;
    } blocks_[MOST];  // the latest last
    int count_ = 0;
    size_t kept_ = 0;  // bytes

    Block take_out(int i) noexcept;
    void remove(int i) noexcept;
};

/// As the two above, of the thread's own blocks where it has such. Taken and given back by one thread.
void* allocate_scratch(size_t nbytes);
void release_scratch(void* block, size_t nbytes) noexcept;

/// Memory for the time of a kernel.
template <class T = char>
class Scratch {
public:
    explicit Scratch(int64_t count)
        : nbytes_(size_t(count) * sizeof(T)), data_(static_cast<T*>(allocate_scratch(nbytes_))) {}
    ~Scratch() { release_scratch(data_, nbytes_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T* data() const { return data_; }
    T& operator[](int64_t i) const { return data_[i]; }

private:
    size_t nbytes_;
    T* data_;
};

}  // namespace norch
