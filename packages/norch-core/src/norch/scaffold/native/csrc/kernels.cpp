// Native kernels of "newdevice": elementwise float32, on operands of any strides. Add yours here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace {

using Sizes = std::vector<int64_t>;
using Function = void (*)(float* out, const float* a, const float* b, int64_t n, int64_t so, int64_t sa, int64_t sb);

template <class F>
void loop(float* out, const float* a, const float* b, int64_t n, int64_t so, int64_t sa, int64_t sb, F f) {
    for (int64_t i = 0; i < n; ++i) out[i * so] = f(a[i * sa], b[i * sb]);
}

#define FUNCTION(expression)                                                                                  \
    [](float* out, const float* a, const float* b, int64_t n, int64_t so, int64_t sa, int64_t sb) {           \
        loop(out, a, b, n, so, sa, sb, [](float x, [[maybe_unused]] float y) -> float { return expression; }); \
    }

const std::map<std::string, Function> functions = {
    {"add", FUNCTION(x + y)},
    {"sub", FUNCTION(x - y)},
    {"mul", FUNCTION(x * y)},
    {"div", FUNCTION(x / y)},
    {"neg", FUNCTION(-x)},
    {"sqrt", FUNCTION(std::sqrt(x))},
    {"exp", FUNCTION(std::exp(x))},
    {"tanh", FUNCTION(std::tanh(x))},
};

/// What `compile` found out once: the shape, and for output and inputs how far apart the elements of each dim are.
class Kernel {
public:
    Kernel(const std::string& op, Sizes shape, std::vector<Sizes> strides)
        : function_(functions.at(op)), shape_(std::move(shape)), strides_(std::move(strides)) {}

    /// The addresses of the first elements. Of a function of one operand the second is the first again.
    void operator()(uintptr_t out, uintptr_t a, uintptr_t b) const {
        run(0, reinterpret_cast<float*>(out), reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b));
    }

private:
    void run(size_t dim, float* out, const float* a, const float* b) const {
        if (shape_.empty()) return function_(out, a, b, 1, 0, 0, 0);
        const int64_t so = strides_[0][dim], sa = strides_[1][dim], sb = strides_[2][dim];
        if (dim + 1 == shape_.size()) return function_(out, a, b, shape_[dim], so, sa, sb);
        for (int64_t i = 0; i < shape_[dim]; ++i) run(dim + 1, out + i * so, a + i * sa, b + i * sb);
    }

    Function function_;
    Sizes shape_;
    std::vector<Sizes> strides_;
};

}  // namespace

NB_MODULE(_ext, m) {
    nb::set_leak_warnings(false);  // kernels live in norch's plans until the interpreter ends
    m.def("has", [](const std::string& op) { return functions.count(op) > 0; });
    nb::class_<Kernel>(m, "Kernel")
        .def(nb::init<const std::string&, Sizes, std::vector<Sizes>>())
        .def("__call__", &Kernel::operator(), nb::call_guard<nb::gil_scoped_release>());
}
