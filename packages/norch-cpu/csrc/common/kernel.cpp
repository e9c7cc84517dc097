#include "common/kernel.h"

namespace norch {

DType dtype_named(const std::string& name) {
    static const std::unordered_map<std::string, DType> dtypes = {
        {"float64", DType::f64}, {"float32", DType::f32}, {"float16", DType::f16}, {"bfloat16", DType::bf16},
        {"int64", DType::i64},   {"int32", DType::i32},   {"int16", DType::i16},   {"int8", DType::i8},
        {"uint8", DType::u8},    {"bool", DType::boolean}};
    auto found = dtypes.find(name);
    if (found == dtypes.end()) throw std::invalid_argument("there are no kernels for dtype " + name);
    return found->second;
}

int64_t Operand::numel() const {
    int64_t n = 1;
    for (int64_t size : shape) n *= size;
    return n;
}

bool Operand::is_contiguous() const {
    int64_t expected = 1;
    for (int d = ndim() - 1; d >= 0; --d) {
        if (shape[d] == 0) return true;
        if (shape[d] == 1) continue;
        if (strides[d] != expected) return false;
        expected *= shape[d];
    }
    return true;
}

bool Attrs::has(const std::string& name) const {
    auto found = values.find(name);
    return found != values.end() && found->second.kind != Value::none;
}

const Attrs::Value& Attrs::get(const std::string& name) const {
    auto found = values.find(name);
    if (found == values.end()) throw std::invalid_argument("there is no attribute '" + name + "'");
    return found->second;
}

int64_t Attrs::integer(const std::string& name) const {
    const Value& value = get(name);
    if (value.kind != Value::integer) throw std::invalid_argument("attribute '" + name + "' must be an integer");
    return value.i;
}

double Attrs::number(const std::string& name) const {
    const Value& value = get(name);
    if (value.kind == Value::integer) return double(value.i);
    if (value.kind != Value::number) throw std::invalid_argument("attribute '" + name + "' must be a number");
    return value.f;
}

bool Attrs::flag(const std::string& name) const { return integer(name) != 0; }

const std::string& Attrs::text(const std::string& name) const {
    const Value& value = get(name);
    if (value.kind != Value::text) throw std::invalid_argument("attribute '" + name + "' must be a string");
    return value.s;
}

const std::vector<int64_t>& Attrs::integers(const std::string& name) const {
    const Value& value = get(name);
    if (value.kind != Value::integers) throw std::invalid_argument("attribute '" + name + "' must be a tuple of integers");
    return value.list;
}

}  // namespace norch
