"""scaled_dot_product_attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...autograd.graph import is_recording
from ...dtype import bool_
from ...errors import DTypeError, ShapeError, drawn
from ...spec import Spec, broadcast_shapes, contiguous_strides, packed_strides
from ..creation import arange
from ..elementwise.arithmetic import eq, exp, le, where
from ..families import composite, floating
from ..reduction.reductions import amax, logsumexp
from ..registry import public
from ..shape.joining import repeat_interleave
from ..upcast import upcast, upcast_dtype
from .dropout import dropout
from .softmax import softmax

if TYPE_CHECKING:
    from ...tensor import Tensor

_OP = "scaled_dot_product_attention"
_SUMS = "scaled_dot_product_attention_sums"


def _scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """The masked scores: -inf where a query may not attend."""
    scores = (query * scale) @ key.mT
    if is_causal:
        rows, columns = scores.spec.shape[-2:]
        return where(_until(rows, columns, query.device), scores, -math.inf)
    if attn_mask is None:
        return scores
    return where(attn_mask, scores, -math.inf) if attn_mask.spec.dtype is bool_ else scores + attn_mask


def _until(rows: int, columns: int, device: Any) -> Tensor:
    """A mask, True in row i for columns 0 to i."""
    return le(arange(columns, device=device), arange(rows, device=device).unsqueeze(1))


def _weights(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """The attention weights: rows that sum to 1, or to 0 for a query whose keys are all masked."""
    scores = _scores(query, key, attn_mask, is_causal, scale)
    if attn_mask is None or not scores.spec.numel:
        return softmax(scores, -1)
    all_masked = eq(amax(scores.detach(), -1, True), -math.inf)
    return where(all_masked, 0.0, softmax(where(all_masked, 0.0, scores), -1))


def _infer_attention(
    query: Spec, key: Spec, value: Spec, attn_mask: Spec | None, is_causal: bool, scale: float
) -> Spec:
    floating(_OP, query, key, value)
    shapes = " and ".join(str(tuple(s.shape)) for s in (query, key, value))
    if query.dtype is not key.dtype or query.dtype is not value.dtype:
        raise DTypeError(f"{_OP}(): query, key and value of dtypes {query.dtype}, {key.dtype} and {value.dtype}")
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"{_OP}(): query, key and value need at least 2 dims, got shapes {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        rows = (("query", query, -1), ("key", key, -1))
        if query.shape[-1] == key.shape[-1]:
            rows = (("key", key, -2), ("value", value, -2))
        raise ShapeError(
            f"{_OP}(): shapes {shapes} do not fit: expected (..., l, e) and (..., s, e) and (..., s, v)"
            + drawn(*[(name, spec.shape, (dim,)) for name, spec, dim in rows])
        )
    batch = broadcast_shapes(query.shape[:-2], key.shape[:-2], op=_OP)
    if attn_mask is not None:
        if attn_mask.dtype is not bool_ and attn_mask.dtype is not query.dtype:
            raise DTypeError(f"{_OP}(): attn_mask must be bool or {query.dtype}, got {attn_mask.dtype}")
        full = (*batch, query.shape[-2], key.shape[-2])
        if broadcast_shapes(full, attn_mask.shape, op=_OP) != full:
            raise ShapeError(f"{_OP}(): attn_mask {tuple(attn_mask.shape)} does not broadcast to {full}")
    batch = broadcast_shapes(batch, value.shape[:-2], op=_OP)
    return _laid_out_like(query, (*batch, query.shape[-2], value.shape[-1]))


def _laid_out_like(spec: Spec, shape: tuple[int, ...]) -> Spec:
    """A result whose dims lie as those of `spec`: heads that were split off the last dim are joined without a copy."""
    if len(shape) != spec.ndim or 0 in spec.strides or 0 in shape:
        return spec.like(shape)
    return Spec(shape, packed_strides(shape, spec.strides), spec.dtype, spec.device)


def _infer_attention_grad(grad: Spec, query: Spec, key: Spec, value: Spec, *more: Any) -> tuple[Spec, ...]:
    batch = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2], op=_OP)
    return tuple(_laid_out_like(s, (*batch, *s.shape[-2:])) for s in (query, key, value))


@composite(_infer_attention_grad, name=f"{_OP}_grad")
def _attention_grad(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    return _gradients(grad, query, key, value, attn_mask, is_causal, scale, (True, True, True, False))[:3]


def _infer_attention_mask_grad(grad: Spec, query: Spec, key: Spec, value: Spec, *more: Any) -> tuple[Spec, ...]:
    found = _infer_attention_grad(grad, query, key, value)
    return (*found, query.like((*found[0].shape[:-1], key.shape[-2])))


@composite(_infer_attention_mask_grad, name=f"{_OP}_mask_grad")
def _attention_mask_grad(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value and of the mask that was added to the scores, in the shape of these."""
    return _gradients(grad, query, key, value, attn_mask, is_causal, scale, (True,) * 4)


