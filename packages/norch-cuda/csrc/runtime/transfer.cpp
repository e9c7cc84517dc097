#include "runtime/transfer.h"

#include <cstring>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "common/kernel.h"

namespace norch {
namespace {

constexpr size_t STAGED = size_t(64) << 20;  // larger copies from memory that is not pinned are left to the driver
constexpr size_t SMALLEST = 4096;

/// All pinned blocks by address with their sizes, those that are free by size, and the copies that still read one.
struct PinnedMemory {
    std::map<const char*, size_t> blocks;
    std::unordered_map<size_t, std::vector<char*>> free;
    struct Pending {
        cudaEvent_t event;
        char* block;      // goes back to the cache then, or
        PyObject* owner;  // this object is released
    };
    std::deque<Pending> pending;
    size_t reserved = 0;
};

PinnedMemory& pinned() {
    static auto* instance = new PinnedMemory;  // never destroyed: CUDA may be gone by then
    return *instance;
}

size_t size_class(size_t nbytes) {
    if (nbytes <= SMALLEST) return SMALLEST;
    return size_t(1) << (64 - __builtin_clzll(nbytes - 1));
}

/// Takes back what finished copies have read.
void collect() {
    const RelaxedCapture relaxed;
    auto& pending = pinned().pending;
    while (!pending.empty() && cudaEventQuery(pending.front().event) == cudaSuccess) {
        auto done = pending.front();
        pending.pop_front();
        cudaEventDestroy(done.event);
        if (done.block) release_pinned(done.block);
        Py_XDECREF(done.owner);
    }
    cudaGetLastError();  // "not ready" is no error
}

void after_copy(Stream& stream, char* block, PyObject* owner) {
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    check(cudaEventRecord(event, stream.handle), "recording an event");
    pinned().pending.push_back({event, block, owner});
}

Stream& stream_for(Buffer* buffer) {
    Stream& stream = current_stream(device_of(buffer));
    bind(stream.device);
    if (&stream != &home_stream(buffer)) note_use(buffer, stream);
    if (has_late_work) await_late_work(buffer, stream);
    return stream;
}

void refuse_capture(const Stream& stream, const char* what) {
    if (stream.is_capturing)
        throw std::invalid_argument(std::string(what) + " cannot be recorded in a graph: replaying it would use the "
                                                        "memory of the recording");
}

}  // namespace

char* allocate_pinned(size_t nbytes) {
    collect();
    size_t size = size_class(nbytes);
    auto& free = pinned().free[size];
    if (!free.empty()) {
        char* data = free.back();
        free.pop_back();
        return data;
    }
    void* data = nullptr;
    cudaError_t error = cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        empty_pinned_cache();
        error = cudaHostAlloc(&data, size, cudaHostAllocPortable);
        if (error == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            throw OutOfMemory("cannot pin " + std::to_string(nbytes) + " bytes of host memory");
        }
    }
    check(error, "pinning host memory");
    pinned().blocks[static_cast<char*>(data)] = size;
    pinned().reserved += size;
    return static_cast<char*>(data);
}

void release_pinned(char* data) noexcept {
    auto found = pinned().blocks.find(data);
    if (found != pinned().blocks.end()) pinned().free[found->second].push_back(data);
}

bool is_pinned(const char* data) {
    auto& blocks = pinned().blocks;
    auto next = blocks.upper_bound(data);
    if (next == blocks.begin()) return false;
    auto found = std::prev(next);
    return data < found->first + found->second;
}

size_t pinned_bytes() { return pinned().reserved; }

void empty_pinned_cache() {
    collect();
    for (auto& [size, free] : pinned().free) {
        for (char* data : free) {
            pinned().reserved -= size;
            pinned().blocks.erase(data);
            cudaFreeHost(data);
        }
        free.clear();
    }
}

