#include "runtime/allocator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/kernel.h"
#include "runtime/runtime.h"

namespace norch {
namespace {

constexpr size_t ALIGNMENT = 256;
constexpr size_t SMALL = size_t(256) << 10;   // larger blocks are taken from CUDA one by one
constexpr size_t SEGMENT = size_t(2) << 20;   // smaller ones are cut from segments of this size
constexpr int STEPS = 8;                      // size classes in each doubling: at most an eighth of a block is waste

size_t round_up(size_t nbytes) {
    if (nbytes <= ALIGNMENT * STEPS) return nbytes ? (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    size_t step = size_t(1) << (63 - __builtin_clzll(nbytes - 1) - 3);
    if (step > SEGMENT) step = SEGMENT;
    return (nbytes + step - 1) / step * step;
}

/// The index of a small block's size, which `round_up` gave.
int small_class(size_t nbytes) {
    if (nbytes <= ALIGNMENT * STEPS) return int(nbytes / ALIGNMENT) - 1;
    int log = 63 - __builtin_clzll(nbytes - 1);
    return (log - 11) * STEPS + int((nbytes - 1) >> (log - 3));
}
constexpr int SMALL_CLASSES = 8 * STEPS;

struct DeviceMemory {
    MemoryStats stats = {};
    int64_t most = INT64_MAX;  // bytes that may be taken from CUDA
    std::vector<Arena*> arenas;
};

DeviceMemory& memory_of(int device) {
    static std::unordered_map<int, DeviceMemory> all;
    return all[device];
}

}  // namespace

struct Arena {
    Arena(int device, Stream* stream) : device(device), stream(stream) {}

    int device;
    Stream* stream;
    bool is_retired = false;
    bool is_kept = false;
    std::vector<char*> small[SMALL_CLASSES];
    std::multimap<size_t, char*> large;
    std::map<char*, size_t> segments;  // by where they start: bytes cut off so far
    char* cutting = nullptr;           // the segment that small blocks are cut from
    int64_t live = 0;                  // blocks in use

