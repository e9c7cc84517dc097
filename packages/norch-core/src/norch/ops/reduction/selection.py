"""One element of each line along a dim, and its index: that of a rank, a median, or the most frequent one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dispatch.plan import Inferred
from ...dtype import int64
from ...spec import Spec
from ..creation import arange, fill_spec
from ..elementwise.arithmetic import where
from ..families import composite
from ..indexing import gather
from ..shape.joining import cat
from ..shape.views import broadcast_to, narrow, reshape, squeeze, unsqueeze
from .reductions import ValuesIndices, argmax, count_nonzero
from .scan import cummax
from .sorting import lines, sort, sort_vjp, topk

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer(input: Spec, dim: int, kind: str, k: int, keepdim: bool) -> Inferred:
    kept = input.like((*input.shape[:dim], 1, *input.shape[dim + 1 :]))
    seen = (kept, kept.like(dtype=int64))
    out = kept if keepdim else input.like((*input.shape[:dim], *input.shape[dim + 1 :]))
    return Inferred((out, out.like(dtype=int64)), (input,), {"dim": dim, "kind": kind, "k": k}, seen)


def _vjp(g: Any, y1: Tensor, input_spec: Spec, dim: int, keepdim: bool) -> Tensor:
    return sort_vjp(g if keepdim else (unsqueeze(g[0], dim),), y1 if keepdim else unsqueeze(y1, dim), input_spec, dim)


@composite(_infer, {"input": _vjp}, name="select_along")
def select_along(input: Tensor, dim: int, kind: str, k: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Along `dim`, which keeps size 1 with `keepdim`: the element of rank `k` ("kth"), the lower median, NaN where
    there is one ("median") or without NaN ("nanmedian"), or the last of the most frequent ("mode")."""
    values, indices = _kept(input, dim, kind, k)
    return (values, indices) if keepdim else (squeeze(values, dim), squeeze(indices, dim))


def _kept(input: Tensor, dim: int, kind: str, k: int) -> tuple[Tensor, Tensor]:
    if kind == "kth":
        values, indices = topk(input, k + 1, dim, False)
        return narrow(values, dim, k, 1), narrow(indices, dim, k, 1)
    values, indices = sort(input, dim)
    found, size = values.detach(), values.spec.shape[dim]
    if kind == "mode":
        rank = _end_of_longest_run(found, dim)
    else:
        missing = count_nonzero(found != found, dim).unsqueeze(dim)
        if kind == "nanmedian":
            rank = (size - 1 - missing).clamp(min=0) // 2
        else:  # NaN comes last; where there is one, the first of them is the median
            rank = where(missing == 0, (size - 1) // 2, size - missing)
    return gather(values, dim, rank), gather(indices, dim, rank)


def _end_of_longest_run(found: Tensor, dim: int) -> Tensor:
    size, shape = found.spec.shape[dim], tuple(found.spec.shape)
    count = reshape(arange(size, device=found.device), [-1 if d == dim else 1 for d in range(len(shape))])
    place = broadcast_to(count, shape)
    starts = narrow(found, dim, 1, size - 1) != narrow(found, dim, 0, size - 1)
    first = cat([fill_spec(starts.spec.like((*shape[:dim], 1, *shape[dim + 1 :])), True), starts], dim)
    run = place - cummax(where(first, place, 0), dim)[0]
    return argmax(run, dim, True)


def selected(input: Tensor, dim: Any, kind: str, keepdim: bool, op: str, k: int = 0) -> ValuesIndices:
    """The public form of `select_along`, for a tensor of any dims. Raises IndexError for a dim that has no elements."""
    at, x = lines(input, dim, op)
    return ValuesIndices(*select_along(x, at, kind, k, keepdim and input.spec.ndim > 0))
