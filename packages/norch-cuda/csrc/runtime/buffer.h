// The Python type of a tensor's device memory. Made by hand and not by nanobind, as every op allocates one.
#pragma once

#include <Python.h>

#include <vector>

#include "runtime/allocator.h"
#include "runtime/runtime.h"

namespace norch {

struct Buffer {
    PyObject_HEAD
    char* data;
    Py_ssize_t nbytes;
    PyObject* modified;  // core's: (tick, op) of the last in-place op, or None
    Block block;
    std::vector<Stream*>* used_on;  // streams other than the block's own that have used it, or null
};

extern PyTypeObject* buffer_type;

/// Makes the type and adds it to the module. Returns false with a Python error set.
bool add_buffer_type(PyObject* module);

/// A new buffer for the current stream of device `index`, or null with a Python error set.
Buffer* new_buffer(Py_ssize_t nbytes, int index);

/// Notes that work on `stream` uses the buffer, so that its memory is not given away before that is done.
void note_use(Buffer* buffer, Stream& stream);

inline int device_of(const Buffer* buffer) { return home_stream(buffer->block).device; }

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
        if (stream_ != &home_stream(buffer->block)) note_use(buffer, *stream_);
        return true;
    }

private:
    Stream* stream_ = nullptr;
};

}  // namespace norch
