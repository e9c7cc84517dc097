// A fused program as instructions over a tile: loops of elementwise kernels that read and write what lies in a table.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/fused_steps.h"
#include "elementwise/elementwise.h"

namespace norch::elementwise {

// The table of pointers: operands, registers (a tile of the first-level cache each), scalars.
constexpr int OPERANDS = 32, REGISTERS = 32, SLOTS = 64;
constexpr int FIRST_REGISTER = OPERANDS, FIRST_SLOT = FIRST_REGISTER + REGISTERS, TABLE = FIRST_SLOT + SLOTS;
constexpr int NOWHERE = -1;

struct Instruction {
    Loop loop;
    int count;
    int at[6];  // places in the table: the output, the inputs
    unsigned broadcast;
    bool is_of_row = false;              // makes one element of a row of them
    std::shared_ptr<const Kernel> fold;  // instead of a loop
};

/// How an operand that is a tensor lies in a tile.
struct OperandPlan {
    bool is_direct;     // its elements are where a loop finds them, else they are moved to or from a register
    bool is_broadcast;  // one element for all of a tile
    bool is_kept;       // what is moved may serve several tiles
    bool is_of_row;     // one element for a row of the others
    int at = NOWHERE;   // where the program finds an input or leaves an output; NOWHERE for an input that nothing reads
};

struct SlotPlan {
    int operand;  // the scalar operand; NOWHERE for a constant, which is `value`
    DType dtype;
    bool as_bits, rounds;
    Scalar value;
};

struct FusedProgram {
    int outputs = 0;
    std::vector<OperandPlan> operands;
    std::vector<Instruction> instructions;
    std::vector<SlotPlan> slots;
    int registers = 0;
    int64_t register_size = 1;  // bytes of the largest element
    double ns = 0;              // what an element costs a core
};

/// The program of a request; `operands` says how each lies. Where steps reduce rows, these have `row` elements. Returns
/// false where there is no such kernel, throws std::invalid_argument where the request makes no sense.
bool plan_fused(const Request& request, std::vector<OperandPlan> operands, FusedProgram* program, int64_t row = 0);

/// The values of scalar operands and constants, as loops read them: slots[i] for program.slots[i].
void write_slots(const FusedProgram& program, const Scalar* scalars, uint64_t* slots);

}  // namespace norch::elementwise
