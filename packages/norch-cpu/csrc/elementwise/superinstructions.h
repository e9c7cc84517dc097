// Loops that do two steps of a fused program at once, in float32: what is between them stays in a register.
#pragma once

#include <array>
#include <map>
#include <string>

#include "elementwise/elementwise.h"

namespace norch::elementwise {

using PairLoops = std::array<Loop, 16>;  // by `broadcast`; null where all inputs are
using Pairs = std::map<std::string, PairLoops>;

/// By "first second place": the loops of `second`, whose input `place` (0 or 1) is what `first` computes. p[0] is the
/// output, then come the inputs of `first`, then the other one of `second`.
Pairs arithmetic_pairs();
Pairs function_pairs();

}  // namespace norch::elementwise
