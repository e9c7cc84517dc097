"""Blocks that vision models are made of, under torchvision's names."""

import norch

from .misc import MLP as MLP
from .misc import Conv2dNormActivation as Conv2dNormActivation
from .misc import FrozenBatchNorm2d as FrozenBatchNorm2d
from .misc import Permute as Permute
from .misc import SqueezeExcitation as SqueezeExcitation
from .stochastic_depth import StochasticDepth as StochasticDepth
from .stochastic_depth import stochastic_depth as stochastic_depth

__getattr__ = norch.late_submodules(__name__)
