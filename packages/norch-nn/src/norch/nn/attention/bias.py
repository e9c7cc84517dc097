"""Masks of causal attention whose queries and keys differ in number, by PyTorch's names."""

from __future__ import annotations

from enum import IntEnum

import norch


class CausalVariant(IntEnum):
    """Which corner of the matrix of scores the diagonal of a causal mask ends in."""

    UPPER_LEFT, LOWER_RIGHT = 1, 2


def CausalBias(variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> norch.Tensor:
    """The mask of `causal_upper_left` or `causal_lower_right`, a bool tensor (seq_len_q, seq_len_kv). Raises ValueError
    for another variant."""
    apart = {CausalVariant.UPPER_LEFT: 0, CausalVariant.LOWER_RIGHT: seq_len_kv - seq_len_q}
    return norch.ones(seq_len_q, seq_len_kv, dtype=norch.bool).tril(apart[CausalVariant(variant)])


def causal_upper_left(*size: int) -> norch.Tensor:
    """True where query i may see key j <= i: bool of `size`, (queries, keys). `scaled_dot_product_attention` takes it
    as attn_mask, and does the same with is_causal=True."""
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> norch.Tensor:
    """True where query i may see key j <= i + keys - queries, so that the last query sees all: bool of `size`,
    (queries, keys), as decoding with a cache has it."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
