// A list of kernel calls as one callable: what Backend.program returns.
#pragma once

#include <Python.h>

namespace norch {

/// Prepares the type behind the callables. Returns false with a Python error set.
bool add_program_type(PyObject* module);

/// program(calls, scratch, places, index, Place, Fed) -> run(buffers, numbers): see norch.backend.Backend.program.
/// `places` is how many buffers a run gets. None where a call's kernel is not made here. A METH_FASTCALL function.
PyObject* program(PyObject* self, PyObject* const* args, Py_ssize_t count);

}  // namespace norch
