// Convolution and its gradients by cuDNN, of images and volumes.
#pragma once

#include "nn/convolution.h"

namespace norch::nn {

/// Null where there is no cuDNN, it cannot do what is asked for, or our own kernels are faster.
KernelPtr cudnn_convolution(ConvolutionKind kind, const Request& request);

/// The gradient of a signal in 16 bits, of step 1 and windows with gaps, as a convolution with the weight turned round; null
/// for others.
KernelPtr turned_convolution(const Request& request);

}  // namespace norch::nn
