"""Attention whose scores and mask are functions of the indices of queries and keys (Dong et al., 2024).

def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx

mask = create_block_mask(causal, B=None, H=None, Q_LEN=256, KV_LEN=256)
y = flex_attention(query, key, value, block_mask=mask)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import norch

from .block_mask import _DEFAULT_SPARSE_BLOCK_SIZE as _DEFAULT_SPARSE_BLOCK_SIZE
from .block_mask import BlockMask as BlockMask
from .block_mask import and_masks as and_masks
from .block_mask import create_block_mask as create_block_mask
from .block_mask import create_mask as create_mask
from .block_mask import noop_mask as noop_mask
from .block_mask import or_masks as or_masks
from .block_mask import over_indices

_mask_mod_signature = Callable[[norch.Tensor, norch.Tensor, norch.Tensor, norch.Tensor], norch.Tensor]
_score_mod_signature = Callable[[norch.Tensor, norch.Tensor, norch.Tensor, norch.Tensor, norch.Tensor], norch.Tensor]


class AuxRequest(NamedTuple):
    """What `flex_attention` gives besides. lse: the logarithm of the sums of exponentials. max_scores: the largest."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What an AuxRequest asked for, None for the rest. lse, max_scores: of shape (B, Hq, L)."""

    lse: norch.Tensor | None = None
    max_scores: norch.Tensor | None = None


def flex_attention(
    query: norch.Tensor,
    key: norch.Tensor,
    value: norch.Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ key.mT * scale)) @ value (Dong et al., 2024): from (B, Hq, L, E), (B, H, S, E) and
    (B, H, S, Ev) to (B, Hq, L, Ev).

    score_mod: score_mod(score, b, h, q_idx, kv_idx), of 0-d tensors, gives the score that counts; scores are of float32
    or more. block_mask: which queries attend to which keys; a query whose keys are all masked gets 0. scale:
    1 / sqrt(E) by default. enable_gqa: each key and value head serves several query heads. return_lse: also the
    logarithm of the sums of exponentials, (B, Hq, L); return_aux: an AuxRequest, for a tuple of the result and an
    AuxOutput. kernel_options: of PyTorch's kernels; ignored.

    Without score_mod it is `scaled_dot_product_attention` with a mask; with one, all scores are kept.
    Raises ShapeError for shapes that do not fit, ValueError for return_lse with return_aux.
    """
    sizes = _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("flex_attention(): it takes return_lse or return_aux, not both")
    aux = return_aux or AuxRequest(lse=return_lse)
    mask = None if block_mask is None else block_mask.mask(sizes)
    if score_mod is None and not any(aux):
        result = norch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=enable_gqa
        )
        return result if return_aux is None else (result, AuxOutput())
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    precise = norch.promote_types(query.dtype, norch.float32)
    scores = query.to(precise) @ key.to(precise).mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = over_indices(score_mod, sizes, query.device, scores)
    if mask is not None:
        scores = scores.masked_fill(~mask, -float("inf"))
    none = (scores == -float("inf")).all(-1, keepdim=True)
    weights = scores.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    result = weights.to(query.dtype) @ value
    if return_aux is None and not return_lse:
        return result
    sums = scores.masked_fill(none, 0.0).logsumexp(-1).masked_fill(none.squeeze(-1), -float("inf")) if aux.lse else None
    if return_aux is None:
        return result, sums
    return result, AuxOutput(sums, scores.amax(-1) if aux.max_scores else None)


def _check(
    query: norch.Tensor, key: norch.Tensor, value: norch.Tensor, block_mask: BlockMask | None, enable_gqa: bool
) -> tuple[int, int, int, int]:
    """The shape of the scores. Raises ShapeError where there is none."""
    shapes = [tuple(x.shape) for x in (query, key, value)]
    given = f"flex_attention(): query {shapes[0]}, key {shapes[1]} and value {shapes[2]}"
    if any(len(shape) != 4 for shape in shapes):
        raise norch.ShapeError(f"{given} must have 4 dims")
    (batch, heads, rows, size), (key_batch, key_heads, columns, key_size), other = shapes
    if key_size != size or other[:3] != shapes[1][:3] or key_batch not in (1, batch):
        raise norch.ShapeError(f"{given} do not fit")
    if heads != key_heads and not (enable_gqa and key_heads and heads % key_heads == 0):
        needs = (
            "must have a multiple of its heads"
            if enable_gqa
            else "differ in heads; enable_gqa=True lets them be shared"
        )
        raise norch.ShapeError(f"{given} {needs}")
    if block_mask is not None:
        shape = block_mask.shape
        if shape[-2:] != (rows, columns) or any(n not in (1, m) for n, m in zip(shape[:-2], (batch, heads))):
            raise norch.ShapeError(f"{given} do not fit a block_mask of shape {shape}: create one for them")
    return batch, heads, rows, columns


norch.check_functions(globals(), "norch.nn.attention")
