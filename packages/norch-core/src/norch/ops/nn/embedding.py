"""embedding: rows of a table by index, and their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtype import int64
from ...errors import IndexError, ShapeError
from ...spec import Spec
from ..checks import require_integers
from ..creation import fill_spec
from ..elementwise.arithmetic import eq, lt, where
from ..families import composite, floating
from ..indexing import gather, scatter_into
from ..registry import public

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_embedding(input: Spec, weight: Spec, padding_idx: int | None) -> Spec:
    require_integers("embedding", "input", input)
    if weight.ndim != 2:
        raise ShapeError(f"embedding(): weight must be (rows, features), got shape {tuple(weight.shape)}")
    if input.numel and not weight.shape[0]:
        raise IndexError(f"embedding(): weight {tuple(weight.shape)} has no rows")
    return weight.like((*input.shape, weight.shape[1]))


def _infer_grad(grad: Spec, input: Spec, rows: int, padding_idx: int | None) -> Spec:
    return grad.like((rows, grad.shape[-1]))


def _expand_index(index: Tensor, features: int) -> Tensor:
    return index.reshape(index.spec.numel, 1).expand(index.spec.numel, features)


def _mask_padding(value: Tensor, input: Tensor, padding_idx: int | None) -> Tensor:
    return value if padding_idx is None else where(eq(input, padding_idx).unsqueeze(-1), 0.0, value)


def _grad_rule(g: Tensor, input: Tensor, padding_idx: int | None) -> Tensor:
    return _mask_padding(_embedding(input, g, None), input, padding_idx)


@composite(
    _infer_grad,
    {"grad": _grad_rule},
    name="embedding_grad",
)
def _embedding_grad(grad: Tensor, input: Tensor, rows: int, padding_idx: int | None) -> Tensor:
    """The sum of grad's rows for each row of the table: the gradient of `weight`."""
    features = grad.spec.shape[-1]
    out = fill_spec(grad.spec.like((rows, features)), 0)
    if grad.spec.numel:
        source = _mask_padding(grad, input, padding_idx).reshape(input.spec.numel, features)
        scatter_into(out, 0, _expand_index(input, features), source, add=True)
    return out


@composite(
    _infer_embedding,
    {"weight": lambda g, input, weight_spec, padding_idx: _embedding_grad(g, input, weight_spec.shape[0], padding_idx)},
    name="embedding",
)
def _embedding(input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    rows, features = weight.spec.shape
    shape = (*input.spec.shape, features)
    if not input.spec.numel or not features:
        return fill_spec(weight.spec.like(shape), 0)
    # gather counts negative indices from the end; here they are errors, as in PyTorch.
    index = where(lt(input, 0), rows, input.to(int64)) if input.spec.dtype.is_signed else input
    return gather(weight, 0, _expand_index(index, features)).reshape(shape)


def _index_error(input: Tensor, weight: Tensor) -> IndexError | None:
    """The error for an index that is no row; None where all are."""
    rows = weight.spec.shape[0]
    if not rows:
        return None
    low, high = int(input.min().item()), int(input.max().item())
    if low >= 0 and high < rows:
        return None
    return IndexError(
        f"embedding(): index {low if low < 0 else high} of input {tuple(input.spec.shape)} is outside [0, {rows}), the "
        f"rows of weight {tuple(weight.spec.shape)}"
    )


def _row(padding_idx: int | None, weight: Tensor) -> int | None:
    if padding_idx is None or weight.spec.ndim != 2:
        return padding_idx
    rows = weight.spec.shape[0]
    if not -rows <= padding_idx < rows:
        raise IndexError(f"embedding(): padding_idx {padding_idx} is no row of weight {tuple(weight.spec.shape)}")
    return padding_idx % rows


@public(method=False)
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight` that the integers `input` name: (*shape), (rows, features) -> (*shape, features).

    padding_idx: a row (from the end if negative) that gets no gradient. Raises IndexError for an index or a
    `padding_idx` that is no row, DTypeError for input that holds no integers, ShapeError unless weight is 2-D.
    """
    padding_idx = _row(padding_idx, weight)
    try:
        return _embedding(input, weight, padding_idx)
    except IndexError as error:
        # Kernels and the decomposition name different things; the user sees one message.
        raise _index_error(input.detach(), weight) or error from None


def _infer_sum(input: Spec, weight: Spec, padding_idx: int | None) -> Spec:
    if not input.ndim:
        raise ShapeError("embedding_sum(): input must have at least 1 dim, whose rows are added up; it is 0-d")
    floating("embedding_sum", weight)
    rows = _infer_embedding(input, weight, padding_idx)
    return rows.like((*input.shape[:-1], rows.shape[-1]))


def _sum_vjp(g: Tensor, input: Tensor, weight_spec: Spec, padding_idx: int | None) -> Tensor:
    rows = g.unsqueeze(-2).expand((*input.spec.shape, weight_spec.shape[1]))
    return _embedding_grad(rows, input, weight_spec.shape[0], padding_idx)


@composite(_infer_sum, {"weight": _sum_vjp}, name="embedding_sum")
def _embedding_sum(input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    return _mask_padding(_embedding(input, weight, None), input, padding_idx).sum(-2)


@public(method=False)
def embedding_sum(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The sums of the rows of `weight` that the last dim of `input` names: (*shape, n), (rows, features) -> (*shape,
    features).

    padding_idx: a row (from the end if negative) that does not count. Raises as `embedding` does, ShapeError for 0-d
    input, DTypeError for a weight that is not floating.
    """
    padding_idx = _row(padding_idx, weight)
    try:
        return _embedding_sum(input, weight, padding_idx)
    except IndexError as error:
        raise _index_error(input.detach(), weight) or error from None
