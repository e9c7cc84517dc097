// Elementwise ops whose operands have several dtypes: programs of one step that reads operands as they are or converted.
#include <optional>

#include "common/fused_steps.h"
#include "elementwise/elementwise.cuh"
#include "runtime/families.h"

namespace norch::elementwise {
namespace widened {
namespace {

struct Choose {
    template <class T>
    NORCH_FN static T apply(T condition, T a, T b) {
        return condition != T(0) ? a : b;
    }
};

using Arithmetic = OpList<Add, Sub, Mul, Maximum, Minimum, Div>;
using Comparisons = OpList<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual>;

/// The place of a name among some; -1 where it is none of them.
template <size_t N>
int place_of(const std::string& name, const char* const (&names)[N]) {
    for (size_t i = 0; i < N; ++i)
        if (name == names[i]) return int(i);
    return -1;
}

/// Whether a dtype is in the group of inputs for `to`, float32 or one of 16 bits.
bool is_widened(DType from, DType to) {
    if (from == to || from == DType::boolean || from == DType::u8 || from == DType::i8) return true;
    return to == DType::f32 && (is_half(from) || from == DType::i32 || from == DType::i64);
}

/// The one step's op with the operands that it reads, in their order; nothing where a program has more, or others.
std::optional<Request> alone(const Request& request) {
    const std::vector<FusedStep> steps = fused_steps(request);
    const FusedStep& last = steps.back();
    const auto& results = request.attrs.integers("results");
    if (results.size() != 1 || results[0] + 1 != int64_t(steps.size())) return {};
    if (request.operands.size() != last.reads.size() + 1 || !last.attrs.values.empty()) return {};
    if (last.dtype != request.operands[0].dtype) return {};
    DType seen[3];
    for (size_t i = 0; i < last.reads.size() && i < 3; ++i) {
        FusedStep::Read read = last.reads[i];
        const FusedStep* cast = read.is_step ? &steps[size_t(read.index)] : nullptr;
        if (cast && (cast->op != "copy" || cast->reads.size() != 1 || cast->reads[0].is_step)) return {};
        if (cast) read = cast->reads[0];
        const Operand& operand = request.operands[size_t(read.index)];
        if (read.index != int(i) + 1 || operand.is_scalar || operand.shape != request.operands[0].shape) return {};
        seen[i] = cast ? cast->dtype : operand.dtype;
        const bool is_condition = last.op == "where" && i == 0;
        if (is_condition ? seen[i] != DType::boolean || cast : seen[i] != DType::f32 && !is_half(seen[i])) return {};
        if (!is_condition && (seen[i] != seen[last.op == "where"] || !is_widened(operand.dtype, seen[i]))) return {};
    }
    return Request{last.op, request.operands, {}};
}

/// Results of 16 bits or in float32.
template <class Inputs, class Out>
KernelPtr floating(const Request& one) {
    const size_t inputs = one.operands.size() - 1;
    if (one.op == "where" && inputs == 3) return map(one, OneOf<Inputs, Out, 3, OpList<Choose>>(0));
    const int op = place_of(one.op, {"add", "sub", "mul", "maximum", "minimum", "div"});
    return op < 0 || inputs != 2 ? nullptr : map(one, OneOf<Inputs, Out, 2, Arithmetic>(op));
}

}  // namespace
}  // namespace widened

KernelPtr widening(const Request& request) {
    using namespace widened;
    const std::optional<Request> one = alone(request);
    if (!one) return nullptr;
    const DType out = one->operands[0].dtype;
    if (out == DType::boolean) {
        const int op = place_of(one->op, {"eq", "ne", "lt", "le", "gt", "ge"});
        return op < 0 ? nullptr : map(*one, OneOf<Widened, uint8_t, 2, Comparisons>(op));
    }
    return is_half(out) ? floating<Narrow, Halves>(*one) : floating<Widened, float>(*one);
}

}  // namespace norch::elementwise
