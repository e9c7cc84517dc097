// The extension module: what Python sees of the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "buffer.h"
#include "kernel.h"
#include "launch.h"
#include "limits.h"
#include "memory.h"
#include "threads.h"

namespace nb = nanobind;
using namespace norch;

namespace {

const Registry& registry() {
    static const Registry* made = [] {
        auto* all = new Registry;
        for (auto add : {add_arithmetic, add_copying, add_transcendental, add_reductions, add_scans, add_sorting,
                         add_indexing, add_embedding, add_random, add_dropout, add_activations, add_softmax,
                         add_attention, add_losses, add_normalization, add_matmul, add_convolution, add_pooling,
                         add_optimizers, add_linear})
            add(*all);
        return all;
    }();
    return *made;
}

DType dtype_named(const std::string& name) {
    static const std::unordered_map<std::string, DType> dtypes = {
        {"float64", DType::f64}, {"float32", DType::f32}, {"float16", DType::f16}, {"bfloat16", DType::bf16},
        {"int64", DType::i64},   {"int32", DType::i32},   {"int16", DType::i16},   {"int8", DType::i8},
        {"uint8", DType::u8},    {"bool", DType::boolean}};
    auto found = dtypes.find(name);
    if (found == dtypes.end()) throw std::invalid_argument("norch-cpu knows no dtype " + name);
    return found->second;
}

std::vector<int64_t> integers(nb::handle values) {
    std::vector<int64_t> out;
    for (nb::handle value : values) out.push_back(nb::cast<int64_t>(value));
    return out;
}

void flatten(nb::handle values, std::vector<int64_t>& out) {
    for (nb::handle value : values) {
        if (PyTuple_Check(value.ptr()))
            flatten(value, out);
        else
            out.push_back(PyLong_Check(value.ptr()) ? nb::cast<int64_t>(value) : 0);
    }
}

Attrs::Value attribute(nb::handle value) {
    Attrs::Value out;
    PyObject* object = value.ptr();
    if (object == Py_None) return out;
    if (PyBool_Check(object)) {
        out.kind = Attrs::Value::integer;
        out.i = object == Py_True;
    } else if (PyLong_Check(object)) {
        out.kind = Attrs::Value::integer;
        out.i = nb::cast<int64_t>(value);
    } else if (PyFloat_Check(object)) {
        out.kind = Attrs::Value::number;
        out.f = PyFloat_AsDouble(object);
    } else if (PyUnicode_Check(object)) {
        out.kind = Attrs::Value::text;
        out.s = nb::cast<std::string>(value);
    } else if (PyTuple_Check(object) || PyList_Check(object)) {
        out.kind = Attrs::Value::integers;
        flatten(value, out.list);
    }
    return out;
}

nb::object compile(const std::string& op, nb::handle operands, nb::handle attrs) {
    auto found = registry().find(op);
    if (found == registry().end()) return nb::none();
    Request request;
    request.op = op;
    for (nb::handle given : operands) {
        Operand operand;
        operand.dtype = dtype_named(nb::cast<std::string>(given.attr("dtype").attr("name")));
        operand.shape = integers(given.attr("shape"));
        operand.strides = integers(given.attr("strides"));
        operand.is_scalar = nb::cast<bool>(given.attr("is_scalar"));
        request.operands.push_back(std::move(operand));
    }
    for (nb::handle item : attrs.attr("items")())
        request.attrs.values[nb::cast<std::string>(item[0])] = attribute(item[1]);
    check_operands(request.operands);
    KernelPtr kernel = found->second(request);
    if (!kernel) return nb::none();
    PyObject* callable = make_callable(std::move(kernel), request.operands);
    if (!callable) throw nb::python_error();
    return nb::steal(callable);
}

nb::dict stats() {
    MemoryStats s = memory_stats();
    nb::dict out;
    out["allocated_bytes"] = s.allocated;
    out["peak_allocated_bytes"] = s.peak_allocated;
    out["cached_bytes"] = s.cached;
    out["cache_hits"] = s.hits;
    out["cache_misses"] = s.misses;
    return out;
}

PyMethodDef methods[] = {
    {"allocate", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(norch::allocate)), METH_FASTCALL,
     "allocate(nbytes, index) -> Buffer"},
    {"allocating", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(norch::allocating)), METH_FASTCALL,
     "allocating(kernel, nbytes) -> the kernel as a callable that allocates its output and returns it, or None."},
    {"from_host", norch::from_host, METH_O, "A Buffer on writable contiguous host memory, or None."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

NB_MODULE(NORCH_MODULE, m) {
    if (!add_buffer_type(m.ptr()) || !add_launch_type(m.ptr()) || PyModule_AddFunctions(m.ptr(), methods) != 0)
        throw nb::python_error();
    m.def("compile", compile, nb::arg("op"), nb::arg("operands"), nb::arg("attrs"),
          "The kernel of an op, or None where there is none.");
    m.def("ops", [] {
        nb::list names;
        for (const auto& entry : registry()) names.append(nb::cast(entry.first));
        return names;
    });
    m.def("memory_stats", stats);
    m.def("reset_peak_memory_stats", reset_peak_memory_stats);
    m.def("empty_cache", empty_cache);
    m.def("fma_peak", fma_peak, nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>());
    m.def("copy_bandwidth", copy_bandwidth, nb::arg("nbytes"), nb::arg("threads"),
          nb::call_guard<nb::gil_scoped_release>());
    m.def("num_threads", num_threads);
    m.def("set_num_threads", set_num_threads, nb::arg("count"));
}
