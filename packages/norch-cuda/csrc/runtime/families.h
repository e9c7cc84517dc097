// The families of kernels. Each adds its ops to the registry and has a file of its own.
#pragma once

#include "common/kernel.h"

namespace norch {

void add_arithmetic(Registry&);      // arithmetic.cu: unary, binary, comparisons
void add_gather(Registry&);          // gather.cu: gather, embedding
void add_scatter(Registry&);         // scatter.cu
void add_scatter_add(Registry&);     // scatter_add.cu
void add_embedding_grad(Registry&);  // embedding_grad.cu
void add_activations(Registry&);     // activation.cu
void add_random(Registry&);          // random.cu
void add_dropout(Registry&);         // dropout.cu
void add_copying(Registry&);         // copying.cu: copy, fill, where
void add_convolution(Registry&);     // convolution.cu: conv2d and its gradients
void add_matmul(Registry&);          // matmul.cu
void add_linear(Registry&);          // common/linear.cpp: linear and its gradients
void add_pooling(Registry&);         // pooling.cu: max_pool2d, sum_pool2d and their gradients
void add_attention(Registry&);       // attention.cu: attention and its gradient
void add_optimizers(Registry&);      // optimizer.cu: steps of optimisers
void add_losses(Registry&);          // losses.cu: nll_loss, mse_loss, the gradient of cross_entropy
void add_normalization(Registry&);   // normalization.cu, channelnorm.cu: layer_norm, rms_norm, batch_norm
void add_softmax(Registry&);         // softmax.cu: softmax, log_softmax, cross_entropy
void add_transcendental(Registry&);  // transcendental.cu: exp, log, sin and their kin, pow, atan2
void add_reductions(Registry&);      // reduction.cu: sum, prod, amax, amin, any, all
void add_argreductions(Registry&);   // argreduction.cu: argmax, argmin
void add_scans(Registry&);           // scan.cu: cumsum, arange
void add_sorting(Registry&);         // sorting.cu: sort

}  // namespace norch
