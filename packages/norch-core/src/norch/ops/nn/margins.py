"""Losses of rows of scores by how far the target's is above the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.arguments import check_functions
from ...errors import IndexError, ShapeError
from ...spec import Spec
from ..checks import require_integers
from ..creation import arange
from ..elementwise.arithmetic import eq, gt, lt, where
from ..families import composite, floating
from ..indexing import gather
from .activation import relu

if TYPE_CHECKING:
    from ...tensor import Tensor


def multi_margin_rows(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0) -> Tensor:
    """The mean over the classes i of max(0, margin - input[target] + input[i]) ** p, without i = target, of each row.

    input: (n, classes); target: class indices, (n). The result has the shape (n) and the dtype of input. Raises
    ShapeError for other shapes, DTypeError for an input that is not floating or a target without integers, IndexError
    for a target outside [0, classes), ValueError unless p is 1 or 2.
    """
    if p not in (1, 2):
        raise ValueError(f"multi_margin_rows(): p must be 1 or 2, got {p}")
    try:
        return _rows(input, target, int(p), float(margin))
    except IndexError:
        raise IndexError(f"multi_margin_rows(): a target is outside [0, {input.spec.shape[1]})") from None


def _infer(input: Spec, target: Spec, p: int, margin: float) -> Spec:
    floating("multi_margin_rows", input)
    require_integers("multi_margin_rows", "target", target)
    if input.ndim != 2 or tuple(target.shape) != tuple(input.shape[:1]):
        shapes = f"target {tuple(target.shape)} does not fit input {tuple(input.shape)}"
        raise ShapeError(f"multi_margin_rows(): {shapes}: expected (n) for (n, classes)")
    return input.like(target.shape)


def _excess(input: Tensor, target: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """By how much scores come too near that of the target, 0 at that itself; and which that is."""
    classes = input.spec.shape[1]
    index = target.long().unsqueeze(1)
    # gather counts negative indices from the end; here they are errors, as in PyTorch.
    wanted = gather(input, 1, where(lt(index, 0), classes, index))
    is_target = eq(arange(classes, device=input.device), index)
    return where(is_target, 0.0, relu(margin - wanted + input)), is_target


@composite(lambda grad, input, target, p, margin: input.like())
def multi_margin_rows_grad(grad: Tensor, input: Tensor, target: Tensor, p: int, margin: float) -> Tensor:
    excess, is_target = _excess(input, target, margin)
    steps = gt(excess, 0).to(input.dtype) if p == 1 else excess * 2
    steps = steps * (grad / max(input.spec.shape[1], 1)).unsqueeze(1)
    return steps - where(is_target, steps.sum(1, True), 0.0)


def _rule(g: Tensor, input: Tensor, target: Tensor, p: int, margin: float) -> Tensor:
    return multi_margin_rows_grad(g, input, target, p, margin)


@composite(_infer, {"input": _rule}, name="multi_margin_rows")
def _rows(input: Tensor, target: Tensor, p: int, margin: float) -> Tensor:
    excess, _ = _excess(input, target, margin)
    return (excess if p == 1 else excess * excess).sum(1) / input.spec.shape[1]


check_functions(globals())
