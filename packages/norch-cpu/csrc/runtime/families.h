// The families of kernels. Each adds its ops to the registry and has a file of its own.
#pragma once

#include "common/kernel.h"

namespace norch {

void add_arithmetic(Registry&);      // arithmetic.cpp: unary, binary, comparisons
void add_copying(Registry&);         // copying.cpp: copy, fill, where
void add_transcendental(Registry&);  // transcendental.cpp
void add_reductions(Registry&);      // reduction.cpp
void add_scans(Registry&);           // scan.cpp: cumsum
void add_sorting(Registry&);         // sorting.cpp
void add_indexing(Registry&);        // indexing.cpp: gather, scatter, scatter_add
void add_embedding(Registry&);       // embedding.cpp
void add_random(Registry&);          // random.cpp: random, arange
void add_dropout(Registry&);         // dropout.cpp
void add_activations(Registry&);     // activation.cpp
void add_softmax(Registry&);         // softmax.cpp: softmax, log_softmax
void add_attention(Registry&);       // attention.cpp
void add_losses(Registry&);          // loss.cpp: nll_loss, cross_entropy, mse_loss
void add_normalization(Registry&);   // normalization.cpp: layer_norm, batch_norm
void add_matmul(Registry&);          // matmul.cpp
void add_linear(Registry&);          // common/linear.cpp: linear and its gradients
void add_convolution(Registry&);     // convolution.cpp
void add_pooling(Registry&);         // pooling.cpp
void add_optimizers(Registry&);      // optimizer.cpp

}  // namespace norch
