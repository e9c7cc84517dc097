"""Draws by parameters that are tensors, under PyTorch's names: those of `norch.distributions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import check_functions, describe
from ..errors import DTypeError

if TYPE_CHECKING:
    from ..tensor import Tensor


def _check(op: str, generator: Any, *parameters: Tensor) -> None:
    if generator is not None:
        raise NotImplementedError(f"{op}(): draws come from the default generator, which manual_seed() seeds")
    for value in parameters:
        if not value.is_floating_point():
            raise DTypeError(f"{op}(): expected a floating dtype, got {describe(value)}")


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Draws of the Poisson distributions with the rates `input`, in its shape and floating dtype.

    Raises DTypeError for another dtype, NotImplementedError for a `generator`.
    """
    from ..distributions.draws import poisson

    _check("poisson", generator, input)
    return poisson(input.detach()).to(input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Draws of how many of `count` trials succeed with probability `prob`: floating tensors that broadcast.

    Raises DTypeError for another dtype, NotImplementedError for a `generator`.
    """
    from ..distributions.draws import binomial
    from ..ops import broadcast_tensors

    _check("binomial", generator, count, prob)
    count, prob = broadcast_tensors(count.detach(), prob.detach())
    return binomial(count, prob).to(prob.dtype)


def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Draws of the gamma distributions of rate 1 with the concentrations `input`, in its shape and floating dtype,
    differentiable once, as those of `norch.distributions.Gamma`; no smaller than the least normal number.

    Raises DTypeError for another dtype, NotImplementedError for a `generator`.
    """
    from ..distributions.gamma import Gamma

    _check("_standard_gamma", generator, input)
    return Gamma(input, input.new_ones(()), validate_args=False).rsample()


check_functions(globals())
