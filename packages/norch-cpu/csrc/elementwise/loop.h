// The inner loops of elementwise kernels: contiguous, in one dtype; layouts and 16-bit floats are the driver's affair.
#pragma once

#include <cstdint>
#include <string>

#include "common/kernel.h"
#include "runtime/simd.h"

namespace norch::elementwise {

/// p[0] is the output, p[1..] the inputs, all of n contiguous elements but those whose bit is set in `broadcast` (bit i for
/// p[i]), of which there is one element for all. The output may be one of the inputs. Not all inputs are broadcast.
using Loop = void (*)(char* const* p, unsigned broadcast, int64_t n);

/// How `elementwise` treats operands. BITS: 16-bit floats go to the loop as they are, not as float32. TAKES_BROADCAST: the
/// loop copes with inputs that are all broadcast.
enum : unsigned { BITS = 1, TAKES_BROADCAST = 2 };

/// An elementwise kernel of `request` around a loop. The loop's operands have the request's dtypes, but for 16-bit floats,
/// which are float32 there. `ns` is what an element costs a core.
KernelPtr elementwise_kernel(const Request& request, Loop loop, double ns, unsigned flags = 0);

template <class T, class F>
void unary_loop(char* const* p, unsigned, int64_t n) {
    T* out = reinterpret_cast<T*>(p[0]);
    const T* x = reinterpret_cast<const T*>(p[1]);
    NORCH_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = F::apply(x[i]);
}

template <class Out, class T, class F>
void binary_loop(char* const* p, unsigned broadcast, int64_t n) {
    Out* out = reinterpret_cast<Out*>(p[0]);
    const T* a = reinterpret_cast<const T*>(p[1]);
    const T* b = reinterpret_cast<const T*>(p[2]);
    if (broadcast & 2) {
        const T value = *a;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = F::apply(value, b[i]);
    } else if (broadcast & 4) {
        const T value = *b;
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = F::apply(a[i], value);
    } else {
        NORCH_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) out[i] = F::apply(a[i], b[i]);
    }
}

}  // namespace norch::elementwise
