// Fused programs as C++, for NVRTC.
#include <sstream>

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
    std::ostringstream out;
    out << "#include \"elementwise/fused_prelude.cuh\"\n#include \"elementwise/fused_ops.cuh\"\n"
        << "using namespace norch;\nusing namespace norch::elementwise;\nusing namespace norch::elementwise::fused;\n"
        << "struct Arguments { char* data[" << TENSORS << "]; float scalar[" << SCALARS << "]; uint32_t count; };\n"
        << "extern \"C\" __global__ void __launch_bounds__(" << THREADS << ")\n"
        << "fused_kernel(const __grid_constant__ Arguments p) {\n"
        << "    constexpr int K = " << k << ";\n"
        << "    const uint32_t first = (blockIdx.x * " << THREADS << "u + threadIdx.x) * K;\n"
        << "    if (first >= p.count) return;\n";
    if (layout.ndim > 1) {
        out << "    uint32_t rest = first;\n";
        for (int d = 0; d < layout.ndim; ++d) {
            const uint32_t size = layout.size[d].divisor;
            if (d + 1 == layout.ndim) out << "    const uint32_t i" << d << " = rest;\n";
            else out << "    const uint32_t i" << d << " = rest % " << size << "u; rest /= " << size << "u;\n";
        }
    } else {
        out << "    const uint32_t i0 = first;\n";
    }
    for (int t = 0; t < p.tensors; ++t) {
        out << "    char* const d" << t << " = p.data[" << t << "]";
        for (int d = 0; d < layout.ndim; ++d)
            if (layout.stride[t][d]) out << " + int64_t(i" << d << ") * " << layout.stride[t][d];
        out << ";\n";
    }
    for (int t = p.outputs; t < p.tensors; ++t) {
        const int elements = p.is_broadcast[t] ? 1 : k;
        out << "    float t" << t << "[" << elements << "]; load<" << type_of(p.dtype[t]) << ">(t" << t << ", d" << t
            << ");\n";
    }
    int owner[STEPS] = {};  // of each value, the step
    for (int s = 0; s < p.count; ++s) {
        const Instruction& one = p.steps[s];
        out << "    float s" << s << "[K]; { const float k[] = {";
        for (float constant : one.k) out << "__int_as_float(" << bit_cast<int32_t>(constant) << "), ";
        out << "};\n#pragma unroll\n    for (int j = 0; j < K; ++j) s" << s << "[j] = rounded<" << type_of(one.dtype) << ">("
            << text_of(one.code) << "::call(k";
        for (int i = 0; i < one.arity; ++i) out << ", " << name_of(p, one.x[i], s, owner);
        out << ")); }\n";
        if (one.to != NONE) owner[one.to] = s;
        if (one.out != NONE)
            out << "    store<" << type_of(one.dtype) << ">(d" << int(one.out) << ", s" << s << ");\n";
    }
    out << "}\n";
    return out.str();
}

}  // namespace norch::elementwise::fused
