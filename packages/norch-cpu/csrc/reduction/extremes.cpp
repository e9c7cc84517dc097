// amax and amin, apart from the other reductions so that both are compiled at once.
#include "reduction/fold.h"

namespace norch::reduction {

KernelPtr amax(const Request& request) { return fold<Largest>(request); }
KernelPtr amin(const Request& request) { return fold<Smallest>(request); }

}  // namespace norch::reduction
