// The families of kernels. Each adds its ops to the registry and has a folder of its own.
#pragma once

#include "common/kernel.h"

namespace norch {

namespace elementwise {
void add_arithmetic(Registry&);  // unary, binary, comparisons
void add_copying(Registry&);  // copy, fill, where
void add_transcendental(Registry&);  // exp, log, sin and their kin, pow, atan2
void add_special(Registry&);  // copysign, erfc, erfinv, lgamma and its kin
void add_activations(Registry&);
void add_cross(Registry&);
void add_complex(Registry&);  // complex_mul
void add_fused(Registry&);  // programs of all these
void add_casts(Registry&);  // of many tensors at once
KernelPtr floating_pow(const Request& request);  // of transcendental, beside that of integers
KernelPtr cast(const Request& request);  // copy between two different dtypes
KernelPtr widening(const Request& request);  // programs of one step that converts what it reads; null for others
}
namespace reduction {
void add_reductions(Registry&);  // sum, prod, amax, amin, any, all
void add_squares(Registry&);  // sum_of_squares, variance
void add_argreductions(Registry&);  // argmax, argmin
void add_scans(Registry&);  // cumsum, arange
void add_running(Registry&);  // cumprod, cummax, cummin, logcumsumexp
}
namespace indexing {
void add_gather(Registry&);  // gather, embedding
void add_scatter(Registry&);
void add_scatter_add(Registry&);
void add_embedding_grad(Registry&);
void add_embedding_sum(Registry&);
void add_sorting(Registry&);
void add_edges(Registry&);  // pad_edges
void add_topk(Registry&);
void add_searching(Registry&);
void add_flip(Registry&);
void add_triangles(Registry&);
void add_places(Registry&);  // of nonzero
void add_selection(Registry&);  // select_along
void add_histograms(Registry&);
}
namespace matmul {
void add_matmul(Registry&);  // common/matmul.cpp: matmul, linear and its gradients
void add_sparse(Registry&);  // coo_matmul
void add_distances(Registry&);  // distances and distances_grad
void add_complex_products(Registry&);  // complex_matmul
}
namespace nn {
void add_softmax(Registry&);  // softmax, log_softmax, cross_entropy
void add_attention(Registry&);
void add_ctc(Registry&);
void add_kept_boxes(Registry&);
void add_regions(Registry&);  // roi_align
void add_losses(Registry&);  // nll_loss, mse_loss, the gradient of cross_entropy
void add_normalization(Registry&);  // layer_norm, rms_norm, batch_norm
void add_group_norm(Registry&);
void add_convolution(Registry&);
void add_pooling(Registry&);  // max_pool2d, sum_pool2d
void add_adaptive_pooling(Registry&);
void add_folding(Registry&);  // im2col, col2im
void add_deformed(Registry&);  // deform_columns
void add_resampling(Registry&);
void add_sampling(Registry&);  // grid_sample2d, grid_sample3d
void add_cubic_sampling(Registry&);
void add_dropout(Registry&);
void add_optimizers(Registry&);
void add_clipping(Registry&);  // total_norm, scale
}
namespace spectral {
void add_fourier(Registry&);
}
namespace random {
void add_random(Registry&);
void add_distributions(Registry&);
}

}  // namespace norch
