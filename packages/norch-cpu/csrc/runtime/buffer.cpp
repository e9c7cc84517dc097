#include "runtime/buffer.h"

#include <structmember.h>

#include <cstddef>
#include <new>

#include "runtime/allocator.h"

namespace norch {

PyTypeObject* buffer_type = nullptr;

namespace {

// Objects kept to be used again, under the GIL: tensors come and go at every op.
constexpr int KEPT = 256;
Buffer* kept[KEPT];
int kept_count = 0;

Buffer* new_object() {
    if (kept_count) {
        Buffer* self = kept[--kept_count];
        return reinterpret_cast<Buffer*>(PyObject_Init(reinterpret_cast<PyObject*>(self), buffer_type));
    }
    return PyObject_New(Buffer, buffer_type);
}

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Buffer*>(object);
    if (self->foreign) {
        PyBuffer_Release(self->foreign);
        delete self->foreign;
    } else if (self->data) {
        release_block(self->data, size_t(self->nbytes));
    }
    Py_XDECREF(self->modified);
    PyTypeObject* type = Py_TYPE(object);
    if (kept_count < KEPT)
        kept[kept_count++] = self;
    else
        PyObject_Free(self);
    Py_DECREF(type);
}

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
    auto* self = reinterpret_cast<Buffer*>(object);
    return PyBuffer_FillInfo(view, object, self->data, self->nbytes, 0, flags);
}

PyObject* get_data_ptr(PyObject* object, void*) {
    return PyLong_FromVoidPtr(reinterpret_cast<Buffer*>(object)->data);
}

PyMemberDef members[] = {
    {"nbytes", T_PYSSIZET, offsetof(Buffer, nbytes), READONLY, "How many bytes were asked for."},
    {"modified", T_OBJECT_EX, offsetof(Buffer, modified), 0, "(tick, op) of the last in-place op, or None."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"data_ptr", get_data_ptr, nullptr, "The address of the first byte.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Host memory, 64-byte aligned; supports the buffer protocol.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {0, nullptr},
};

PyType_Spec spec = {"norch_cpu.Buffer", sizeof(Buffer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool add_buffer_type(PyObject* module) {
    buffer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return buffer_type && PyModule_AddObjectRef(module, "Buffer", reinterpret_cast<PyObject*>(buffer_type)) == 0;
}

Buffer* new_buffer(Py_ssize_t nbytes, int) {
    char* data;
    try {
        data = static_cast<char*>(allocate_block(size_t(nbytes)));
    } catch (const std::bad_alloc&) {
        PyErr_Format(PyExc_MemoryError, "cannot allocate %zd bytes", nbytes);
        return nullptr;
    }
    Buffer* self = new_object();
    if (!self) {
        release_block(data, size_t(nbytes));
        return nullptr;
    }
    self->data = data;
    self->nbytes = nbytes;
    self->modified = Py_NewRef(Py_None);
    self->foreign = nullptr;
    return self;
}

PyObject* from_host(PyObject*, PyObject* memory) {
    auto* view = new Py_buffer;
    if (PyObject_GetBuffer(memory, view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) {
        delete view;
        if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return nullptr;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    Buffer* self = new_object();
    if (!self) {
        PyBuffer_Release(view);
        delete view;
        return nullptr;
    }
    self->data = static_cast<char*>(view->buf);
    self->nbytes = view->len;
    self->modified = Py_NewRef(Py_None);
    self->foreign = view;
    return reinterpret_cast<PyObject*>(self);
}

}  // namespace norch
