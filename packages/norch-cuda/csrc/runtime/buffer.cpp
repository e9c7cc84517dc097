// Buffers of device memory.
#include "common/buffer.h"

#include <algorithm>

namespace norch {
namespace {

PyObject* get_address(PyObject* object, void*) {
    settle_late_work();
    return get_data_ptr(object, nullptr);
}

PyObject* get_device(PyObject* object, void*) { return PyLong_FromLong(device_of(reinterpret_cast<Buffer*>(object))); }

PyGetSetDef properties_of_buffer[] = {
    {"data_ptr", get_address, nullptr, "The address of the first byte.", nullptr},
    {"device", get_device, nullptr, "The index of the device.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const BufferDescription buffer_description = {"norch_cuda.Buffer", "Device memory, 256-byte aligned.",
                                              properties_of_buffer, nullptr};

Stream& home_stream(const Buffer* buffer) { return home_stream(buffer->memory.block); }

void note_use(Buffer* buffer, Stream& stream) {
    auto*& used_on = buffer->memory.used_on;
    if (!used_on) used_on = new std::vector<Stream*>;
    if (std::find(used_on->begin(), used_on->end(), &stream) == used_on->end()) used_on->push_back(&stream);
}

bool collect_garbage() noexcept {
    static bool is_collecting = false;
    if (is_collecting) return false;
    is_collecting = true;
    PyObject* gc = PyImport_ImportModule("gc");
    PyObject* found = gc ? PyObject_CallMethod(gc, "collect", nullptr) : nullptr;  // also where the program disabled it
    is_collecting = false;
    PyErr_Clear();
    Py_XDECREF(gc);
    Py_XDECREF(found);
    return found != nullptr;
}

void MemoryOwner::give_back_to_owner() noexcept {
    for (Stream* other : used_on ? *used_on : std::vector<Stream*>()) {
        try {
            wait_for(norch::home_stream(block), *other);
        } catch (const CudaError&) {  // of an earlier kernel, and is reported where that is waited for
        }
    }
    Py_DECREF(owner);
}

Buffer* adopt(char* data, Py_ssize_t nbytes, int device, PyObject* owner) {
    MemoryOwner memory;
    memory.block = {data, size_t(nbytes), default_stream(device).arena};
    memory.owner = Py_NewRef(owner);
    Buffer* self = wrap_memory(data, nbytes, memory);
    if (!self) Py_DECREF(owner);
    return self;
}

}  // namespace norch
