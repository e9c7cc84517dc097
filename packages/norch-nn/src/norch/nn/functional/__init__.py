"""The functions behind the modules, under PyTorch's names: norch's own ops, and those of the files beside this one."""

from __future__ import annotations

import norch
from norch import adaptive_avg_pool1d as adaptive_avg_pool1d
from norch import adaptive_avg_pool2d as adaptive_avg_pool2d
from norch import avg_pool1d as avg_pool1d
from norch import avg_pool2d as avg_pool2d
from norch import batch_norm as batch_norm
from norch import celu as celu
from norch import conv1d as conv1d
from norch import conv2d as conv2d
from norch import conv_transpose1d as conv_transpose1d
from norch import conv_transpose2d as conv_transpose2d
from norch import cosine_similarity as cosine_similarity
from norch import dropout as dropout
from norch import elu as elu
from norch import embedding as embedding
from norch import gelu as gelu
from norch import glu as glu
from norch import group_norm as group_norm
from norch import hardsigmoid as hardsigmoid
from norch import hardswish as hardswish
from norch import hardtanh as hardtanh
from norch import layer_norm as layer_norm
from norch import leaky_relu as leaky_relu
from norch import linear as linear
from norch import log_softmax as log_softmax
from norch import logsigmoid as logsigmoid
from norch import max_pool1d as max_pool1d
from norch import max_pool2d as max_pool2d
from norch import mish as mish
from norch import normalize as normalize
from norch import one_hot as one_hot
from norch import pad as pad
from norch import relu6 as relu6
from norch import rms_norm as rms_norm
from norch import scaled_dot_product_attention as scaled_dot_product_attention
from norch import selu as selu
from norch import sigmoid as sigmoid
from norch import silu as silu
from norch import softmax as softmax
from norch import softmin as softmin
from norch import softplus as softplus
from norch import softsign as softsign
from norch import tanh as tanh

from .ctc import ctc_loss as ctc_loss
from .distance import pairwise_distance as pairwise_distance
from .loss import binary_cross_entropy as binary_cross_entropy
from .loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from .loss import cross_entropy as cross_entropy
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


def relu(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """max(input, 0), elementwise; into the memory of `input` if `inplace`."""
    return input.relu_() if inplace else norch.relu(input)
