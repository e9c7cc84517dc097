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

/// Memory for the time of a kernel.
template <class T = char>
class Scratch {
public:
    explicit Scratch(int64_t count)
        : nbytes_(size_t(count) * sizeof(T)), data_(static_cast<T*>(allocate_block(nbytes_))) {}
    ~Scratch() { release_block(data_, nbytes_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T* data() const { return data_; }
    T& operator[](int64_t i) const { return data_[i]; }

private:
    size_t nbytes_;
    T* data_;
};

}  // namespace norch
