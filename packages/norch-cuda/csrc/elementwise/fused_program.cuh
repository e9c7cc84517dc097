// A fused program, as the interpreter runs it and as C++ is made of it.
#pragma once

#include <string>

#include "elementwise/fused_steps.cuh"
#include "runtime/device.cuh"

namespace norch::elementwise::fused {

constexpr int TENSORS = 10, STEPS = 32, SCALARS = 16;
constexpr uint8_t NONE = 255;

struct Source {
    enum Kind : uint8_t { last, value, tensor, scalar } kind;  // last: the result of the step before
    uint8_t index;
};

struct Instruction {
    Code code;
    uint8_t arity;
    uint8_t to, out;  // the value and the tensor that the result is written to, or NONE
    DType dtype;
    Source x[3];
    float k[3];
};

struct Program {
    Instruction steps[STEPS];
    float scalar[SCALARS];
    char* data[TENSORS];         // the outputs first
    uint32_t shared[TENSORS];    // where inputs lie
    uint32_t values;             // where values do
    DType dtype[TENSORS];
    bool is_broadcast[TENSORS];  // along the innermost dim: one element stands for all of a packet
    bool is_repeated[TENSORS];   // along another dim
    uint8_t itemsize[TENSORS];
    int count, tensors, outputs;
    bool has_packets;
};

using Dims = Layout<TENSORS>;

/// What the kernel of `source_of` gets.
struct Arguments {
    char* data[TENSORS];
    float scalar[SCALARS];
    uint32_t count;  // elements
    uint32_t zero;   // 0
};

/// A kernel `fused_kernel(Arguments)` in C++, a thread of which computes `k` elements of a program with packets.
std::string source_of(const Program& p, const Dims& layout, int k);

}  // namespace norch::elementwise::fused
