"""Attention with several heads, and the products before and after it."""

from __future__ import annotations

import math
from typing import Any

import norch
from norch.autograd import Function

Tensor = norch.Tensor
_OP = "multi_head_attention_forward"


class _Parts(Function):
    """Views of parts along a dim, whose gradients are joined in one pass instead of each being padded with zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int], dim: int) -> tuple[Tensor, ...]:
        ctx.dim = dim
        return x.split(sizes, dim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return norch.cat(grads, ctx.dim), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, sizes: list[int], dim: int) -> tuple[Any, int]:
        return _Parts.apply(x, sizes, dim if dim < 0 else dim + 1), 0


def _parts(x: Tensor, sizes: list[int], dim: int) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = _Parts.apply(x, sizes, dim) if x.requires_grad else x.split(sizes, dim)
    return parts


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What MultiheadAttention computes (Vaswani et al., 2017): query (L, N, E), (S, N, ·) and (S, N, ·) to (L, N, E)
    and the weights, (N, L, S), or (N, heads, L, S) unless `average_attn_weights`; None unless `need_weights`.

    N may be missing everywhere, and comes first with `batch_first`. attn_mask: (L, S) or (N * heads, L, S), bool and
    True where a query may not look, or a number to add. key_padding_mask: (N, S), the same. is_causal: a hint that
    attn_mask is the causal one. static_k and static_v: (N * heads, S, E / heads), in place of the projected ones.
    Raises ShapeError for shapes that do not fit, DTypeError for integer masks, ValueError for is_causal without mask.
    Weights and biases are MultiheadAttention's: in_proj_weight (3E, E) with in_proj_bias (3E), or with
    use_separate_proj_weight q_proj_weight, k_proj_weight and v_proj_weight; out_proj_weight (E, E), out_proj_bias (E);
    bias_k and bias_v, a key and a value behind the others, add_zero_attn, one of zeros. E is embed_dim_to_check, which
    num_heads divides. dropout_p: of the weights, in training.
    """
    _check_inputs(query, key, value, embed_dim_to_check, num_heads)
    if is_causal and attn_mask is None:
        raise ValueError(
            f"{_OP}(): is_causal is a hint about attn_mask, which is None; "
            "Transformer.generate_square_subsequent_mask makes one"
        )
    batched = query.ndim == 3
    if not batched:
        at = 0 if batch_first else 1
        same, shared = key is query, value is key
        query = query.unsqueeze(at)
        key = query if same else key.unsqueeze(at)
        value = key if shared else value.unsqueeze(at)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if use_separate_proj_weight:
        weights = q_proj_weight, k_proj_weight, v_proj_weight
        if any(w is None for w in weights):
            raise ValueError(f"{_OP}(): use_separate_proj_weight needs q_proj_weight, k_proj_weight and v_proj_weight")
        q, k, v = _projected_apart(query, key, value, weights, in_proj_bias)
    elif in_proj_weight is None:
        raise ValueError(f"{_OP}(): in_proj_weight is None, and use_separate_proj_weight is False")
    else:
        q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias)
    q, k, v = _heads(q, num_heads, batch_first), _heads(k, num_heads, batch_first), _heads(v, num_heads, batch_first)
    if static_k is not None:
        k = static_k.unflatten(0, (-1, num_heads))
    if static_v is not None:
        v = static_v.unflatten(0, (-1, num_heads))

    extra = (bias_k is not None) + bool(add_zero_attn)
    causal = is_causal and key_padding_mask is None and not need_weights and not extra
    mask = None
    if not causal and (attn_mask is not None or key_padding_mask is not None):
        mask = _mask(attn_mask, key_padding_mask, (*q.shape[:3], k.shape[2]), q.dtype)
    if extra:
        k, v = _with_extra(k, bias_k, add_zero_attn), _with_extra(v, bias_v, add_zero_attn)
        if mask is not None:
            size = (*mask.shape[:-1], extra)
            mask = norch.cat([mask, (norch.ones if mask.dtype is norch.bool else norch.zeros)(
                size, dtype=mask.dtype, device=mask.device
            )], -1)  # fmt: skip
    dropout_p = dropout_p if training else 0.0
    found = None
    if need_weights:
        found = _weights(q, k, mask)
        if dropout_p:
            found = norch.dropout(found, dropout_p)
        out = found @ v
        if average_attn_weights:
            found = found.mean(1)
    else:
        out = norch.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
    out = (out.transpose(1, 2) if batch_first else out.permute(2, 0, 1, 3)).flatten(2)
    out = norch.linear(out, out_proj_weight, out_proj_bias)
    if not batched:
        out = out.squeeze(0 if batch_first else 1)
        found = None if found is None else found.squeeze(0)
    return out, found


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, width: int, heads: int) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise norch.ShapeError(f"{_OP}(): all need 3 dims, or 2 without a batch: {shapes}")
    if query.shape[-1] != width:
        raise norch.ShapeError(f"{_OP}(): was expecting an embedding dimension of {width}: {shapes}")
    if width % heads:
        raise ValueError(f"{_OP}(): embed_dim {width} is not divisible by num_heads {heads}")
    if key.shape[:-1] != value.shape[:-1]:
        raise norch.ShapeError(f"{_OP}(): key and value differ in length or batch: {shapes}")


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Products with the three thirds of one weight, those of the same tensor in one."""
    width = weight.shape[0] // 3
    if query is key and key is value:
        q, k, v = _parts(norch.linear(query, weight, bias), [width] * 3, -1)
        return q, k, v
    if key is value:
        sizes = [width, 2 * width]
        weights = _parts(weight, sizes, 0)
        biases = (None, None) if bias is None else _parts(bias, sizes, 0)
        k, v = _parts(norch.linear(key, weights[1], biases[1]), [width] * 2, -1)
        return norch.linear(query, weights[0], biases[0]), k, v
    return _projected_apart(query, key, value, _parts(weight, [width] * 3, 0), bias)


def _projected_apart(
    query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    biases = [None] * 3 if bias is None else _parts(bias, [bias.shape[0] // 3] * 3, 0)
    q, k, v = (norch.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    return q, k, v


def _heads(x: Tensor, count: int, batch_first: bool) -> Tensor:
    """(N, heads, L, E / heads), a view."""
    split = x.unflatten(-1, (count, x.shape[-1] // count))
    return split.transpose(1, 2) if batch_first else split.permute(1, 2, 0, 3)


def _with_extra(x: Tensor, bias: Tensor | None, zero: bool) -> Tensor:
    """Keys or values with one more made of `bias`, and one more of zeros."""
    n, heads, _, size = x.shape
    parts = [x]
    if bias is not None:
        parts.append(bias.reshape(1, heads, 1, size).expand(n, heads, 1, size))
    if zero:
        parts.append(norch.zeros((n, heads, 1, size), dtype=x.dtype, device=x.device))
    return norch.cat(parts, 2)


def _mask(attn: Tensor | None, padding: Tensor | None, shape: tuple[int, ...], dtype: norch.DType) -> Tensor:
    """One mask that broadcasts to `shape`, (N, heads, L, S): bool and True where a query may look, or to be added."""
    n, heads, length, keys = shape
    given = []
    for name, mask, allowed in (
        ("attn_mask", attn, ((length, keys), (n * heads, length, keys))),
        ("key_padding_mask", padding, ((n, keys),)),
    ):
        if mask is None:
            continue
        if tuple(mask.shape) not in allowed:
            raise norch.ShapeError(
                f"{_OP}(): {name} of shape {tuple(mask.shape)}, expected {' or '.join(str(s) for s in allowed)}"
            )
        if mask.dtype is not norch.bool and not mask.is_floating_point():
            raise norch.DTypeError(f"{_OP}(): {name} must be bool or floating, got {mask.dtype}")
        if name == "key_padding_mask":
            mask = mask.reshape(n, 1, 1, keys)
        elif mask.ndim == 3:
            mask = mask.unflatten(0, (n, heads))
        given.append(mask)
    if all(mask.dtype is norch.bool for mask in given):
        return ~(given[0] if len(given) == 1 else given[0] | given[1])
    terms = [
        norch.zeros(m.shape, dtype=dtype, device=m.device).masked_fill(m, -math.inf)
        if m.dtype is norch.bool
        else m.to(dtype)
        for m in given
    ]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """How much each query takes of each value; not numbers for a query that may look nowhere, as in PyTorch."""
    scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.mT
    if mask is not None:
        scores = norch.where(mask, scores, -math.inf) if mask.dtype is norch.bool else scores + mask
    return norch.softmax(scores, -1)
