// Device memory: a caching allocator ordered by streams. Everything here is called under the GIL.
//
// Each stream has an arena. A block that is given back goes to the arena that it came from and may be handed out again
// at once: whoever gets it next runs on the same stream, after the kernels that used it before. Blocks used on other
// streams too are given back only after the arena's stream was told to wait for those. While a stream records a graph it
// has an arena of the graph's own, since the graph will go on to use that memory whenever it is replayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace norch {

struct Stream;
struct Arena;
Stream& launch_stream();

/// A block of device memory: where it lies, how large it is, whose it is.
struct Block {
    char* data = nullptr;
    size_t nbytes = 0;  // rounded up to the block's size
    Arena* arena = nullptr;
};

Arena* make_arena(int device, Stream* stream);
/// Whether a graph is recorded on a device, which waiting for the device would end.
bool is_recording(int device);
/// Whether free blocks stay, since a graph that was recorded uses them: else `empty_cache` gives them back to CUDA.
void keep_free_blocks(Arena* arena, bool keeps);
/// Ends an arena: its free blocks go back to CUDA now, the others when they are given back; while a graph is recorded on
/// the device, after that.
void retire_arena(Arena* arena);

/// A block of at least `nbytes` for work on `stream`, contents undefined, 256-byte aligned (512 from CUDA itself).
/// Throws OutOfMemory, after all that was cached has been given back in vain. Before that, unless a graph is recorded on
/// the device, `make_room` is called, which says whether it could look for what nobody needs.
Block allocate_block(Stream& stream, size_t nbytes, bool (*make_room)() = nullptr);
/// Gives a block back. `used_on` are streams other than the arena's that have used it.
void release_block(const Block& block, const std::vector<Stream*>* used_on = nullptr) noexcept;
/// Gives back what could not be ordered after other streams while a graph was recorded.
void release_postponed() noexcept;
/// The stream whose work a block is ordered by.
Stream& home_stream(const Block& block);

struct MemoryStats {
    int64_t allocated, peak_allocated;  // bytes in use now, and the most there have been
    int64_t reserved, peak_reserved;    // bytes taken from CUDA
    int64_t allocations, cuda_allocations;
    int64_t retries, failures;  // how often the cache was given back for want of room, and how often in vain
};
MemoryStats memory_stats(int device);
void reset_peak_memory_stats(int device);
/// Counts blocks, retries and failures from now on.
void reset_memory_counts(int device);
/// How much of a device's memory may be taken from CUDA from now on; at 1, all that there is.
void limit_memory(int device, double fraction);
/// Returns cached blocks to CUDA, after waiting for the device; none while a graph is recorded on it, which forbids that.
void empty_cache(int device);

/// Device memory for `count` of T, for the kernels of one launch: given back as soon as they are enqueued.
template <class T = char>
class Scratch {
public:
    explicit Scratch(size_t count) : block_(allocate_block(launch_stream(), count * sizeof(T))) {}
    ~Scratch() { release_block(block_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    T* data() const { return reinterpret_cast<T*>(block_.data); }

private:
    Block block_;
};

}  // namespace norch
