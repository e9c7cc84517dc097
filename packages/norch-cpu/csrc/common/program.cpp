#include "common/program.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/buffer.h"
#include "common/launch.h"

namespace norch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double LOOK_NS = 100000;                        // work between two looks at the clock
constexpr auto SIGNALS = std::chrono::milliseconds(50);  // and the time between two looks at signals

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

/// A scalar operand of a call that each run gives anew.
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

private:
    std::optional<Reference> reference(const Slot& slot, PyObject* place, PyObject* offset, PyObject* place_type);
    bool feed(const Slot& slot, PyObject* number, int operand);
    bool memory(PyObject* buffers, char** base, LaunchScope& scope, Owned& own) const;
};

std::optional<Reference> Plan::reference(const Slot& slot, PyObject* place, PyObject* offset, PyObject* place_type) {
    if (!PyObject_TypeCheck(place, reinterpret_cast<PyTypeObject*>(place_type))) {
        PyErr_Format(PyExc_TypeError, "a program's tensor operand must be a Place, got %R", place);
        return {};
    }
    Reference out{PyLong_AsSsize_t(place), 0};
    Py_ssize_t start = PyLong_AsSsize_t(offset);
    if (PyErr_Occurred()) return {};
    if (out.place < 0 || out.place >= places) {
        PyErr_Format(PyExc_ValueError, "Place(%zd) of a program with %zd places", out.place, places);
        return {};
    }
    int64_t end = 0;
    if (slot.extent && (start < 0 || __builtin_mul_overflow(int64_t(start), slot.itemsize, &out.offset) ||
                        __builtin_add_overflow(out.offset, slot.extent, &end))) {
        PyErr_Format(PyExc_ValueError, "an operand cannot begin at element %zd", start);
        return {};
    }
    if (out.place == 0 && end > scratch) {
        PyErr_Format(PyExc_ValueError, "an operand of %lld bytes at element %zd does not lie in %zd bytes of scratch memory",
                     (long long)slot.extent, start, scratch);
        return {};
    }
    auto known = std::find_if(uses.begin(), uses.end(), [&](const Use& use) { return use.place == out.place; });
    if (known == uses.end())
        uses.push_back({out.place, end});
    else
        known->needs = std::max(known->needs, end);
    return out;
}

bool Plan::feed(const Slot& slot, PyObject* number, int operand) {
    Py_ssize_t position = PyLong_AsSsize_t(number);
    if (position < 0) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "Fed(%zd): a position is not negative", position);
        return false;
    }
    auto known = std::find_if(numbers.begin(), numbers.end(), [&](const Number& other) {
        return other.position == position && other.slot.is_floating == slot.is_floating;
    });
    feeds.push_back({operand, size_t(known - numbers.begin())});
    if (known == numbers.end()) numbers.push_back({position, slot});
    fed = std::max(fed, position + 1);
    return true;
}

bool Plan::add(Launch* launch, PyObject* arguments, PyObject* place_type, PyObject* fed_type) {
    if (PyTuple_Size(arguments) != launch->arguments) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "this kernel takes %d arguments, got %zd", launch->arguments,
                         PyTuple_Size(arguments));
        return false;
    }
    Step step{launch->kernel, references.size(), feeds.size(), launch->count, 0};
    for (int i = 0, next = 0; i < launch->count; ++i) {
        const Slot& slot = launch->slots[i];
        PyObject* argument = PyTuple_GetItem(arguments, next++);
        Reference reference{places, 0};
        Scalar scalar{};
        if (!slot.is_scalar) {
            auto found = this->reference(slot, argument, PyTuple_GetItem(arguments, next++), place_type);
            if (!found) return false;
            reference = *found;
        } else if (PyObject_TypeCheck(argument, reinterpret_cast<PyTypeObject*>(fed_type))) {
            if (!feed(slot, argument, i)) return false;
        } else if (!read_scalar(slot, argument, &scalar)) {
            return false;
        }
        references.push_back(reference);
        scalars.push_back(scalar);
    }
    step.feed_count = int(feeds.size() - step.feeds);
    most_operands = std::max(most_operands, size_t(launch->count));
    work += launch->kernel->work;
    kernels.emplace_back(Py_NewRef(reinterpret_cast<PyObject*>(launch)));
    steps.push_back(step);
    return true;
}

/// The address of each place's memory; `own` gets the scratch memory.
bool Plan::memory(PyObject* buffers, char** base, LaunchScope& scope, Owned& own) const {
    if (PyTuple_Size(buffers) != places) {
        PyErr_Format(PyExc_TypeError, "a program with %zd places got %zd buffers", places, PyTuple_Size(buffers));
        return false;
    }
    for (const Use& use : uses) {
        Buffer* buffer;
        if (use.place == 0) {
            buffer = new_buffer(scratch, index);
            if (!buffer) return false;
            own.object = reinterpret_cast<PyObject*>(buffer);
        } else {
            PyObject* given = PyTuple_GetItem(buffers, use.place);
            if (Py_TYPE(given) != buffer_type) {
                PyErr_Format(PyExc_TypeError, "place %zd: expected a %R, got %R", use.place, buffer_type, given);
                return false;
            }
            buffer = reinterpret_cast<Buffer*>(given);
            if (buffer->nbytes < use.needs) {
                PyErr_Format(PyExc_ValueError, "place %zd: the program needs %lld bytes, the buffer has %zd", use.place,
                             (long long)use.needs, buffer->nbytes);
                return false;
            }
        }
        if (!scope.use(buffer)) return false;
        base[use.place] = buffer->data;
    }
    return true;
}

