#include "common/program.h"

#include <algorithm>
#include <chrono>

#include "common/buffer.h"
#include "common/launch.h"

namespace norch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double LOOK_NS = 100000;                        // work between two looks at the clock
constexpr auto SIGNALS = std::chrono::milliseconds(50);  // and the time between two looks at signals

}  // namespace

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

bool Plan::addresses(PyObject* buffers, char** base, LaunchScope& scope) const {
    if (PyTuple_Size(buffers) != places) {
        PyErr_Format(PyExc_TypeError, "a program with %zd places got %zd buffers", places, PyTuple_Size(buffers));
        return false;
    }
    for (const Use& use : uses) {
        if (use.place == 0) continue;
        PyObject* given = PyTuple_GetItem(buffers, use.place);
        if (Py_TYPE(given) != buffer_type) {
            PyErr_Format(PyExc_TypeError, "place %zd: expected a %R, got %R", use.place, buffer_type, given);
            return false;
        }
        auto* buffer = reinterpret_cast<Buffer*>(given);
        if (buffer->nbytes < use.needs) {
            PyErr_Format(PyExc_ValueError, "place %zd: the program needs %lld bytes, the buffer has %zd", use.place,
                         (long long)use.needs, buffer->nbytes);
            return false;
        }
        if (!scope.use(buffer)) return false;
        base[use.place] = buffer->data;
    }
    return true;
}

bool Plan::numbers_of(PyObject* given, std::vector<Scalar>& out) const {
    if (PyTuple_Size(given) < fed) {
        PyErr_Format(PyExc_TypeError, "a program that is fed %zd numbers got %zd", fed, PyTuple_Size(given));
        return false;
    }
    out.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i)
        if (!read_scalar(numbers[i].slot, PyTuple_GetItem(given, numbers[i].position), &out[i])) return false;
    return true;
}

void Plan::call(const Step& step, char* const* base, const Scalar* fed_now, char** data, Scalar* own) const {
    const Reference* operands = references.data() + step.operands;
    const Scalar* values = scalars.data() + step.operands;
    for (int i = 0; i < step.operand_count; ++i) data[i] = base[operands[i].place] + operands[i].offset;
    if (step.feed_count) {
        std::copy(values, values + step.operand_count, own);
        const Feed* feed = feeds.data() + step.feeds;
        for (int i = 0; i < step.feed_count; ++i) own[feed[i].operand] = fed_now[feed[i].number];
        values = own;
    }
    step.kernel->run(data, values);
}

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
    std::vector<Scalar> fed_now, own(most_operands);
    if (!numbers_of(given, fed_now)) return false;
    LaunchScope scope;
    Owned memory(nullptr);
    if (scratch) {
        Buffer* buffer = new_buffer(scratch, index);
        if (!buffer) return false;
        memory.object = reinterpret_cast<PyObject*>(buffer);
        if (!scope.use(buffer)) return false;
        base[0] = buffer->data;
    }
    if (!addresses(buffers, base.data(), scope)) return false;

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
            call(*step, base.data(), fed_now.data(), data.data(), own.data());
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

namespace {

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

std::unique_ptr<Plan> Plan::make(PyObject* const* args) {
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
        if (!launch) return nullptr;
        if (!plan->add(launch, arguments, args[4], args[5])) {
            note_call(size_t(i));
            return nullptr;
        }
    }
    return plan;
}

PyObject* program(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 6)
        return PyErr_Format(PyExc_TypeError,
                            "program(calls, scratch, places, index, Place, Fed) takes 6 arguments, got %zd", count);
    auto plan = Plan::make(args);
    if (!plan) {
        if (PyErr_Occurred()) return nullptr;
        Py_RETURN_NONE;
    }
    auto* self = PyObject_New(Program, program_type);
    if (!self) return nullptr;
    self->plan = plan.release();
    PyObject* callable = PyCFunction_NewEx(&run_method, reinterpret_cast<PyObject*>(self), nullptr);
    Py_DECREF(self);
    return callable;
}

}  // namespace norch
