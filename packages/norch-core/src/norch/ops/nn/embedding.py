"""embedding: rows of a table by index, and their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.plan import Inferred
from ...dtype import int64
from ...errors import DTypeError, IndexError, ShapeError
from ...spec import Spec
from ..checks import require_integers
from ..creation import fill_spec
from ..elementwise.arithmetic import eq, lt, where
from ..families import composite, floating
from ..indexing import INDEX, gather, scatter_add, scatter_into
from ..registry import public
from ..shape.joining import cat

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
    if not rows or not input.spec.numel:
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


def _infer_sum(input: Spec, weight: Spec, offsets: Spec | None, padding_idx: int | None) -> Inferred:
    floating("embedding_sum", weight)
    rows = _infer_embedding(input, weight, padding_idx)
    attrs = {"padding_idx": padding_idx, "given": (True, True, offsets is not None)}
    if offsets is None:
        if not input.ndim:
            raise ShapeError("embedding_sum(): input must have at least 1 dim, whose rows are added up; it is 0-d")
        shape = (*input.shape[:-1], rows.shape[-1])
        return Inferred((rows.like(shape),), (input, weight), attrs)
    require_integers("embedding_sum", "offsets", offsets)
    if input.ndim != 1 or offsets.ndim != 1 or not offsets.shape[0]:
        raise ShapeError(
            f"embedding_sum(): input and offsets must have 1 dim, and there be an offset; got {tuple(input.shape)} "
            f"and {tuple(offsets.shape)}"
        )
    out = rows.like((offsets.shape[0] - 1, rows.shape[-1]))
    return Inferred((out,), (input, weight, (int64, offsets.shape)), attrs)


def _bag_of_each(count: int, offsets: Tensor) -> Tensor:
    """Which bag each of `count` indices is in, counted from the end where it is before the first."""
    begun = scatter_add(offsets.new_zeros((count + 1,)), 0, offsets, offsets.new_ones(tuple(offsets.spec.shape)))
    return begun.cumsum(0).narrow(0, 0, count) - 1


def _of_each(g: Tensor, input: Tensor, offsets: Tensor | None) -> Tensor:
    """The gradient of the sum that each index counts in: (*input.shape, features)."""
    features = g.spec.shape[-1]
    if offsets is None:
        return g.unsqueeze(-2).expand((*input.spec.shape, features))
    # What is in no bag gets the row of zeros behind them all.
    bags = cat([g, g.new_zeros((1, features))])
    each: Tensor = INDEX.call(bags, _bag_of_each(input.spec.numel, offsets.to(int64)), 0)
    return each


def _sum_vjp(g: Tensor, input: Tensor, weight_spec: Spec, offsets: Tensor | None, padding_idx: int | None) -> Tensor:
    return _embedding_grad(_of_each(g, input, offsets), input, weight_spec.shape[0], padding_idx)


def _add_bags(rows: Tensor, offsets: Tensor | None) -> Tensor:
    if offsets is None:
        return rows.sum(-2)
    count, features = rows.spec.shape
    bags = offsets.spec.shape[0] - 1
    places = _bag_of_each(count, offsets.to(int64))
    return rows.new_zeros((bags + 1, features)).index_add(0, places, rows).narrow(0, 0, bags)


@composite(_infer_sum, {"weight": _sum_vjp}, name="embedding_sum")
def _embedding_sum(input: Tensor, weight: Tensor, offsets: Tensor | None, padding_idx: int | None) -> Tensor:
    return _add_bags(_mask_padding(_embedding(input, weight, None), input, padding_idx), offsets)


def _infer_weighted(
    input: Spec, weight: Spec, factors: Spec, offsets: Spec | None, padding_idx: int | None
) -> Inferred:
    found = _infer_sum(input, weight, offsets, padding_idx)
    if factors.shape != input.shape:
        raise ShapeError(
            f"embedding_sum(): per_sample_weights of shape {tuple(factors.shape)} are not of input's, "
            f"{tuple(input.shape)}"
        )
    if factors.dtype is not weight.dtype:
        raise DTypeError(f"embedding_sum(): per_sample_weights are {factors.dtype}, weight {weight.dtype}")
    attrs = {**found.attrs, "given": (True, True, True, offsets is not None)}
    return Inferred(found.outputs, (*found.operands[:2], factors, *found.operands[2:]), attrs)


def _weighted_vjp(
    g: Tensor,
    input: Tensor,
    weight_spec: Spec,
    factors: Tensor,
    offsets: Tensor | None,
    padding_idx: int | None,
) -> Tensor:
    each = _of_each(g, input, offsets) * factors.unsqueeze(-1)
    return _embedding_grad(each, input, weight_spec.shape[0], padding_idx)


def _factors_vjp(
    g: Tensor,
    input: Tensor,
    weight: Tensor,
    factors_spec: Spec,
    offsets: Tensor | None,
    padding_idx: int | None,
) -> Tensor:
    rows = _mask_padding(_embedding(input, weight, None), input, padding_idx)
    return (_of_each(g, input, offsets) * rows).sum(-1)


@composite(_infer_weighted, {"weight": _weighted_vjp, "factors": _factors_vjp}, name="embedding_weighted_sum")
def _weighted_sum(
    input: Tensor, weight: Tensor, factors: Tensor, offsets: Tensor | None, padding_idx: int | None
) -> Tensor:
    rows = _embedding(input, weight, None) * factors.unsqueeze(-1)
    return _add_bags(_mask_padding(rows, input, padding_idx), offsets)


@public(method=False)
def embedding_sum(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    *,
    offsets: Tensor | None = None,
    per_sample_weights: Tensor | None = None,
) -> Tensor:
    """The sums of the rows of `weight` that the last dim of `input` names: (*shape, n), (rows, features) -> (*shape,
    features).

    padding_idx: a row (from the end if negative) that does not count. offsets: of (n) input, where each sum begins, in
    order, and where the last one ends: (sums + 1). per_sample_weights: a factor for each index, of input's shape and
    weight's dtype. Raises as `embedding` does, IndexError for an offset that is no place of input, ShapeError for other
    dims, DTypeError for a weight that is not floating.
    """
    padding_idx = _row(padding_idx, weight)
    try:
        if per_sample_weights is not None:
            return _weighted_sum(input, weight, per_sample_weights, offsets, padding_idx)
        return _embedding_sum(input, weight, offsets, padding_idx)
    except IndexError as error:
        raise _index_error(input.detach(), weight) or error from None
