// The families of kernels. Each adds its ops to the registry and has a file of its own.
#pragma once

#include "common/kernel.h"

namespace norch {

void add_arithmetic(Registry&);      // arithmetic.cu: unary, binary, comparisons
void add_copying(Registry&);         // copying.cu: copy, fill, where
void add_losses(Registry&);          // losses.cu: nll_loss, mse_loss, the gradient of cross_entropy
void add_normalization(Registry&);   // normalization.cu, channelnorm.cu: layer_norm, rms_norm, batch_norm
void add_softmax(Registry&);         // softmax.cu: softmax, log_softmax, cross_entropy
void add_transcendental(Registry&);  // transcendental.cu: exp, log, sin and their kin, pow, atan2

}  // namespace norch
