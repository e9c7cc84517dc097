#pragma once

#include "common/kernel.h"

namespace norch::nn {

KernelPtr layer_norm_grad(const Request& request);
KernelPtr rms_norm_grad(const Request& request);

/// How many elements a row has: those of the dims that are normalised.
inline int64_t row_size(const Request& request) {
    int64_t n = 1;
    for (int64_t size : request.attrs.integers("shape")) n *= size;
    return n;
}

}  // namespace norch::nn
