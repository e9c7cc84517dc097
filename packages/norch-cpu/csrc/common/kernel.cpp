#include "common/kernel.h"

#include <algorithm>

#include "common/scratch.h"

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

int64_t& noted_scratch() {
    static thread_local int64_t nbytes = 0;
    return nbytes;
}

Factory& Registry::operator[](const char* op) { return unordered_map::operator[](op); }

Operand::Operand() = default;
Operand::Operand(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides, bool is_scalar)
    : dtype(dtype), shape(std::move(shape)), strides(std::move(strides)), is_scalar(is_scalar) {}
Operand::Operand(const Operand&) = default;
Operand::Operand(Operand&&) noexcept = default;
Operand& Operand::operator=(const Operand&) = default;
Operand& Operand::operator=(Operand&&) noexcept = default;
Operand::~Operand() = default;

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

int written_by(const Request& request) {
    // By how many outputs they have. What is not named may write any operand.
    static const std::vector<const char*> names[] = {
        {"abs", "acos", "acosh", "add", "addcdiv", "addcmul", "all", "amax", "amin", "any", "arange", "argmax", "argmin", "asin", "asinh",
         "atan", "atan2", "atanh", "axpy", "batch_norm_running", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
         "bitwise_right_shift", "bitwise_xor", "ceil", "clamp", "conv2d", "conv2d_input_grad", "conv2d_weight_grad",
         "copy", "copysign", "cos", "cosh", "cross_entropy_grad", "cumprod", "cumsum", "dft", "dft2", "div", "dropout", "elu", "elu_grad", "embedding",
         "embedding_grad", "eq", "erf", "exp", "expm1", "fill", "flip", "floor", "floor_divide", "gather", "ge", "gelu",
         "gelu_grad", "grid_sample2d", "grid_sample2d_bicubic", "grid_sample2d_bicubic_grid_grad", "grid_sample2d_bicubic_input_grad",
         "grid_sample2d_grid_grad", "grid_sample2d_input_grad", "grid_sample3d",
         "grid_sample3d_grid_grad", "grid_sample3d_input_grad", "gt", "hardtanh", "hardtanh_grad", "layer_norm", "le", "leaky_relu", "leaky_relu_grad", "lerp", "lerp_by_tensor", "linear",
         "linear_activation", "linear_input_grad", "linear_weight_grad", "log", "log10", "log1p", "log2", "log_softmax",
         "log_softmax_grad", "lt", "matmul", "max_pool2d", "max_pool2d_grad", "max_pool2d_indices", "maximum", "minimum",
         "mse_loss", "mse_loss_grad", "mul", "ne", "neg", "nll_loss", "nll_loss_grad", "pad_edges", "pad_edges_grad", "poisson_of_uniform", "pow", "prelu", "prod",
         "quantized_linear", "random", "relu", "relu_grad", "remainder", "resample", "rms_norm", "round",
         "scaled_dot_product_attention", "sigmoid", "sigmoid_grad", "sign", "silu", "silu_grad", "sin", "sinh",
         "softmax", "softmax_grad", "softplus", "softplus_grad", "sqrt", "sub", "sum", "sum_pool2d",
         "sum_pool2d_grad", "tan", "tanh", "tanh_grad", "trunc", "where",
         "bin_counts", "carried_back", "count_nonzero", "cross_product", "cumsum_back", "digamma", "erfc", "erfinv", "exp2",
         "flat_index", "fmod", "frac", "hardsigmoid", "hardsigmoid_grad", "hardswish", "hardswish_grad", "histogram",
         "hypot", "i0", "i0e", "i1", "i1e", "lgamma", "logcumsumexp", "nan_to_num", "searchsorted", "sum_of_squares",
         "threshold", "threshold_grad", "total_norm", "triangle", "trigamma", "true_indices", "variance", "variance_grad", "coo_matmul",
         "distances", "distances_grad", "exponential_draw", "log_gamma_draw", "pairwise_distances", "pairwise_distances_grad",
         "poisson_draw", "race_keys", "roi_align", "roi_align_grad", "running_extreme_grad", "triangle_indices",
         "multi_margin_rows", "multi_margin_rows_grad", "im2col", "col2im"},
        {"cross_entropy", "cummax", "cummin", "scaled_dot_product_attention_sums", "select_along", "sort",
         "topk"},
        {"batch_norm", "batch_norm_grad", "batch_norm_running_grad", "group_norm_grad", "layer_norm_grad", "rms_norm_grad", "scaled_dot_product_attention_grad",
         "scaled_dot_product_attention_sums_grad"},
        {"scaled_dot_product_attention_mask_grad"}};
    static const auto counts = [] {
        std::unordered_map<std::string, int> out;
        for (int i = 0; i < 4; ++i)
            for (const char* name : names[i]) out[name] = i + 1;
        return out;
    }();
    if (request.op == "recurrence" || request.op == "recurrence_grad") {
        const auto& given = request.attrs.integers("given");
        return int(request.operands.size()) - int(std::count(given.begin(), given.end(), 1));
    }
    if (request.op == "fused" || request.op == "fused_rows") return int(request.attrs.integers("results").size());
    const auto found = counts.find(request.op);
    return found == counts.end() ? 0 : found->second;
}

}  // namespace norch