    char* take_small(size_t nbytes);
    char* take_large(size_t& nbytes);
    void release_free(bool may_wait);
};

namespace {

/// cudaMalloc, also while a stream of this thread records a graph.
char* take_from_cuda(int device, size_t nbytes) {
    if (int64_t(nbytes) > memory_of(device).most - memory_of(device).stats.reserved) return nullptr;
    bind(device);
    const RelaxedCapture relaxed;
    void* data = nullptr;
    cudaError_t error = cudaMalloc(&data, nbytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return nullptr;
    }
    check(error, "allocating device memory");
    MemoryStats& stats = memory_of(device).stats;
    ++stats.cuda_allocations;
    stats.reserved += int64_t(nbytes);
    stats.peak_reserved = std::max(stats.peak_reserved, stats.reserved);
    return static_cast<char*>(data);
}

void return_to_cuda(int device, char* data, size_t nbytes) {
    bind(device);
    const RelaxedCapture relaxed;
    cudaFree(data);  // an error here is one of an earlier kernel, and is reported where that is waited for
    memory_of(device).stats.reserved -= int64_t(nbytes);
}

/// cudaMalloc; where there is no room, once more after every cached block of the device was given back. Null in vain.
char* take(int device, size_t nbytes) {
    if (char* data = take_from_cuda(device, nbytes)) return data;
    ++memory_of(device).stats.retries;
    empty_cache(device);
    return take_from_cuda(device, nbytes);
}

}  // namespace

char* Arena::take_small(size_t nbytes) {
    auto& free = small[small_class(nbytes)];
    if (!free.empty()) {
        char* data = free.back();
        free.pop_back();
        return data;
    }
    if (!cutting || segments[cutting] + nbytes > SEGMENT) {
        char* segment = take(device, SEGMENT);
        if (!segment) return nullptr;
        cutting = segment;
        segments[cutting] = 0;
    }
    size_t& used = segments[cutting];
    char* data = cutting + used;
    used += nbytes;
    return data;
}

char* Arena::take_large(size_t& nbytes) {
    auto found = large.lower_bound(nbytes);
    if (found != large.end() && found->first <= nbytes + nbytes / 4) {
        char* data = found->second;
        nbytes = found->first;
        large.erase(found);
        return data;
    }
    return take(device, nbytes);
}

/// Gives free blocks back to CUDA: the large ones, and segments of which no small block is in use.
void Arena::release_free(bool may_wait) {
    if (may_wait) {
        bind(device);
        cudaDeviceSynchronize();
    }
    for (auto& entry : large) return_to_cuda(device, entry.second, entry.first);
    large.clear();
    std::map<char*, size_t> free_bytes;
    auto segment_of = [&](char* data) { return std::prev(segments.upper_bound(data))->first; };
    auto each_small = [&](auto&& visit) {
        for (int c = 0; c < SMALL_CLASSES; ++c) visit(small[c], c);
    };
    auto bytes_of = [](int c) {
        return c < STEPS ? size_t(c + 1) * ALIGNMENT : size_t(c % STEPS + 9) << (c / STEPS + 7);
    };
    each_small([&](auto& blocks, int c) {
        for (char* data : blocks) free_bytes[segment_of(data)] += bytes_of(c);
    });
    std::vector<char*> unused;
    for (auto& [start, cut] : segments)
        if (free_bytes[start] == cut) unused.push_back(start);
    auto is_unused = [&](char* data) {
        return std::find(unused.begin(), unused.end(), segment_of(data)) != unused.end();
    };
    each_small([&](auto& blocks, int) {
        blocks.erase(std::remove_if(blocks.begin(), blocks.end(), is_unused), blocks.end());
    });
    for (char* start : unused) {
        if (start == cutting) cutting = nullptr;
        segments.erase(start);
        return_to_cuda(device, start, SEGMENT);
    }
}

Arena* make_arena(int device, Stream* stream) {
    auto* arena = new Arena(device, stream);
    memory_of(device).arenas.push_back(arena);
    return arena;
}

void keep_free_blocks(Arena* arena, bool keeps) { arena->is_kept = keeps; }

bool is_recording(int device) {
    const auto& arenas = memory_of(device).arenas;
    return std::any_of(arenas.begin(), arenas.end(), [](Arena* arena) { return arena->stream->is_capturing; });
}

namespace {

/// Arenas whose retirement waits for the end of a recording.
std::set<Arena*>& retiring() {
    static std::set<Arena*> all;
    return all;
}

}  // namespace

void retire_arena(Arena* arena) {
    arena->is_retired = true;
    if (is_recording(arena->device)) {
        retiring().insert(arena);
        return;
    }
    retiring().erase(arena);
    arena->release_free(true);
    if (arena->live) return;
    auto& arenas = memory_of(arena->device).arenas;
    arenas.erase(std::find(arenas.begin(), arenas.end(), arena));
    delete arena;
}

namespace {

/// Its data is null where there is no room.
Block try_to_allocate(Stream& stream, size_t nbytes) {
    Arena& arena = *stream.arena;
    size_t size = round_up(nbytes);
    char* data = size <= SMALL ? arena.take_small(size) : arena.take_large(size);
    if (!data) return {};
    ++arena.live;
    MemoryStats& stats = memory_of(arena.device).stats;
    ++stats.allocations;
    stats.allocated += int64_t(size);
    stats.peak_allocated = std::max(stats.peak_allocated, stats.allocated);
    return {data, size, &arena};
}

}  // namespace

Block allocate_block(Stream& stream, size_t nbytes, bool (*make_room)()) {
    if (nbytes > (size_t(1) << 50)) throw OutOfMemory("cannot allocate " + std::to_string(nbytes) + " bytes");
    const Block block = try_to_allocate(stream, nbytes);
    if (block.data) return block;
    MemoryStats& stats = memory_of(stream.device).stats;
    const int64_t before = stats.allocated;
    if (make_room && !is_recording(stream.device) && make_room() && stats.allocated < before)
        return allocate_block(stream, nbytes);
    ++stats.failures;
    throw OutOfMemory("cuda:" + std::to_string(stream.device) + " cannot allocate " + std::to_string(round_up(nbytes)) +
                      " bytes: " + std::to_string(stats.allocated) + " are in use, " + std::to_string(stats.reserved) +
                      " reserved, of " + std::to_string(properties(stream.device).total_memory));
}

namespace {

struct Postponed {
    Block block;
    std::vector<Stream*> used_on;
};
std::vector<Postponed>& postponed() {
    static std::vector<Postponed> all;
    return all;
}

/// Whether the arena's stream can wait for the others: within one recording, or outside of any.
bool may_wait(const Arena& arena, const std::vector<Stream*>& others) {
    const bool recorded = is_recorded(*arena.stream);
    if (recorded && arena.stream->arena != &arena) return false;
    return std::all_of(others.begin(), others.end(), [=](Stream* other) { return is_recorded(*other) == recorded; });
}

}  // namespace

void release_postponed() noexcept {
    for (const Postponed& p : std::exchange(postponed(), {})) release_block(p.block, &p.used_on);
    for (Arena* arena : std::exchange(retiring(), {})) retire_arena(arena);
}

void release_block(const Block& block, const std::vector<Stream*>* used_on) noexcept {
    Arena& arena = *block.arena;
    if (used_on) {
        if (!may_wait(arena, *used_on)) {
            postponed().push_back({block, *used_on});
            return;
        }
        for (Stream* other : *used_on) {
            try {
                wait_for(*arena.stream, *other);
            } catch (const CudaError&) {  // of an earlier kernel, and is reported where that is waited for
            }
        }
    }
    memory_of(arena.device).stats.allocated -= int64_t(block.nbytes);
    --arena.live;
    if (block.nbytes <= SMALL)
        arena.small[small_class(block.nbytes)].push_back(block.data);
    else
        arena.large.emplace(block.nbytes, block.data);
    if (arena.is_retired && arena.live == 0) retire_arena(&arena);
}

Stream& home_stream(const Block& block) { return *block.arena->stream; }

void limit_memory(int device, double fraction) {
    memory_of(device).most = fraction < 1 ? int64_t(fraction * double(properties(device).total_memory)) : INT64_MAX;
}

MemoryStats memory_stats(int device) { return memory_of(device).stats; }

void reset_peak_memory_stats(int device) {
    MemoryStats& stats = memory_of(device).stats;
    stats.peak_allocated = stats.allocated;
    stats.peak_reserved = stats.reserved;
}

void reset_memory_counts(int device) {
    MemoryStats& stats = memory_of(device).stats;
    stats.allocations = stats.cuda_allocations = stats.retries = stats.failures = 0;
}

void empty_cache(int device) {
    if (is_recording(device)) return;
    bind(device);
    cudaDeviceSynchronize();
    for (Arena* arena : memory_of(device).arenas)
        if (!arena->is_kept) arena->release_free(false);
}

}  // namespace norch