def _attention_rule(
    g: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
    needs: tuple[bool, ...],
) -> tuple[Any, ...]:
    if (needs[0] or needs[1]) and not needs[3]:
        return (*_attention_grad(g, query, key, value, attn_mask, is_causal, scale), None)
    if attn_mask is not None and all(needs):
        return _attention_mask_grad(g, query, key, value, attn_mask, is_causal, scale)
    return _gradients(g, query, key, value, attn_mask, is_causal, scale, needs)


def _gradients(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float, needs: Any
) -> tuple[Any, ...]:
    # The weights are computed again, so that memory for them is needed only here. Their gradient is a small difference
    # of large numbers, for which 16 bits are not enough.
    dtype = query.dtype
    g, query, key, value = (upcast(x) for x in (g, query, key, value))
    mask = mask if mask is None or mask.dtype is bool_ else upcast(mask)
    weights = _weights(query, key, mask, is_causal, scale)
    grad_value = weights.mT @ g if needs[2] else None
    if not (needs[0] or needs[1] or needs[3]):
        return None, None, None if grad_value is None else grad_value.to(dtype), None
    grad_weights = g @ value.mT
    grad_scores = (grad_weights - (grad_weights * weights).sum(-1, True)) * weights
    grad_query = (grad_scores @ key) * scale if needs[0] else None
    grad_key = grad_scores.mT @ (query * scale) if needs[1] else None
    found = grad_query, grad_key, grad_value, grad_scores if needs[3] else None
    return tuple([x if x is None else x.to(dtype) for x in found])


@composite(_infer_attention, _attention_rule, name=_OP, joint=True)
def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    q, k, v = (upcast(x) for x in (query, key, value))
    mask = attn_mask if attn_mask is None or attn_mask.dtype is bool_ else upcast(attn_mask)
    return (_weights(q, k, mask, is_causal, scale) @ v).to(query.dtype)


# --- With what the gradient needs, where a backend has kernels for that ----------------------------------------------


def _keeps_sums(*operands: Tensor) -> bool:
    """Whether a gradient may be asked for that a backend computes from the sums of the forward pass."""
    is_native = _SUMS in operands[0].spec.device.backend.kept
    return is_native and is_recording() and any(x.requires_grad for x in operands)


def _infer_attention_sums(
    query: Spec, key: Spec, value: Spec, attn_mask: Spec | None, is_causal: bool, scale: float
) -> tuple[Spec, Spec]:
    out = _infer_attention(query, key, value, attn_mask, is_causal, scale)
    return out, Spec(out.shape[:-1], contiguous_strides(out.shape[:-1]), upcast_dtype(query.dtype), query.device)


def _infer_attention_sums_grad(grad: Spec, query: Spec, key: Spec, value: Spec, *more: Any) -> tuple[Spec, ...]:
    return _infer_attention_grad(grad, query, key, value)


