"""MultiheadAttention."""

from __future__ import annotations

from typing import Any

import norch

from . import init
from .functional.multi_head_attention import multi_head_attention_forward
from .linear import Linear
from .module import Module
from .parameter import Parameter, optional_parameter


class NonDynamicallyQuantizableLinear(Linear):
    """Linear, under the name that PyTorch prints for the last product of an attention."""


class MultiheadAttention(Module):
    """Attention with several heads (Vaswani et al., 2017), with products before and after it.

    `in_proj_weight` (3 * embed_dim, embed_dim) makes queries, keys and values, or `q_proj_weight`, `k_proj_weight` and
    `v_proj_weight` do where keys or values have other widths (`kdim`, `vdim`). They start as xavier_uniform_ draws
    them, biases at 0. `dropout` is of the weights. add_bias_kv: a learned key and value behind the others;
    add_zero_attn: one of zeros. Raises ValueError unless `num_heads` divides `embed_dim`.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads}"
            )
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim == self.vdim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn

        same = self._qkv_same_embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if same else None,
            "q_proj_weight": None if same else (embed_dim, embed_dim),
            "k_proj_weight": None if same else (embed_dim, self.kdim),
            "v_proj_weight": None if same else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        for name, shape in shapes.items():
            self.register_parameter(name, optional_parameter(shape is not None, shape or (), device, dtype))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: norch.Tensor,
        key: norch.Tensor,
        value: norch.Tensor,
        key_padding_mask: norch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: norch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[norch.Tensor, norch.Tensor | None]:
        """query (L, N, embed_dim), key (S, N, kdim) and value (S, N, vdim), batch first if `batch_first`, N optional,
        to the result (L, N, embed_dim) and the weights (N, L, S), or None unless `need_weights`, which is slower.

        Masks are bool, True where a query may not look, or numbers to add: `attn_mask` (L, S) or (N * heads, L, S),
        `key_padding_mask` (N, S). Raises as functional.multi_head_attention_forward does.
        """
        return multi_head_attention_forward(
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
            self.out_proj.bias,
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

    def merge_masks(
        self, attn_mask: norch.Tensor | None, key_padding_mask: norch.Tensor | None, query: norch.Tensor
    ) -> tuple[norch.Tensor | None, int | None]:
        """Both masks as one, and its kind in PyTorch: None without masks; 1 for `key_padding_mask` alone, as it is; 2
        for what has `attn_mask`, (N, heads, L, L), to which `key_padding_mask` is added. query: (N, L, embed_dim).
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        count, length = query.shape[:2]
        shape = count, self.num_heads, length, length
        merged = attn_mask.reshape(shape) if attn_mask.ndim == 3 else attn_mask.expand(shape)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.reshape(count, 1, 1, length).expand(shape)
        return merged, 2
