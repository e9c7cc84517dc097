// The Python type of a tensor's memory. Made by hand and not by nanobind: every op allocates one, and this way that
// costs a third.
#pragma once

#include <Python.h>

#include "runtime/memory_owner.h"

namespace norch {

struct Buffer {
    PyObject_HEAD
    char* data;
    Py_ssize_t nbytes;
    PyObject* modified;  // core's: (sequence number, op) of the last in-place op, or None
    PyObject* weak;      // references to it that do not keep it
    MemoryOwner memory;  // what the package needs to give the memory back
};

extern PyTypeObject* buffer_type;

/// Makes the type and adds it to the module. Returns false with a Python error set.
bool add_buffer_type(PyObject* module);

/// A new buffer on device `index`, for its current stream where it has streams; null with a Python error set.
Buffer* new_buffer(Py_ssize_t nbytes, int index);

/// A new buffer on memory that is there; null with a Python error set, and the memory is still the caller's.
Buffer* wrap_memory(char* data, Py_ssize_t nbytes, const MemoryOwner& memory);

/// What a package's own buffers are, besides what all have.
struct BufferDescription {
    const char *name, *doc;
    PyGetSetDef* properties;  // ends with an empty one
    void* get_buffer;          // Py_bf_getbuffer; null where Python cannot see the memory
};
extern const BufferDescription buffer_description;

PyObject* get_data_ptr(PyObject* buffer, void*);

}  // namespace norch