@composite(_infer_attention_sums_grad, name=f"{_SUMS}_grad")
def _attention_sums_grad(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value from the two results of `_attention_sums`."""
    return _gradients(grad, query, key, value, attn_mask, is_causal, scale, (True, True, True, False))[:3]


def _attention_sums_rule(
    g: tuple[Tensor | None, Tensor | None],
    y: tuple[Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
    needs: tuple[bool, ...],
) -> tuple[Any, ...]:
    grad = g[0]
    assert grad is not None  # the sums are not handed out
    if (needs[0] or needs[1]) and not needs[3]:
        return (*_attention_sums_grad(grad, query, key, value, *y, attn_mask, is_causal, scale), None)
    return _gradients(grad, query, key, value, attn_mask, is_causal, scale, needs)


@composite(_infer_attention_sums, _attention_sums_rule, name=_SUMS, joint=True)
def _attention_sums(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The result, and for each query log(sum(exp(scores)))."""
    mask = attn_mask if attn_mask is None or attn_mask.dtype is bool_ else upcast(attn_mask)
    scores = _scores(upcast(query), upcast(key), mask, is_causal, scale)
    sums = logsumexp(scores, -1)
    weights = exp(scores - sums.unsqueeze(-1))
    if attn_mask is not None:
        weights = where(eq(sums.detach(), -math.inf).unsqueeze(-1), 0.0, weights)
    return (weights @ upcast(value)).to(query.dtype), sums


@public(method=False)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.mT * scale + mask) @ value (Vaswani et al., 2017): from (…, l, e), (…, s, e) and (…, s, v),
    in that order, to (…, l, v).

    attn_mask: bool, True where a query may attend, or floating, added to the scores; it broadcasts to (…, l, s). A
    query whose keys are all masked gets 0. is_causal: query i attends to keys 0 to i, of those that a mask allows.
    scale: 1 / sqrt(e) by default. dropout_p: of the weights. enable_gqa: grouped-query attention, in which each key and
    value head serves several query heads (Ainslie et al., 2023). Batch dims broadcast.
    Raises ShapeError for shapes that do not fit; DTypeError unless all have one floating dtype.
    """
    if attn_mask is not None and is_causal and min(query.spec.ndim, key.spec.ndim) > 1:
        before = _until(query.spec.shape[-2], key.spec.shape[-2], attn_mask.device)
        attn_mask = before & attn_mask if attn_mask.spec.dtype is bool_ else where(before, attn_mask, -math.inf)
        is_causal = False
    if scale is None:
        scale = 1 / math.sqrt(query.spec.shape[-1]) if query.spec.ndim and query.spec.shape[-1] else 1.0
    if enable_gqa:
        heads = query
        query, key, value, attn_mask = _grouped(query, key, value, attn_mask)
        if query is not heads:
            found = scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
            return found.flatten(-4, -3)
    if not dropout_p:
        if (attn_mask is None or not attn_mask.requires_grad) and _keeps_sums(query, key, value):
            return _attention_sums(query, key, value, attn_mask, bool(is_causal), float(scale))[0]
        return _attention(query, key, value, attn_mask, bool(is_causal), float(scale))
    _infer_attention(query.spec, key.spec, value.spec, None if attn_mask is None else attn_mask.spec, is_causal, scale)
    return dropout(_weights(query, key, attn_mask, is_causal, scale), dropout_p) @ value


def _grouped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Any]:
    """The heads as two dims, (heads of the keys, those that share one): keys and values broadcast along the second.
    All as they are where no head is shared."""
    a, groups = query.spec.shape, []
    for b in (key.spec.shape, value.spec.shape):
        if len(a) < 3 or len(b) < 3 or not b[-3] or a[-3] % b[-3]:
            given = f"{tuple(a)} are no multiple of those of key or value {tuple(b)}"
            raise ShapeError(f"{_OP}(): the heads of query {given}")
        groups.append(b[-3])
    heads = math.lcm(*groups)
    if groups[0] != groups[1]:
        key, value = (repeat_interleave(x, heads // n, -3) for x, n in zip((key, value), groups, strict=True))
    if heads == a[-3]:
        return query, key, value, mask

    def split(x: Tensor) -> Tensor:
        size = x.spec.shape[-3]
        return x.unflatten(-3, (heads, size // heads)) if size % heads == 0 else x.unsqueeze(-3)

    return split(query), split(key), split(value), split(mask) if mask is not None and mask.spec.ndim > 2 else mask
