// The families of kernels. Each adds its ops to the registry and has a folder of its own.
#pragma once

#include "common/kernel.h"

namespace norch {

namespace elementwise {
void add_arithmetic(Registry&);  // unary, binary, comparisons
void add_copying(Registry&);  // copy, fill, where
void add_complex(Registry&);  // complex_mul
void add_transcendental(Registry&);
void add_special(Registry&);  // exp2, hypot, lgamma
void add_weighted(Registry&);  // addcmul, addcdiv, lerp
void add_activations(Registry&);
void add_fused(Registry&);  // programs of all these
void add_fused_rows(Registry&);
void add_joining(Registry&);  // cat, stack
KernelPtr floating_pow(const Request& request);  // of transcendental, beside that of integers
}
namespace reduction {
void add_products(Registry&);  // gradients of prod and cumprod
void add_reductions(Registry&);
void add_variance(Registry&);
void add_scans(Registry&);  // cumsum, cumprod, cummax, cummin
}
namespace indexing {
void add_gather(Registry&);
void add_scatter(Registry&);
void add_embedding(Registry&);
void add_flip(Registry&);
void add_padding(Registry&);  // pad_edges and its gradient
void add_searching(Registry&);  // searchsorted
void add_selection(Registry&);  // kthvalue, medians, mode
void add_sorting(Registry&);
void add_sparse_products(Registry&);  // coo_matmul
void add_triangle(Registry&);
}
namespace matmul {
void add_matmul(Registry&);  // common/matmul.cpp: matmul, linear and its gradients
void add_distances(Registry&);  // distances and distances_grad
void add_quantized(Registry&);  // quantized_linear
}
namespace nn {
void add_softmax(Registry&);  // softmax, log_softmax
void add_attention(Registry&);
void add_ctc(Registry&);  // ctc_alphas and ctc_grad
void add_losses(Registry&);  // nll_loss, cross_entropy, mse_loss
void add_normalization(Registry&);  // layer_norm, batch_norm
void add_convolution(Registry&);
void add_pooling(Registry&);
void add_dropout(Registry&);
void add_folding(Registry&);  // im2col and col2im
void add_resampling(Registry&);  // resample
void add_sampling(Registry&);  // grid_sample2d
void add_cubic_sampling(Registry&);
void add_optimizers(Registry&);
void add_clipping(Registry&);  // total_norm, scale
}
namespace linalg {
void add_systems(Registry&);    // inv, solve, det, slogdet
void add_triangles(Registry&);  // cholesky, solve_triangular
void add_factors(Registry&);    // lu_factor, permutation
void add_qr(Registry&);
void add_spectral(Registry&);  // eigh, svd, and their values alone
}
namespace spectral {
void add_fourier(Registry&);  // dft
}
namespace random {
void add_random(Registry&);  // random, arange
void add_inversion(Registry&);  // poisson_of_uniform
}

}  // namespace norch
