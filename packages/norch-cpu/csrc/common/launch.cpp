#include "common/launch.h"

#include <new>
#include <string>

#include "common/buffer.h"

namespace norch {

void (*run_recorded)(const Launch& launch, char* const* data, const Scalar* scalars) = nullptr;

namespace {

constexpr int ON_STACK = 16;

PyTypeObject* launch_type = nullptr;

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Launch*>(object);
    delete self->kernel;
    delete[] self->slots;
    PyTypeObject* type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyType_Slot type_slots[] = {
    {Py_tp_doc, const_cast<char*>("What a kernel's callable holds.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {0, nullptr},
};
PyType_Spec spec = {"norch.Launch", sizeof(Launch), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    type_slots};

bool read_pointer(const Slot& slot, PyObject* buffer, PyObject* offset, LaunchScope& scope, char** out) {
    if (Py_TYPE(buffer) != buffer_type) {
        PyErr_Format(PyExc_TypeError, "expected a %R, got %R", buffer_type, buffer);
        return false;
    }
    auto* memory = reinterpret_cast<Buffer*>(buffer);
    Py_ssize_t start = PyLong_AsSsize_t(offset);
    if (start == -1 && PyErr_Occurred()) return false;
    if (!scope.use(memory)) return false;
    if (slot.extent) {
        int64_t bytes;
        if (start < 0 || __builtin_mul_overflow(int64_t(start), slot.itemsize, &bytes) ||
            bytes > memory->nbytes - slot.extent) {
            PyErr_Format(PyExc_ValueError, "an operand of %lld bytes at element %zd does not lie in a buffer of %zd bytes",
                         (long long)slot.extent, start, memory->nbytes);
            return false;
        }
        *out = memory->data + bytes;
    } else {
        *out = memory->data;
    }
    return true;
}

bool run(const Launch* self, Buffer* out, PyObject* const* args, char** data, Scalar* scalars) {
    LaunchScope scope;
    int i = 0;
    if (out) {
        if (!scope.use(out)) return false;
        data[i++] = out->data;
    }
    for (; i < self->count; ++i) {
        const Slot& slot = self->slots[i];
        if (slot.is_scalar) {
            data[i] = nullptr;
            if (!read_scalar(slot, *args++, &scalars[i])) return false;
        } else {
            if (!read_pointer(slot, args[0], args[1], scope, &data[i])) return false;
            args += 2;
        }
    }
    PyThreadState* released = self->kernel->work > LONG_NS ? PyEval_SaveThread() : nullptr;
    try {
        if (run_recorded) run_recorded(*self, data, scalars);
        else self->kernel->run(data, scalars);
    } catch (...) {
        if (released) PyEval_RestoreThread(released);
        raise_current();
        return false;
    }
    if (released) PyEval_RestoreThread(released);
    return true;
}

/// Runs the kernel, its first operand in `out` unless that is null. Returns false with a Python error set.
bool call(const Launch* self, Buffer* out, PyObject* const* args, Py_ssize_t count) {
    int expected = self->arguments - (out ? 2 : 0);
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "this kernel takes %d arguments, got %zd", expected, count);
        return false;
    }
    if (self->count <= ON_STACK) {
        char* data[ON_STACK];
        Scalar scalars[ON_STACK];
        return run(self, out, args, data, scalars);
    }
    std::vector<char*> data(size_t(self->count));
    std::vector<Scalar> scalars(size_t(self->count));
    return run(self, out, args, data.data(), scalars.data());
}

PyObject* launch(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    if (!call(reinterpret_cast<const Launch*>(object), nullptr, args, count)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* launch_allocating(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    auto* self = reinterpret_cast<const Launch*>(object);
    Buffer* out = new_buffer(self->slots[0].extent, self->index);
    if (out && !call(self, out, args, count)) Py_CLEAR(out);
    return reinterpret_cast<PyObject*>(out);
}

template <class Function>
PyMethodDef method(Function function, const char* doc) {
    return {"kernel", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, doc};
}

PyMethodDef launch_method = method(launch, "kernel(buffer, offset, ..., scalar, ...)");
PyMethodDef allocating_method = method(launch_allocating, "kernel(buffer, offset, ..., scalar, ...) -> its output");

int64_t extent_of(const Operand& operand) {
    int64_t size = size_of(operand.dtype), last = 0, count = 1;
    if (operand.strides.size() != operand.shape.size())
        throw std::invalid_argument("an operand has " + std::to_string(operand.shape.size()) + " dims and " +
                                    std::to_string(operand.strides.size()) + " strides");
    bool is_empty = false, overflows = false;
    for (size_t d = 0; d < operand.shape.size(); ++d) {
        int64_t n = operand.shape[d], stride = operand.strides[d], span;
        if (n < 0) throw std::invalid_argument("an operand's size is negative: " + std::to_string(n));
        if (stride < 0) throw std::invalid_argument("an operand's stride is negative: " + std::to_string(stride));
        if (n == 0) {
            is_empty = true;
            continue;
        }
        overflows |= __builtin_mul_overflow(count, n, &count) || __builtin_mul_overflow(n - 1, stride, &span) ||
                     __builtin_add_overflow(last, span, &last);
    }
    int64_t bytes;
    overflows = overflows || __builtin_mul_overflow(count, size, &bytes) || last == INT64_MAX ||
                __builtin_mul_overflow(last + 1, size, &bytes);
    if (is_empty) return 0;
    if (overflows) throw std::invalid_argument("an operand is too large: its elements or bytes do not fit 63 bits");
    return bytes;
}

}  // namespace

void raise_current() {
    try {
        throw;
    } catch (const OutOfMemory& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
    } catch (const std::bad_alloc&) {
        PyErr_SetString(PyExc_MemoryError, "no memory for the kernel's scratch space");
    } catch (const IndexOutOfBounds& error) {
        PyObject* module = PyImport_ImportModule("norch.backend");
        PyObject* type = module ? PyObject_GetAttrString(module, "IndexOutOfBounds") : nullptr;
        PyObject* value = type ? PyObject_CallFunction(type, "LL", (long long)error.index, (long long)error.size) : nullptr;
        if (value) PyErr_SetObject(type, value);
        Py_XDECREF(value);
        Py_XDECREF(type);
        Py_XDECREF(module);
    } catch (const ZeroDivision&) {
        PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
}

bool read_scalar(const Slot& slot, PyObject* value, Scalar* out) {
    if (slot.is_floating) {
        out->f = PyFloat_AsDouble(value);
        return out->f != -1.0 || !PyErr_Occurred();
    }
    out->i = int64_t(PyLong_AsUnsignedLongLongMask(value));
    return out->i != -1 || !PyErr_Occurred();
}

Launch* launch_of(PyObject* callable) {
    PyObject* owner = PyCFunction_Check(callable) ? PyCFunction_GetSelf(callable) : nullptr;
    return owner && Py_TYPE(owner) == launch_type ? reinterpret_cast<Launch*>(owner) : nullptr;
}

void check_operands(const std::vector<Operand>& operands) {
    for (const Operand& operand : operands)
        if (!operand.is_scalar) extent_of(operand);
}

bool add_launch_type(PyObject* module) {
    launch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return launch_type && PyModule_AddObjectRef(module, "Launch", reinterpret_cast<PyObject*>(launch_type)) == 0;
}

PyObject* make_callable(KernelPtr kernel, const std::vector<Operand>& operands, const std::string* op) {
    auto slots = std::make_unique<Slot[]>(operands.size());
    int arguments = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
        const Operand& o = operands[i];
        slots[i] = {o.is_scalar, is_floating(o.dtype), size_of(o.dtype), o.is_scalar ? 0 : extent_of(o)};
        arguments += o.is_scalar ? 1 : 2;
    }
    auto* self = PyObject_New(Launch, launch_type);
    if (!self) return nullptr;
    self->kernel = kernel.release();
    self->slots = slots.release();
    self->count = int(operands.size());
    self->arguments = arguments;
    self->index = -1;
    self->op = op;
    self->scratch = 0;
    PyObject* callable = PyCFunction_NewEx(&launch_method, reinterpret_cast<PyObject*>(self), nullptr);
    Py_DECREF(self);
    return callable;
}

PyObject* allocate(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "allocate(nbytes, index) takes 2 arguments, got %zd", count);
    Py_ssize_t nbytes = PyLong_AsSsize_t(args[0]);
    if (nbytes < 0) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            return PyErr_Format(PyExc_MemoryError, "cannot allocate %S bytes", args[0]);
        }
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "cannot allocate %zd bytes", nbytes);
        return nullptr;
    }
    long index = PyLong_AsLong(args[1]);
    if (index == -1 && PyErr_Occurred()) return nullptr;
    return reinterpret_cast<PyObject*>(new_buffer(nbytes, int(index)));
}

PyObject* allocating(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "allocating(kernel, nbytes, index) takes 3 arguments, got %zd", count);
    Py_ssize_t nbytes = PyLong_AsSsize_t(args[1]);
    long index = PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) return nullptr;
    Launch* self = launch_of(args[0]);
    if (!self || !self->count || self->slots[0].is_scalar || self->slots[0].extent != nbytes) Py_RETURN_NONE;
    if (self->index != -1 && self->index != index) Py_RETURN_NONE;
    self->index = int(index);
    return PyCFunction_NewEx(&allocating_method, reinterpret_cast<PyObject*>(self), nullptr);
}

}  // namespace norch
