#include "common/buffer.h"

#include <structmember.h>

#include <cstddef>

#include "common/launch.h"

namespace norch {

PyTypeObject* buffer_type = nullptr;

namespace {

// Objects to be used again, under the GIL: tensors come and go at every op.
constexpr int MAX_FREE = 256;
Buffer* free_list[MAX_FREE];
int free_count = 0;

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Buffer*>(object);
    if (self->weak) PyObject_ClearWeakRefs(object);
    self->memory.release(self->data, size_t(self->nbytes));
    Py_XDECREF(self->modified);
    PyTypeObject* type = Py_TYPE(object);
    if (free_count < MAX_FREE)
        free_list[free_count++] = self;
    else
        PyObject_Free(self);
    Py_DECREF(type);
}

PyMemberDef members[] = {
    {"nbytes", T_PYSSIZET, offsetof(Buffer, nbytes), READONLY, "How many bytes were asked for."},
    {"modified", T_OBJECT_EX, offsetof(Buffer, modified), 0, "(sequence number, op) of the last in-place op, or None."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Buffer, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

}  // namespace

PyObject* get_data_ptr(PyObject* buffer, void*) {
    return PyLong_FromVoidPtr(reinterpret_cast<Buffer*>(buffer)->data);
}

bool add_buffer_type(PyObject* module) {
    const BufferDescription& own = buffer_description;
    PyType_Slot slots[] = {
        {Py_tp_doc, const_cast<char*>(own.doc)},
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_members, members},
        {Py_tp_getset, own.properties},
        {own.get_buffer ? Py_bf_getbuffer : 0, own.get_buffer},
        {0, nullptr},
    };
    PyType_Spec spec = {own.name, sizeof(Buffer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    buffer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return buffer_type && PyModule_AddObjectRef(module, "Buffer", reinterpret_cast<PyObject*>(buffer_type)) == 0;
}

Buffer* new_buffer(Py_ssize_t nbytes, int index) {
    MemoryOwner memory;
    char* data;
    try {
        data = memory.allocate(size_t(nbytes), index);
    } catch (const OutOfMemory& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
        return nullptr;
    } catch (const std::bad_alloc&) {
        PyErr_Format(PyExc_MemoryError, "cannot allocate %zd bytes", nbytes);
        return nullptr;
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
    Buffer* self = wrap_memory(data, nbytes, memory);
    if (!self) memory.release(data, size_t(nbytes));
    return self;
}

Buffer* wrap_memory(char* data, Py_ssize_t nbytes, const MemoryOwner& memory) {
    Buffer* self;
    if (free_count) {
        self = free_list[--free_count];
        PyObject_Init(reinterpret_cast<PyObject*>(self), buffer_type);
    } else {
        self = PyObject_New(Buffer, buffer_type);
        if (!self) return nullptr;
    }
    self->data = data;
    self->nbytes = nbytes;
    self->modified = Py_NewRef(Py_None);
    self->weak = nullptr;
    self->memory = memory;
    return self;
}

}  // namespace norch
