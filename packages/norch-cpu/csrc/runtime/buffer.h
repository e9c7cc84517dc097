// The Python type of a tensor's memory. Made by hand and not by nanobind: every op allocates one, and this way that
// costs a third.
#pragma once

#include <Python.h>

namespace norch {

struct Buffer {
    PyObject_HEAD
    char* data;
    Py_ssize_t nbytes;
    PyObject* modified;  // core's: (tick, op) of the last in-place op, or None
    Py_buffer* foreign;  // the host memory of another owner, or null
};

extern PyTypeObject* buffer_type;

/// What a launch does with the buffers of its operands before its kernel runs: on the host, nothing.
struct LaunchScope {
    bool use(Buffer*) { return true; }
};

/// Makes the type and adds it to the module. Returns false with a Python error set.
bool add_buffer_type(PyObject* module);

/// A new buffer, or null with a Python error set.
Buffer* new_buffer(Py_ssize_t nbytes, int index);

/// A buffer on memory that exports the buffer protocol; None for read-only or strided memory.
PyObject* from_host(PyObject* self, PyObject* memory);

}  // namespace norch
