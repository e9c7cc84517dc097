// What the driver of elementwise kernels and their loops have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "common/kernel.h"
#include "common/layout.h"

namespace norch::elementwise {

/// p[0] is the output, p[1..] the inputs, all of n contiguous elements but those whose bit is set in `broadcast` (bit i for
/// p[i]), of which there is one element for all. The output may be one of the inputs. Not all inputs are broadcast.
using Loop = void (*)(char* const* p, unsigned broadcast, int64_t n);

/// How `elementwise` treats operands. BITS: 16-bit floats go to the loop as they are, not as float32. TAKES_BROADCAST: the
/// loop copes with inputs that are all broadcast.
enum : unsigned { BITS = 1, TAKES_BROADCAST = 2 };

/// An elementwise kernel of `request` around a loop. The loop's operands have the request's dtypes, but for 16-bit floats,
/// which are float32 there. `ns` is what an element costs a core. narrow: null, or a loop of operands that are all of one
/// 16-bit dtype, which gets them as they are and what is broadcast as float32.
KernelPtr elementwise_kernel(const Request& request, Loop loop, double ns, unsigned flags = 0, Loop narrow = nullptr);

/// What a kernel does to contiguous elements, for those who bring it others than its driver does.
struct Inner {
    Loop loop;
    double ns;
    unsigned flags;
    std::vector<double> constants;  // the loop's last inputs, in its dtype
};
class ElementwiseKernel : public Kernel {
public:
    ElementwiseKernel() { is_elementwise = true; }
    virtual Inner inner() const = 0;
};

/// Writes a scalar operand of `dtype` as a loop reads it: 16-bit floats as they are (`as_bits`) or as float32, then
/// exactly or, where the loop compares, rounded.
void write_scalar(void* to, Scalar value, DType dtype, bool as_bits, bool rounds);

/// Puts the dim along which an operand is contiguous next to the innermost, if for one that is not this. Returns whether
/// it did.
bool move_contiguous_dim(Loops& loops, const std::vector<Operand>& operands);

}  // namespace norch::elementwise
