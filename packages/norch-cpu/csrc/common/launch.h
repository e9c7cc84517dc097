// A compiled kernel as a Python callable: kernel(buffer, offset, ..., scalar, ...).
#pragma once

#include <Python.h>

#include <string>

#include "common/kernel.h"

namespace norch {

constexpr double LONG_NS = 20000;  // kernels shorter than this keep the GIL

/// What a launch must know of an operand.
struct Slot {
    bool is_scalar, is_floating;
    int64_t itemsize, extent;  // extent: bytes from the first element to past the last; 0 where there are no elements
};

/// The Python object behind a kernel's callable.
struct Launch {
    PyObject_HEAD
    Kernel* kernel;
    Slot* slots;
    int count;      // operands
    int arguments;  // what the call must have
    int index;      // the device of the output where the call is to allocate that, else -1
    const std::string* op;  // what the kernel computes, or null
    int64_t scratch;        // bytes that it takes while it runs: see scratch.h
};

/// Runs the kernel of a launch in place of `Kernel::run`, where it is not null: while a graph is recorded.
extern void (*run_recorded)(const Launch& launch, char* const* data, const Scalar* scalars);

/// The launch behind a callable, borrowed; null where it is not a kernel made here.
Launch* launch_of(PyObject* callable);

/// The number of a scalar operand. Returns false with a Python error set.
bool read_scalar(const Slot& slot, PyObject* value, Scalar* out);

/// Turns the C++ exception being handled into a Python one.
void raise_current();

/// Prepares the type behind the callables. Returns false with a Python error set.
bool add_launch_type(PyObject* module);

/// A new callable that owns `kernel`, or null with a Python error set. Throws std::invalid_argument for operands whose
/// shapes or strides are negative, disagree, or count past what 63 bits hold. op: a name that lives as long.
PyObject* make_callable(KernelPtr kernel, const std::vector<Operand>& operands, const std::string* op = nullptr);

/// allocate(nbytes, index) -> Buffer on device `index`, for its current stream where it has streams. A METH_FASTCALL
/// function.
PyObject* allocate(PyObject* self, PyObject* const* args, Py_ssize_t count);

/// allocating(kernel, nbytes, index) -> the same kernel as a callable that allocates its first operand, of as many bytes,
/// on device `index`, and returns it; None where `kernel` is not made here, its first operand is of another size, or
/// it does so on another device. A METH_FASTCALL function.
PyObject* allocating(PyObject* self, PyObject* const* args, Py_ssize_t count);

/// Checks operands before any kernel is made of them.
void check_operands(const std::vector<Operand>& operands);

}  // namespace norch
