"""The functions behind the modules, under PyTorch's names: norch's own ops, and those of the files beside this one.

Arguments that mean the same in every function:

    training: whether it computes as in training (drawing, or with the batch's statistics) or as in evaluation.
    running_mean, running_var: the statistics that are gathered in training, (c), and changed in place.

Others are those of the modules: see `norch.nn`.
"""

from __future__ import annotations

from importlib import import_module as _import_module

import norch
from norch import adaptive_avg_pool1d as adaptive_avg_pool1d
from norch import adaptive_avg_pool2d as adaptive_avg_pool2d
from norch import adaptive_avg_pool3d as adaptive_avg_pool3d
from norch import avg_pool1d as avg_pool1d
from norch import avg_pool2d as avg_pool2d
from norch import avg_pool3d as avg_pool3d
from norch import batch_norm as batch_norm
from norch import bilinear as bilinear
from norch import channel_shuffle as channel_shuffle
from norch import conv1d as conv1d
from norch import conv2d as conv2d
from norch import conv3d as conv3d
from norch import conv_transpose1d as conv_transpose1d
from norch import conv_transpose2d as conv_transpose2d
from norch import conv_transpose3d as conv_transpose3d
from norch import cosine_similarity as cosine_similarity
from norch import gelu as gelu
from norch import glu as glu
from norch import group_norm as group_norm
from norch import grouped_mm as grouped_mm
from norch import hardshrink as hardshrink
from norch import layer_norm as layer_norm
from norch import linear as linear
from norch import logsigmoid as logsigmoid
from norch import max_pool1d as max_pool1d
from norch import max_pool2d as max_pool2d
from norch import max_pool3d as max_pool3d
from norch import normalize as normalize
from norch import one_hot as one_hot
from norch import pad as pad
from norch import pairwise_distance as pairwise_distance
from norch import pdist as pdist
from norch import pixel_shuffle as pixel_shuffle
from norch import pixel_unshuffle as pixel_unshuffle
from norch import prelu as prelu
from norch import rms_norm as rms_norm
from norch import scaled_dot_product_attention as scaled_dot_product_attention
from norch import sigmoid as sigmoid
from norch import softplus as softplus
from norch import softsign as softsign
from norch import tanh as tanh

from .activation import celu as celu
from .activation import celu_ as celu_
from .activation import elu as elu
from .activation import elu_ as elu_
from .activation import gumbel_softmax as gumbel_softmax
from .activation import hardsigmoid as hardsigmoid
from .activation import hardswish as hardswish
from .activation import hardtanh as hardtanh
from .activation import hardtanh_ as hardtanh_
from .activation import leaky_relu as leaky_relu
from .activation import leaky_relu_ as leaky_relu_
from .activation import log_softmax as log_softmax
from .activation import mish as mish
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import relu_ as relu_
from .activation import rrelu as rrelu
from .activation import rrelu_ as rrelu_
from .activation import selu as selu
from .activation import selu_ as selu_
from .activation import silu as silu
from .activation import softmax as softmax
from .activation import softmin as softmin
from .activation import softshrink as softshrink
from .activation import tanhshrink as tanhshrink
from .activation import threshold as threshold
from .activation import threshold_ as threshold_
from .attention_parts import _canonical_mask as _canonical_mask
from .attention_parts import _in_projection as _in_projection
from .attention_parts import _in_projection_packed as _in_projection_packed
from .attention_parts import _mha_shape_check as _mha_shape_check
from .attention_parts import _none_or_dtype as _none_or_dtype
from .attention_parts import _verify_batch_size as _verify_batch_size
from .dropout import alpha_dropout as alpha_dropout
from .dropout import dropout as dropout
from .dropout import dropout1d as dropout1d
from .dropout import dropout2d as dropout2d
from .dropout import dropout3d as dropout3d
from .dropout import feature_alpha_dropout as feature_alpha_dropout
from .embedding import embedding as embedding
from .embedding import embedding_bag as embedding_bag
from .folding import fold as fold
from .folding import unfold as unfold
from .fractional_pooling import fractional_max_pool2d as fractional_max_pool2d
from .fractional_pooling import fractional_max_pool2d_with_indices as fractional_max_pool2d_with_indices
from .fractional_pooling import fractional_max_pool3d as fractional_max_pool3d
from .fractional_pooling import fractional_max_pool3d_with_indices as fractional_max_pool3d_with_indices
from .interpolation import interpolate as interpolate
from .interpolation import upsample as upsample
from .interpolation import upsample_bilinear as upsample_bilinear
from .interpolation import upsample_nearest as upsample_nearest
from .linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .loss import cross_entropy as cross_entropy
from .loss import ctc_loss as ctc_loss
from .loss import gaussian_nll_loss as gaussian_nll_loss
from .loss import huber_loss as huber_loss
from .loss import kl_div as kl_div
from .loss import l1_loss as l1_loss
from .loss import mse_loss as mse_loss
from .loss import nll_loss as nll_loss
from .loss import poisson_nll_loss as poisson_nll_loss
from .loss import smooth_l1_loss as smooth_l1_loss
from .margin_loss import cosine_embedding_loss as cosine_embedding_loss
from .margin_loss import hinge_embedding_loss as hinge_embedding_loss
from .margin_loss import margin_ranking_loss as margin_ranking_loss
from .margin_loss import multi_margin_loss as multi_margin_loss
from .margin_loss import multilabel_margin_loss as multilabel_margin_loss
from .margin_loss import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from .margin_loss import soft_margin_loss as soft_margin_loss
from .margin_loss import triplet_margin_loss as triplet_margin_loss
from .margin_loss import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from .multi_head_attention import multi_head_attention_forward as multi_head_attention_forward
from .normalization import instance_norm as instance_norm
from .normalization import local_response_norm as local_response_norm
from .pooling import adaptive_max_pool1d as adaptive_max_pool1d
from .pooling import adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices
from .pooling import adaptive_max_pool2d as adaptive_max_pool2d
from .pooling import adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices
from .pooling import adaptive_max_pool3d as adaptive_max_pool3d
from .pooling import adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices
from .pooling import lp_pool1d as lp_pool1d
from .pooling import lp_pool2d as lp_pool2d
from .pooling import lp_pool3d as lp_pool3d
from .pooling import max_pool1d_with_indices as max_pool1d_with_indices
from .pooling import max_pool2d_with_indices as max_pool2d_with_indices
from .pooling import max_pool3d_with_indices as max_pool3d_with_indices
from .pooling import max_unpool1d as max_unpool1d
from .pooling import max_unpool2d as max_unpool2d
from .pooling import max_unpool3d as max_unpool3d
from .sampling import affine_grid as affine_grid
from .sampling import grid_sample as grid_sample

norch.check_functions(globals(), "norch.nn.functional")

_late = norch.late_submodules(__name__)


def __getattr__(name: str) -> object:
    """What copies of PyTorch's functions ask before they compute, by which losses know reductions, and what PyTorch has
    here too."""
    if name in ("_Reduction", "grad"):
        return _import_module("norch.nn._reduction" if name == "_Reduction" else "norch.nn.grad")
    if name == "conv_tbc":
        return norch.conv_tbc
    return getattr(norch.overrides, name) if name in ("handle_torch_function", "has_torch_function") else _late(name)
