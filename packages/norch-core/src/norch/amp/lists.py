"""Which functions autocast runs in which dtype, by their public names: PyTorch's lists, one for the CPU, one for all
other devices (that of CUDA).

Of an op that is on none of them the dtypes promote as they do without autocast.
"""

from __future__ import annotations

LOWER, FLOAT32, PROMOTE, REFUSE = "lower", "float32", "promote", "refuse"
"""In 16 bits; in float32; in the widest dtype of its operands; not at all."""

_PRODUCTS = """matmul mm bmm linear addmm addbmm baddbmm chain_matmul multi_dot vecdot matrix_power prelu
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention
    lstm rnn_tanh rnn_relu"""

_LOSSES = """mse_loss l1_loss smooth_l1_loss huber_loss nll_loss cross_entropy kl_div poisson_nll_loss ctc_loss
    binary_cross_entropy_with_logits hinge_embedding_loss cosine_embedding_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss"""

_LISTS = {
    "cpu": {
        LOWER: _PRODUCTS + " inner tensordot",
        FLOAT32: _LOSSES
        + """ binary_cross_entropy gru prod trace quantile nanquantile cdist grid_sample stft avg_pool3d max_pool3d
        adaptive_avg_pool3d adaptive_max_pool3d max_unpool2d max_unpool3d local_response_norm cond cholesky eigh
        eigvalsh inv lstsq matrix_rank pinv qr solve svd svdvals""",
        PROMOTE: "index_copy",
    },
    "others": {
        LOWER: _PRODUCTS + " mv addmv addr gru lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell inner",
        FLOAT32: _LOSSES
        + """ acos arccos asin arcsin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus
        layer_norm group_norm rms_norm norm vector_norm matrix_norm cosine_similarity dist pdist cdist renorm logsumexp
        normalize prod cumprod cumsum sum softmax log_softmax softmin interpolate upsample""",
        PROMOTE: "addcdiv addcmul atan2 arctan2 bilinear cross dot vdot grid_sample scatter_add tensordot",
        REFUSE: "binary_cross_entropy",
    },
}
# cat, stack, index_put and what is made of them promote their operands without autocast too.

CPU, OTHERS = ({name: policy for policy, names in lists.items() for name in names.split()} for lists in _LISTS.values())
"""By name of the function."""
