// Fused programs as C++, for NVRTC.
#include "elementwise/fused_program.cuh"

namespace norch::elementwise::fused {
namespace {

const char* type_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float";
        case DType::f16: return "float16";
        case DType::bf16: return "bfloat16";
        default: return "uint8_t";
    }
}

/// What computes a step that is one rounded operation, which the compiler contracts with no other.
std::string exact_of(Code code) {
    switch (code) {
        case code_add: return "__fadd_rn";
        case code_sub: return "__fsub_rn";
        case code_mul: return "__fmul_rn";
        default: return "";
    }
}

std::string numbered(const char* name, int number, const char* rest = "") {
    return std::string(name).append(std::to_string(number)).append(rest);
}

std::string name_of(const Program& p, const Source& from, int step, const int (&owner)[STEPS]) {
    switch (from.kind) {
        case Source::last: return numbered("s", step - 1, "[j]");
        case Source::value: return numbered("s", owner[from.index], "[j]");
        case Source::scalar: return numbered("p.scalar[", from.index, "]");
        default: return numbered("t", from.index, p.is_broadcast[from.index] ? "[0]" : "[j]");
    }
}

}  // namespace

std::string source_of(const Program& p, const Dims& layout, int k) {
    const auto number = [](auto n) { return std::to_string(n); };
    std::string out = "#include \"elementwise/fused_prelude.cuh\"\n#include \"elementwise/fused_ops.cuh\"\n"
                      "using namespace norch;\nusing namespace norch::elementwise;\nusing namespace norch::elementwise::fused;\n";
    out.append("struct Arguments { char* data[" + number(TENSORS) + "]; float scalar[" + number(SCALARS) + "]; uint32_t count, zero; };\n");
    out.append("extern \"C\" __global__ void __launch_bounds__(" + number(THREADS) + ")\n");
    out.append("fused_kernel(const __grid_constant__ Arguments p) {\n    constexpr int K = " + number(k) + ";\n");
    out.append("    const uint32_t first = (blockIdx.x * " + number(THREADS) + "u + threadIdx.x) * K;\n");
    out.append("    if (first >= p.count) return;\n    uint32_t rest = first;\n");
    for (int d = 0; d < layout.ndim; ++d) {
        const std::string name = numbered("i", d), size = numbered("", int(layout.size[d].divisor), "u");
        if (d + 1 == layout.ndim) out.append("    const uint32_t " + name + " = rest;\n");
        else out.append("    const uint32_t " + name + " = rest % " + size + "; rest /= " + size + ";\n");
    }
    for (int t = 0; t < p.tensors; ++t) {
        out.append(numbered("    char* const d", t, " = p.data[") + number(t) + "]");
        for (int d = 0; d < layout.ndim; ++d)
            if (layout.stride[t][d]) out.append(numbered(" + int64_t(i", d, ") * ") + number(layout.stride[t][d]));
        out.append(";\n");
    }
    for (int t = p.outputs; t < p.tensors; ++t) {
        const std::string name = numbered("t", t), elements = number(p.is_broadcast[t] ? 1 : k);
        out.append("    float " + name + "[" + elements + "]; load<" + type_of(p.dtype[t]) + ">(" + name + ", d" + number(t) + ");\n");
    }
    int owner[STEPS] = {};  // of each value, the step
    for (int s = 0; s < p.count; ++s) {
        const Instruction& one = p.steps[s];
        const std::string name = numbered("s", s), type = type_of(one.dtype), exact = exact_of(one.code);
        out.append("    float " + name + "[K]; {\n");
        if (exact.empty()) {
            out.append("    const float k[] = {");
            for (float constant : one.k) out.append("__int_as_float(" + number(bit_cast<int32_t>(constant)) + "), ");
            out.append("};\n");
        }
        out.append("#pragma unroll\n    for (int j = 0; j < K; ++j) " + name + "[j] = rounded<" + type + ">(");
        out.append(exact.empty() ? std::string(text_of(one.code)) + "::call(k, " : exact + "(");
        for (int i = 0; i < one.arity; ++i) {
            const std::string operand = name_of(p, one.x[i], s, owner);
            out.append((i ? ", " : "") + (exact.empty() ? "own(" + operand + ")" : operand));
        }
        out.append("), p.zero); }\n");
        if (one.to != NONE) owner[one.to] = s;
        if (one.out != NONE) out.append(std::string("    store<") + type + ">(d" + number(int(one.out)) + ", " + name + ");\n");
    }
    return out + "}\n";
}

}  // namespace norch::elementwise::fused
