// Which of the builds of the extension this processor can run. Compiled for the plainest processor there is.
#include <nanobind/nanobind.h>

#include "runtime/instruction_set.h"

NB_MODULE(_detect, m) {
    m.def("instruction_set", norch::instruction_set);
    m.attr("native") = NORCH_CPU_NATIVE;  // the instruction set of the build "native", "" where that was not made
}
