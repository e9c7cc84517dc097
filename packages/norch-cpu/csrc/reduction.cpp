#include "kernel.h"

namespace norch {

void add_reductions(Registry&) {}

}  // namespace norch
