// Buffers of host memory.
#include "common/buffer.h"

namespace norch {
namespace {

int get_buffer(PyObject* object, Py_buffer* view, int flags) {
    auto* self = reinterpret_cast<Buffer*>(object);
    return PyBuffer_FillInfo(view, object, self->data, self->nbytes, 0, flags);
}

PyGetSetDef properties[] = {
    {"data_ptr", get_data_ptr, nullptr, "The address of the first byte.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const BufferDescription buffer_description = {
    "norch_cpu.Buffer", "Host memory, 64-byte aligned; supports the buffer protocol.", properties,
    reinterpret_cast<void*>(get_buffer)};

PyObject* from_host(PyObject*, PyObject* memory) {
    auto* view = new Py_buffer;
    if (PyObject_GetBuffer(memory, view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) {
        delete view;
        if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return nullptr;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    MemoryOwner owner{view};
    Buffer* self = wrap_memory(static_cast<char*>(view->buf), view->len, owner);
    if (!self) owner.release(nullptr, 0);
    return reinterpret_cast<PyObject*>(self);
}

}  // namespace norch
