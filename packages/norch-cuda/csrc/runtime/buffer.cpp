#include "runtime/buffer.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>

#include "common/kernel.h"

namespace norch {

PyTypeObject* buffer_type = nullptr;

namespace {

// Objects kept to be used again, under the GIL: tensors come and go at every op.
constexpr int KEPT = 256;
Buffer* kept[KEPT];
int kept_count = 0;

void dealloc(PyObject* object) {
    auto* self = reinterpret_cast<Buffer*>(object);
    release_block(self->block, self->used_on);
    delete self->used_on;
    Py_XDECREF(self->modified);
    PyTypeObject* type = Py_TYPE(object);
    if (kept_count < KEPT)
        kept[kept_count++] = self;
    else
        PyObject_Free(self);
    Py_DECREF(type);
}

PyObject* get_data_ptr(PyObject* object, void*) {
    return PyLong_FromVoidPtr(reinterpret_cast<Buffer*>(object)->data);
}

PyObject* get_device(PyObject* object, void*) { return PyLong_FromLong(device_of(reinterpret_cast<Buffer*>(object))); }

PyMemberDef members[] = {
    {"nbytes", T_PYSSIZET, offsetof(Buffer, nbytes), READONLY, "How many bytes were asked for."},
    {"modified", T_OBJECT_EX, offsetof(Buffer, modified), 0, "(tick, op) of the last in-place op, or None."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties_[] = {
    {"data_ptr", get_data_ptr, nullptr, "The address of the first byte.", nullptr},
    {"device", get_device, nullptr, "The index of the device.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Device memory, 256-byte aligned.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_members, members},
    {Py_tp_getset, properties_},
    {0, nullptr},
};

PyType_Spec spec = {"norch_cuda.Buffer", sizeof(Buffer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool add_buffer_type(PyObject* module) {
    buffer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return buffer_type && PyModule_AddObjectRef(module, "Buffer", reinterpret_cast<PyObject*>(buffer_type)) == 0;
}

Buffer* new_buffer(Py_ssize_t nbytes, int index) {
    Block block;
    try {
        block = allocate_block(current_stream(index), size_t(nbytes));
    } catch (const OutOfMemory& error) {
        PyErr_Format(PyExc_MemoryError, "%s", error.what());
        return nullptr;
    } catch (const std::exception& error) {
        PyErr_Format(PyExc_RuntimeError, "%s", error.what());
        return nullptr;
    }
    Buffer* self = kept_count ? reinterpret_cast<Buffer*>(PyObject_Init(reinterpret_cast<PyObject*>(kept[--kept_count]),
                                                                        buffer_type))
                              : PyObject_New(Buffer, buffer_type);
    if (!self) {
        release_block(block);
        return nullptr;
    }
    self->data = block.data;
    self->nbytes = nbytes;
    self->modified = Py_NewRef(Py_None);
    self->block = block;
    self->used_on = nullptr;
    return self;
}

void note_use(Buffer* buffer, Stream& stream) {
    if (!buffer->used_on) buffer->used_on = new std::vector<Stream*>;
    auto& streams = *buffer->used_on;
    if (std::find(streams.begin(), streams.end(), &stream) == streams.end()) streams.push_back(&stream);
}

}  // namespace norch
