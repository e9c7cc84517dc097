"""Parts of `multi_head_attention_forward` under the private names by which copies of PyTorch's call them."""

from __future__ import annotations

from typing import Any

import norch

Tensor = norch.Tensor


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None) -> list[Tensor]:
    """Queries, keys and values (..., E), each through its rows of the weight w (3 E, E) and the bias b (3 E)."""
    size = q.shape[-1]
    if q is k and k is v:
        return list(norch.linear(q, w, b).chunk(3, -1))
    biases = [None] * 3 if b is None else b.split(size)
    parts = zip((q, k, v), w.split(size), biases, strict=True)
    return [norch.linear(x, weight, bias) for x, weight, bias in parts]


def _in_projection(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each through a weight and a bias of its own."""
    return norch.linear(q, w_q, b_q), norch.linear(k, w_k, b_k), norch.linear(v, w_v, b_v)


def _none_or_dtype(input: Tensor | None) -> norch.DType | None:
    """The dtype of a tensor, None for None. Raises RuntimeError for anything else."""
    if input is not None and not isinstance(input, norch.Tensor):
        raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: norch.DType,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers that are added: of bools -inf where they are True. Raises RuntimeError for other dtypes than
    bool and floating. other_type, other_name, check_other: taken for PyTorch's sake, which warns where masks differ."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    if mask.dtype is not norch.bool:
        raise RuntimeError(f"only bool and floating types of {mask_name} are supported")
    return norch.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _mha_shape_check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether the query has a batch: three dims rather than two, as key and value. Raises RuntimeError where these do
    not, or masks do not fit."""
    batched = query.dim() == 3
    sizes = [x.dim() for x in (query, key, value)]
    if sizes not in ([3] * 3, [2] * 3):
        raise RuntimeError(f"query, key and value must all have 2 or all have 3 dims, got {sizes}")
    if key_padding_mask is not None and key_padding_mask.dim() != sizes[0] - 1:
        raise RuntimeError(f"key_padding_mask must have {sizes[0] - 1} dims, got {key_padding_mask.dim()}")
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise RuntimeError(f"attn_mask must have 2 or 3 dims, got {attn_mask.dim()}")
    if attn_mask is not None and attn_mask.dim() == 3 and not batched:
        expected = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != expected:
            raise RuntimeError(f"expected attn_mask of shape {expected}, got {tuple(attn_mask.shape)}")
    return batched


def _verify_batch_size(size: list[int]) -> None:
    """Raises ValueError where a shape (N, C, *) has one value for each channel, of which there is no variance."""
    count = size[0]
    for length in size[2:]:
        count *= length
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")
