// What every family of kernels shares: the request that `compile` gets, the kernel that it returns, the families' list.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/dtype.h"

namespace norch {

/// The dtype that Python calls so. Throws std::invalid_argument where there is none.
DType dtype_named(const std::string& name);

/// One operand as `compile` is told of it. Strides count elements and are never negative; a broadcast dim has stride 0.
struct Operand {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
    bool is_scalar = false;

    Operand();
    Operand(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides, bool is_scalar = false);
    // Compiled once: most kernels keep some.
    Operand(const Operand&);
    Operand(Operand&&) noexcept;
    Operand& operator=(const Operand&);
    Operand& operator=(Operand&&) noexcept;
    ~Operand();

    int64_t numel() const;
    int ndim() const { return int(shape.size()); }
    /// Whether the elements lie row by row without gaps.
    bool is_contiguous() const;
};

/// The attributes of an op: what the op's parameters are besides its operands. Each get throws where there is none.
class Attrs {
public:
    bool has(const std::string& name) const;  // there, and not None
    int64_t integer(const std::string& name) const;
    double number(const std::string& name) const;  // an int or a float
    bool flag(const std::string& name) const;
    const std::string& text(const std::string& name) const;
    const std::vector<int64_t>& integers(const std::string& name) const;  // a tuple, nested ones flattened

    struct Value {
        enum Kind { none, integer, number, text, integers } kind = none;
        int64_t i = 0;
        double f = 0;
        std::string s;
        std::vector<int64_t> list;
    };
    std::map<std::string, Value> values;

private:
    const Value& get(const std::string& name) const;
};

struct Request {
    std::string op;
    std::vector<Operand> operands;  // outputs first, as in norch.backend
    Attrs attrs;
};

/// A scalar operand: `f` where its dtype is floating, else `i` (a bool as 0 or 1; 64-bit unsigned ones modulo 2**64).
union Scalar {
    double f;
    int64_t i;
};

/// A compiled op. `run` may be called from several threads at once, so it changes nothing in the kernel.
class Kernel {
public:
    virtual ~Kernel() = default;
    /// data[i] is the first element of operand i (null for a scalar), scalars[i] the value of operand i if it is one.
    virtual void run(char* const* data, const Scalar* scalars) const = 0;
    /// About how many nanoseconds one core takes: the GIL is released around long kernels.
    double work = 0;
    /// The operands that it may write, the first ones; the others are only read. 0: it may write all.
    int written = 0;
    bool is_elementwise = false;  // an ElementwiseKernel; there is no run-time type information
};

using KernelPtr = std::unique_ptr<Kernel>;

/// `Kernel::written` for a request.
int written_by(const Request& request);

/// Makes the kernel for a request, or returns null where there is none (core then decomposes a composite). It runs once: what
/// is [[gnu::cold]] is compiled to be small.
using Factory = KernelPtr (*)(const Request&);
struct Registry : std::unordered_map<std::string, Factory> {
    Factory& operator[](const char* op);  // compiled once: every family has many calls
};

/// What a kernel may throw, besides std::bad_alloc.
struct IndexOutOfBounds : std::exception {
    IndexOutOfBounds(int64_t index, int64_t size) : index(index), size(size) {}
    int64_t index, size;
};
struct ZeroDivision : std::exception {};
/// A std::bad_alloc that says what was asked for and what there is.
struct OutOfMemory : std::bad_alloc {
    explicit OutOfMemory(std::string message) : message(std::move(message)) {}
    const char* what() const noexcept override { return message.c_str(); }
    std::string message;
};

/// A kernel from a function object: `make_kernel(work, [=](char* const* data, const Scalar* scalars) { ... })`.
template <class Body>
[[gnu::cold]] KernelPtr make_kernel(double work, Body body) {
    struct Bound final : Kernel {
        explicit Bound(Body body) : body(std::move(body)) {}
        void run(char* const* data, const Scalar* scalars) const override { body(data, scalars); }
        Body body;
    };
    auto kernel = std::make_unique<Bound>(std::move(body));
    kernel->work = work;
    return kernel;
}

}  // namespace norch