void copy_in(Buffer* buffer, size_t offset, const char* data, size_t nbytes, PyObject* owner) {
    if (!nbytes) return;
    Stream& stream = stream_for(buffer);
    refuse_capture(stream, "a copy from the host");
    char* to = buffer->data + offset;
    const char* what = "copying from the host";
    if (is_pinned(data)) {
        check(cudaMemcpyAsync(to, data, nbytes, cudaMemcpyHostToDevice, stream.handle), what);
        after_copy(stream, nullptr, Py_NewRef(owner));
    } else if (nbytes <= STAGED) {
        char* staged = allocate_pinned(nbytes);
        std::memcpy(staged, data, nbytes);
        check(cudaMemcpyAsync(to, staged, nbytes, cudaMemcpyHostToDevice, stream.handle), what);
        after_copy(stream, staged, nullptr);
    } else {
        cudaError_t error;
        Py_BEGIN_ALLOW_THREADS;
        error = cudaMemcpyAsync(to, data, nbytes, cudaMemcpyHostToDevice, stream.handle);
        if (error == cudaSuccess) error = cudaStreamSynchronize(stream.handle);
        Py_END_ALLOW_THREADS;
        check(error, what);
    }
}

void copy_out(Buffer* buffer, size_t offset, char* data, size_t nbytes) {
    Stream& stream = stream_for(buffer);
    refuse_capture(stream, "a copy to the host");
    const char* what = "copying to the host";
    const char* from = buffer->data + offset;
    const bool is_staged = nbytes && nbytes <= (size_t(1) << 20) && !is_pinned(data);
    char* staged = is_staged ? allocate_pinned(nbytes) : data;
    cudaError_t error = cudaSuccess;
    Py_BEGIN_ALLOW_THREADS;
    if (nbytes) error = cudaMemcpyAsync(staged, from, nbytes, cudaMemcpyDeviceToHost, stream.handle);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream.handle);
    Py_END_ALLOW_THREADS;
    if (is_staged) {
        if (error == cudaSuccess) std::memcpy(data, staged, nbytes);
        release_pinned(staged);
    }
    check(error, what);
    raise_reported(stream.device);
}

void copy_out_later(Buffer* buffer, size_t offset, char* data, size_t nbytes, PyObject* owner) {
    if (!nbytes || !is_pinned(data)) return copy_out(buffer, offset, data, nbytes);
    Stream& stream = stream_for(buffer);
    const char* what = "a copy to the host";
    refuse_capture(stream, what);
    check(cudaMemcpyAsync(data, buffer->data + offset, nbytes, cudaMemcpyDeviceToHost, stream.handle), what);
    after_copy(stream, nullptr, Py_NewRef(owner));
}

void copy_between(Buffer* out, size_t out_offset, Buffer* source, size_t source_offset, size_t nbytes) {
    if (!nbytes) return;
    const char* what = "copying between devices";
    char* to = out->data + out_offset;
    const char* from = source->data + source_offset;
    Stream& reading = stream_for(source);
    Stream& writing = stream_for(out);
    if (reading.device == writing.device) {
        check(cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDeviceToDevice, writing.handle), "copying on the device");
        return;
    }
    // Runs on the source's stream, after what the other one was given so far; that one then waits for it.
    cudaEvent_t before, after;
    check(cudaEventCreateWithFlags(&before, cudaEventDisableTiming), "creating an event");
    check(cudaEventRecord(before, writing.handle), what);
    bind(reading.device);
    check(cudaStreamWaitEvent(reading.handle, before, 0), what);
    check(cudaMemcpyPeerAsync(to, writing.device, from, reading.device, nbytes, reading.handle), what);
    check(cudaEventCreateWithFlags(&after, cudaEventDisableTiming), "creating an event");
    check(cudaEventRecord(after, reading.handle), what);
    bind(writing.device);
    check(cudaStreamWaitEvent(writing.handle, after, 0), what);
    cudaEventDestroy(before);
    cudaEventDestroy(after);
}

}  // namespace norch
