// How the operands of a reduction become loops.
#pragma once

#include "common/kernel.h"
#include "common/layout.h"

namespace norch::reduction {

struct ReductionLoops {
    Loops kept;      // over the outputs: strides of x, of out
    Loops reduced;   // over what becomes one output: strides of x
    bool is_columns; // whether the outputs lie closer together than what is reduced
};
ReductionLoops reduction_loops(const Operand& out, const Operand& x, const std::vector<int64_t>& dims);

}  // namespace norch::reduction
