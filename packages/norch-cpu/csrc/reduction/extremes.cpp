// amax and amin, apart from the other reductions so that both are compiled at once.
#include "reduction/fold.h"

namespace norch::reduction {

[[gnu::cold]] KernelPtr amax(const Request& request) { return fold<Largest>(request); }
[[gnu::cold]] KernelPtr amin(const Request& request) { return fold<Smallest>(request); }

}  // namespace norch::reduction
