#include "kernel.h"

namespace norch {

void add_matmul(Registry&) {}

}  // namespace norch
