"""`norch.distributions`: the distributions that policies and variational models are made of. Loaded when first used.

With PyTorch's names. Parameters broadcast, numbers become tensors of their dtype and device; `sample` has no gradient,
`rsample` passes one on to the parameters.

Arguments that mean the same in every distribution:

    validate_args: whether parameters, and what `log_prob` and `cdf` are asked of, must satisfy their constraints; if
    not, ValueError names the parameter. By default they are looked at on the CPU, and not while `norch.capture`
    records; on other devices that would wait: True looks everywhere, False nowhere. sample_shape: a shape, or a size.
"""

from __future__ import annotations

from ..submodules import late_submodules
from . import constraints, divergences
from .bernoulli import Bernoulli
from .categorical import Categorical
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .kl import kl_divergence, register_kl
from .normal import Normal
from .uniform import Uniform

__getattr__ = late_submodules(__name__)

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "ExponentialFamily",
    "Normal",
    "Uniform",
    "constraints",
    "divergences",
    "kl_divergence",
    "register_kl",
]