/// Gives the Python error that is set the attribute `call`.
void note_call(size_t position) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Owned number(PyLong_FromSize_t(position));
    if (!number || !value || PyObject_SetAttrString(value, "call", number.object) != 0) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

bool Plan::run(PyObject* buffers, PyObject* given) const {
    std::vector<char*> base(size_t(places) + 1), data(most_operands);
    std::vector<Scalar> fed_now(numbers.size()), own_scalars(most_operands);
    if (PyTuple_Size(given) < fed) {
        PyErr_Format(PyExc_TypeError, "a program that is fed %zd numbers got %zd", fed, PyTuple_Size(given));
        return false;
    }
    for (size_t i = 0; i < numbers.size(); ++i)
        if (!read_scalar(numbers[i].slot, PyTuple_GetItem(given, numbers[i].position), &fed_now[i])) return false;
    Owned own(nullptr);
    LaunchScope scope;
    if (!memory(buffers, base.data(), scope, own)) return false;

    PyThreadState* released = work > LONG_NS ? PyEval_SaveThread() : nullptr;
    Clock::time_point looked = released ? Clock::now() : Clock::time_point();
    double worked = 0;
    const Step* step = steps.data();
    const Step* end = step + steps.size();
    try {
        for (; step != end; ++step) {
            if (worked > LOOK_NS && released) {
                worked = 0;
                if (Clock::time_point now = Clock::now(); now - looked > SIGNALS) {
                    looked = now;
                    PyEval_RestoreThread(released);
                    if (PyErr_CheckSignals() != 0) return false;
                    released = PyEval_SaveThread();
                }
            }
            const Reference* operands = references.data() + step->operands;
            const Scalar* values = scalars.data() + step->operands;
            for (int i = 0; i < step->operand_count; ++i) data[size_t(i)] = base[size_t(operands[i].place)] + operands[i].offset;
            if (step->feed_count) {
                std::copy(values, values + step->operand_count, own_scalars.begin());
                const Feed* feed = feeds.data() + step->feeds;
                for (int i = 0; i < step->feed_count; ++i) own_scalars[size_t(feed[i].operand)] = fed_now[feed[i].number];
                values = own_scalars.data();
            }
            step->kernel->run(data.data(), values);
            worked += step->kernel->work;
        }
    } catch (...) {
        if (released) PyEval_RestoreThread(released);
        raise_current();
        note_call(size_t(step - steps.data()));
        return false;
    }
    if (released) PyEval_RestoreThread(released);
    return true;
}

struct Program {
    PyObject_HEAD
    Plan* plan;
};

PyTypeObject* program_type = nullptr;

void dealloc(PyObject* object) {
    delete reinterpret_cast<Program*>(object)->plan;
    PyTypeObject* type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyType_Slot type_slots[] = {
    {Py_tp_doc, const_cast<char*>("What a program's callable holds.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {0, nullptr},
};
PyType_Spec spec = {"norch.Program", sizeof(Program), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    type_slots};

PyObject* run(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "run(buffers, numbers) takes 2 arguments, got %zd", count);
    Owned buffers(PySequence_Tuple(args[0]));
    if (!buffers) return nullptr;
    Owned numbers(PySequence_Tuple(args[1]));
    if (!numbers) return nullptr;
    if (!reinterpret_cast<Program*>(object)->plan->run(buffers.object, numbers.object)) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef run_method = {"program", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
                          "run(buffers, numbers)"};

}  // namespace

bool add_program_type(PyObject* module) {
    program_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return program_type && PyModule_AddObjectRef(module, "Program", reinterpret_cast<PyObject*>(program_type)) == 0;
}

PyObject* program(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 6)
        return PyErr_Format(PyExc_TypeError,
                            "program(calls, scratch, places, index, Place, Fed) takes 6 arguments, got %zd", count);
    Owned calls(PySequence_Tuple(args[0]));
    if (!calls) return nullptr;
    Py_ssize_t scratch = PyLong_AsSsize_t(args[1]), places = PyLong_AsSsize_t(args[2]);
    long index = PyLong_AsLong(args[3]);
    if (PyErr_Occurred()) return nullptr;
    auto plan = std::make_unique<Plan>(scratch, places, int(index));
    for (Py_ssize_t i = 0; i < PyTuple_Size(calls.object); ++i) {
        PyObject *kernel, *arguments;
        if (!PyArg_ParseTuple(PyTuple_GetItem(calls.object, i), "OO!", &kernel, &PyTuple_Type, &arguments)) return nullptr;
        Launch* launch = launch_of(kernel);
        if (!launch) Py_RETURN_NONE;
        if (!plan->add(launch, arguments, args[4], args[5])) {
            note_call(size_t(i));
            return nullptr;
        }
    }
    auto* self = PyObject_New(Program, program_type);
    if (!self) return nullptr;
    self->plan = plan.release();
    PyObject* callable = PyCFunction_NewEx(&run_method, reinterpret_cast<PyObject*>(self), nullptr);
    Py_DECREF(self);
    return callable;
}

}  // namespace norch
