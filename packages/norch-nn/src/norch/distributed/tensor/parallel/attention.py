"""Attention of which each process has some heads."""

from __future__ import annotations

from typing import Any

import norch
import norch.nn.functional as F
from norch import Tensor, nn

from ...nn import functional as D
from ...world import get_rank, get_world_size
from .. import Placement, Shard
from . import regions
from .layers import CutLayer, Cutter, RowLinear


class HeadAttention(CutLayer):
    """A MultiheadAttention of which each process has some heads, as it makes and joins them: columns, then rows."""

    def __init__(self, attention: nn.MultiheadAttention, cutter: Cutter, given: Placement, gives: Placement) -> None:
        super().__init__(cutter.group)
        size = get_world_size(cutter.group)
        if attention.num_heads % size:
            raise norch.ShapeError(f"{attention.num_heads} heads cannot be cut among {size} processes")
        self.given, self.num_heads = given, attention.num_heads // size
        for name in ("embed_dim", "dropout", "batch_first", "add_zero_attn", "_qkv_same_embed_dim"):
            setattr(self, name, getattr(attention, name))
        for name in ("in_proj_weight", "in_proj_bias"):
            cutter(self, name, getattr(attention, name), 0, 3)
        for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
            cutter(self, name, getattr(attention, name), 0)
        for name in ("bias_k", "bias_v"):
            cutter(self, name, getattr(attention, name), 2)
        self.out_proj = RowLinear(attention.out_proj, cutter, Shard(-1), gives)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As MultiheadAttention's."""
        entered = {id(x): self._entered(x) for x in (query, key, value)}  # the same tensor once
        query, key, value = entered[id(query)], entered[id(key)], entered[id(value)]
        if attn_mask is not None and attn_mask.ndim == 3:
            every = attn_mask.unflatten(0, (-1, self.num_heads * get_world_size(self.group)))
            attn_mask = every.narrow(1, self.num_heads * get_rank(self.group), self.num_heads).flatten(0, 1)
        out, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            None,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            not self._qkv_same_embed_dim,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first,
        )
        if weights is not None and average_attn_weights:
            weights = regions.leave(weights, self.group) / get_world_size(self.group)
        elif weights is not None:
            weights = regions.join(weights, -3, self.group)
        return self.out_proj.finish(out), weights

    def _entered(self, x: Any) -> Any:
        if isinstance(self.given, Shard):
            return D.all_gather_tensor(x, self.given.dim, self.group)
        return regions.enter(x, self.group)
