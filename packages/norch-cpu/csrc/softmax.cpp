#include "kernel.h"

namespace norch {

void add_softmax(Registry&) {}

}  // namespace norch
