// Whose a tensor's memory is: the allocator's, or that of an object with the buffer protocol.
#pragma once

#include <Python.h>

#include "runtime/allocator.h"

namespace norch {

struct MemoryOwner {
    Py_buffer* foreign = nullptr;

    char* allocate(size_t nbytes, int) { return static_cast<char*>(allocate_block(nbytes)); }
    void release(char* data, size_t nbytes) noexcept {
        if (foreign) {
            PyBuffer_Release(foreign);
            delete foreign;
        } else if (data) {
            release_block(data, nbytes);
        }
    }
};

struct Buffer;

/// What a launch does with the buffers of its operands before its kernel runs: on the host, nothing.
struct LaunchScope {
    bool use(Buffer*) { return true; }
};

/// A buffer on memory that exports the buffer protocol; None for read-only or strided memory.
PyObject* from_host(PyObject* self, PyObject* memory);

}  // namespace norch
