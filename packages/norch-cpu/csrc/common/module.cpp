#include "common/module.h"

#include <nanobind/stl/string.h>

#include "common/buffer.h"
#include "common/launch.h"
#include "common/program.h"
#include "common/scratch.h"

namespace nb = nanobind;

namespace norch {
namespace {

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

/// Never destroyed: kernels may outlive the module.
Registry& registry() {
    static auto* all = new Registry;
    return *all;
}

/// The callable kernel for operands (norch.backend.Operand) and attributes (a dict); None where there is none.
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
    noted_scratch() = 0;
    KernelPtr kernel = found->second(request);
    if (!kernel) return nb::none();
    kernel->written = written_by(request);
    PyObject* callable = make_callable(std::move(kernel), request.operands, &found->first);
    if (!callable) throw nb::python_error();
    launch_of(callable)->scratch = noted_scratch();
    return nb::steal(callable);
}

int64_t scratch_bytes(nb::handle kernel) {
    const Launch* launch = launch_of(kernel.ptr());
    return launch ? launch->scratch : 0;
}

template <class Function>
PyMethodDef fast_method(const char* name, Function function, const char* doc) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, doc};
}
PyMethodDef methods[] = {
    fast_method("allocate", allocate, "allocate(nbytes, index) -> Buffer"),
    fast_method("program", program,
                "program(calls, scratch, places, index, Place, Fed) -> Backend.program's `run(buffers, numbers)`, or None."),
    fast_method("allocating", allocating,
                "allocating(kernel, nbytes, index) -> the kernel as a callable that allocates its output and returns it, "
                "or None."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_kernels(nb::module_& module, std::initializer_list<void (*)(Registry&)> families) {
    for (auto add : families) add(registry());
    PyObject* m = module.ptr();
    if (!add_buffer_type(m) || !add_launch_type(m) || !add_program_type(m) || PyModule_AddFunctions(m, methods) != 0) throw nb::python_error();
    module.def("compile", compile, nb::arg("op"), nb::arg("operands"), nb::arg("attrs"),
               "The kernel of an op, or None where there is none.");
    module.def("scratch_bytes", scratch_bytes, nb::arg("kernel"),
               "What a kernel takes from the allocator while it runs, where that may be as much as a tensor, else 0.");
    module.def("ops", [] {
        nb::list names;
        for (const auto& entry : registry()) names.append(nb::cast(entry.first));
        return names;
    });
}

}  // namespace norch
