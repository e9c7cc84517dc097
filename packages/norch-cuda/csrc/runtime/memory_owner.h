// Whose a tensor's device memory is, and which streams have used it.
#pragma once

#include <Python.h>

#include <vector>

#include "runtime/allocator.h"
#include "runtime/late.h"
#include "runtime/runtime.h"

namespace norch {

/// Has Python free the cycles that nothing refers to, which may hold tensors. Returns false where it cannot.
bool collect_garbage() noexcept;

struct MemoryOwner {
    Block block;
    std::vector<Stream*>* used_on = nullptr;  // streams other than the block's own that have used it, or null
    PyObject* owner = nullptr;                // of memory that is not the allocator's

    /// For the current stream of device `index`. Before there is no room for it Python collects its garbage: here no
    /// kernel is under way, so that Python may run.
    char* allocate(size_t nbytes, int index) {
        block = allocate_block(current_stream(index), nbytes, collect_garbage);
        return block.data;
    }
    void release(char*, size_t) noexcept {
        if (owner) give_back_to_owner();
        else release_block(block, used_on);
        delete used_on;
    }

private:
    void give_back_to_owner() noexcept;
};

struct Buffer;

/// Notes that work on `stream` uses the buffer, so that its memory is not given away before that is done.
void note_use(Buffer* buffer, Stream& stream);

Stream& home_stream(const Buffer* buffer);

/// A buffer on memory of a device that `owner` keeps; null with a Python error set.
Buffer* adopt(char* data, Py_ssize_t nbytes, int device, PyObject* owner);

inline int device_of(const Buffer* buffer) { return home_stream(buffer).device; }

/// What a launch does with its operands' buffers before its kernel runs: the current stream of their device is the one
/// that the kernel runs on.
class LaunchScope {
public:
    bool use(Buffer* buffer) {
        int device = device_of(buffer);
        if (!stream_) {
            stream_ = &current_stream(device);
            set_launch_stream(*stream_);
        } else if (device != stream_->device) {
            PyErr_Format(PyExc_ValueError, "the operands of a kernel are on cuda:%d and cuda:%d", stream_->device, device);
            return false;
        }
        if (stream_ != &home_stream(buffer)) note_use(buffer, *stream_);
        if (has_late_work) await_late_work(buffer, *stream_);
        return true;
    }

private:
    Stream* stream_ = nullptr;
};

}  // namespace norch
