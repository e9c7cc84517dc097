"""dropout: random zeros, which its gradient draws again instead of keeping a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtype import float32
from ...spec import Spec, elementwise_layout
from ..elementwise.arithmetic import ge, where
from ..families import composite, floating
from ..generator import keyed
from ..random import draw_keyed
from ..registry import public

if TYPE_CHECKING:
    from ...tensor import Tensor

    Scalar = float


def _infer_dropout(input: Spec, p: type, seed: type, offset: type) -> Spec:
    floating("dropout", input)
    return input.like(input.shape, elementwise_layout(input.shape, (input,)))


def _dropout_rule(g: Tensor, p: float, seed: int, offset: int) -> Tensor:
    return _dropout(g, p, seed, offset)


@composite(_infer_dropout, _dropout_rule, name="dropout")
def _dropout(input: Tensor, p: Scalar, seed: Scalar, offset: Scalar) -> Tensor:
    # Uniforms in float32 for every dtype, so that a seed drops the same elements in all of them.
    drawn = draw_keyed(input.spec.like(dtype=float32), "uniform", int(seed), int(offset))
    return where(ge(drawn, p), input * (1 / (1 - p) if p < 1 else 0.0), 0.0)


@public(method=False)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, *, train: bool | None = None) -> Tensor:
    """Each element 0 with probability `p`, the others divided by 1 - p (Srivastava et al., 2014).

    Without `training`, or with p 0, the input itself. train: the same, as `torch.dropout` calls it. Draws from the
    default generator. Shape and dtype kept; raises ValueError for a `p` outside [0, 1], DTypeError unless floating.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout(): p must be from 0 to 1, got {p}")
    floating("dropout", input.spec)
    if not (training if train is None else train) or p == 0:
        return input
    operand, seed, offset = keyed(input)
    return _dropout(operand, float(p), seed, offset)
