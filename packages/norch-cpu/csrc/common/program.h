// A list of kernel calls as one callable: what Backend.program returns.
#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/launch.h"
#include "runtime/memory_owner.h"

namespace norch {

/// An owned reference.
struct Owned {
    explicit Owned(PyObject* object) : object(object) {}
    Owned(Owned&& other) noexcept : object(std::exchange(other.object, nullptr)) {}
    Owned(const Owned&) = delete;
    ~Owned() { Py_XDECREF(object); }
    explicit operator bool() const { return object; }
    PyObject* object;
};

/// Where an operand lies: in the buffer of a place, or nowhere (a scalar: a place whose memory is null).
struct Reference {
    Py_ssize_t place;
    int64_t offset;  // bytes
};

/// A scalar operand of a call that each run gives.
struct Feed {
    int operand;
    size_t number;  // in Plan::numbers
};

struct Number {
    Py_ssize_t position;
    Slot slot;
};

struct Step {
    const Kernel* kernel;
    size_t operands, feeds;  // where its own begin
    int operand_count, feed_count;
};

struct Use {
    Py_ssize_t place;
    int64_t needs;  // bytes
};

/// The calls of a program. What returns a bool returns false with a Python error set.
struct Plan {
    std::vector<Owned> kernels;
    std::vector<Step> steps;
    std::vector<Reference> references;
    std::vector<Scalar> scalars;
    std::vector<Feed> feeds;
    std::vector<Number> numbers;
    std::vector<Use> uses;  // of places, the first use first
    Py_ssize_t scratch, places, fed = 0;
    size_t most_operands = 0;
    int index;
    double work = 0;

    Plan(Py_ssize_t scratch, Py_ssize_t places, int index) : scratch(scratch), places(places), index(index) {}
    bool add(Launch* launch, PyObject* arguments, PyObject* place_type, PyObject* fed_type);
    bool run(PyObject* buffers, PyObject* given) const;

    /// Of `program`'s arguments. Null where a kernel is not made here, or with a Python error set.
    static std::unique_ptr<Plan> make(PyObject* const* args);
    /// The address of each place's memory but that of place 0, which stays.
    bool addresses(PyObject* buffers, char** base, LaunchScope& scope) const;
    bool numbers_of(PyObject* given, std::vector<Scalar>& out) const;
    /// Runs a kernel. `data` and `own` have room for `most_operands`.
    void call(const Step& step, char* const* base, const Scalar* fed_now, char** data, Scalar* own) const;

private:
    std::optional<Reference> reference(const Slot& slot, PyObject* place, PyObject* offset, PyObject* place_type);
    bool feed(const Slot& slot, PyObject* number, int operand);
};

/// Gives the Python error that is set the attribute `call`.
void note_call(size_t position);

/// Prepares the type behind the callables. Returns false with a Python error set.
bool add_program_type(PyObject* module);

/// program(calls, scratch, places, index, Place, Fed) -> run(buffers, numbers): see norch.backend.Backend.program.
/// `places` is how many buffers a run gets. None where a call's kernel is not made here. A METH_FASTCALL function.
PyObject* program(PyObject* self, PyObject* const* args, Py_ssize_t count);

}  // namespace norch
