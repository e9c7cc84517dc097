// Convolution and its gradients by cuDNN, of images and volumes.
#pragma once

#include "common/kernel.h"

namespace norch::nn {

enum class ConvolutionKind { forward, input_grad, weight_grad };

/// Null where there is no cuDNN, it cannot do what is asked for, or our own kernels are faster.
KernelPtr cudnn_convolution(ConvolutionKind kind, const Request& request);

}  // namespace norch::nn
