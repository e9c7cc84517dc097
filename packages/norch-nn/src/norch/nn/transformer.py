"""The Transformer of Vaswani et al. (2017): encoder, decoder and both together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

import norch

from . import functional as F
from . import init
from .activation import GELU, ReLU
from .container import ModuleList
from .dropout import Dropout
from .layer import MAX_LAYERS
from .linear import Linear
from .module import Module
from .multihead_attention import MultiheadAttention
from .normalization import LayerNorm

Tensor = norch.Tensor
Activation = str | Callable[[Tensor], Tensor]


def _get_activation_fn(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise ValueError(f"activation should be relu, gelu or a callable, not {given!r}")
    return F.relu if given == "relu" else F.gelu


def _get_clones(module: Module, N: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


class _Layer(Module):
    """What layers of encoder and decoder share: the two products, and a norm and a dropout for each block."""

    _attentions: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory: Any = {"bias": bias, "device": device, "dtype": dtype}
        for name in self._attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **factory))
        self.linear1 = Linear(d_model, dim_feedforward, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **factory)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, **factory))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return out

    # _sa_block, _mha_block and _ff_block are the parts of forward() under the names by which subclasses replace them.
    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        out: Tensor = self.dropout1(_attended(self.self_attn, x, x, attn_mask, key_padding_mask, is_causal))
        return out


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear layers with an activation ("relu", "gelu" or a callable) between; each block is
    added to its input, and normalised after it, or before with `norm_first`.

    nhead: the heads of the attention, of width d_model. dim_feedforward: the width between the linear layers.
    activation: "relu", "gelu" or a function. layer_norm_eps: `eps` of the norms. (Vaswani et al., 2017.)
    """

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src (L, N, d_model), or (N, L, d_model) if batch_first, N optional, to the same shape. Masks as those of
        MultiheadAttention; `is_causal` is a hint that `src_mask` is the causal one.

        src_key_padding_mask: (N, L).
        """
        x, masks = src, (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *masks)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, *masks))
        out: Tensor = self.norm2(x + self._ff_block(x))
        return out

    def _ff_block(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout2(self._feed_forward(x))
        return out


class TransformerDecoderLayer(_Layer):
    """As an encoder layer (see TransformerEncoderLayer), with attention to the encoder's result, the memory, between
    self-attention and linears.
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt (L, N, d_model) and the memory (S, N, d_model), batch first if batch_first, to (L, N, d_model). Masks as
        those of MultiheadAttention.

        tgt_mask (L, L), memory_mask (L, S), tgt_key_padding_mask (N, L), memory_key_padding_mask (N, S). tgt_is_causal,
        memory_is_causal: hints that a mask is the causal one.
        """
        first = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        second = memory_mask, memory_key_padding_mask, memory_is_causal
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *first)
            x = x + self._mha_block(self.norm2(x), memory, *second)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *first))
        x = self.norm2(x + self._mha_block(x, memory, *second))
        out: Tensor = self.norm3(x + self._ff_block(x))
        return out

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        out: Tensor = self.dropout2(_attended(self.multihead_attn, x, mem, attn_mask, key_padding_mask, is_causal))
        return out

    def _ff_block(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout3(self._feed_forward(x))
        return out


def _attended(
    attention: Module, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
) -> Tensor:
    found: Tensor = attention(
        x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
    )[0]
    return found


class _Stack(Module):
    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(layer, Module):
            raise norch.DTypeError(f"{name}: {type(layer).__name__} is not a Module subclass")
        if num_layers > MAX_LAYERS:
            raise ValueError(f"{name}: num_layers must be at most {MAX_LAYERS}, got {num_layers}")
        self.layers = _get_clones(layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """`num_layers` copies of `encoder_layer` (Vaswani et al., 2017), one after another, then `norm` if there is one.

    enable_nested_tensor: in evaluation, where no gradients are asked for and `src_key_padding_mask` is the only mask
    and leaves out the ends of sequences, results there are zeros, before the norm, as PyTorch's are. It has conditions:
    layers are `TransformerEncoderLayer`, batch first and not norm first, with biases, relu or gelu and an even number
    of heads. mask_check: taken, and changes nothing. Raises DTypeError where the layer is no Module, ValueError for
    more than 65,536 layers.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _may_be_nested(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """As that of a layer (TransformerEncoderLayer). `is_causal` None is False: a mask is not compared with the
        causal one.

        src, mask, src_key_padding_mask: as there.
        """
        out = src
        for layer in self.layers:
            out = layer(out, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        if src_key_padding_mask is not None and mask is None and self._is_nested(src):
            padded = src_key_padding_mask != 0
            at_ends = (padded[:, 1:] | ~padded[:, :-1]).all()
            out = out.masked_fill((padded & at_ends).unsqueeze(-1), 0.0)
        return out if self.norm is None else self.norm(out)

    def _is_nested(self, src: Tensor) -> bool:
        """Whether PyTorch makes a nested tensor of `src`, which has no padded places."""
        first = self.layers[0]
        if not self.use_nested_tensor or first.training or src.ndim != 3 or norch.is_autocast_enabled():
            return False
        if norch.is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in first.parameters())):
            return False
        return norch.backends.mha.get_fastpath_enabled()


def _may_be_nested(layer: Module) -> bool:
    """Whether PyTorch computes such a layer of an encoder with nested tensors."""
    if not isinstance(layer, TransformerEncoderLayer):
        return False
    attention, activation = layer.self_attn, layer.activation
    return (
        attention.batch_first
        and not layer.norm_first
        and attention.in_proj_weight is not None
        and attention.in_proj_bias is not None
        and attention.num_heads % 2 == 0
        and (activation in (F.relu, F.gelu) or isinstance(activation, ReLU | GELU))
        and layer.norm1.eps == layer.norm2.eps
    )


class TransformerDecoder(_Stack):
    """`num_layers` copies of `decoder_layer` (Vaswani et al., 2017), one after another, then `norm` if there is one.
    Raises as the encoder does.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """As that of a layer (TransformerDecoderLayer). `tgt_is_causal` None is False: a mask is not compared with the
        causal one.

        tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, memory_is_causal: as there.
        """
        out = tgt
        for layer in self.layers:
            out = layer(
                out,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """Encoder and decoder (Vaswani et al., 2017), each with a LayerNorm at its end. Matrices start as xavier_uniform_
    draws them.

    num_encoder_layers, num_decoder_layers: how many of each; nhead, dim_feedforward, activation, layer_norm_eps,
    norm_first: as of `TransformerEncoderLayer`.

    custom_encoder and custom_decoder take the places of those made from the other arguments.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory: Any = {"bias": bias, "device": device, "dtype": dtype}
        options: Any = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(d_model, nhead, *options, **factory),
                num_encoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **factory),
            )
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(d_model, nhead, *options, **factory),
                num_decoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **factory),
            )
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """src (S, N, d_model) and tgt (T, N, d_model), batch first if batch_first, N optional, to (T, N, d_model).
        Masks as those of MultiheadAttention. Raises ShapeError for another width, or where the batches differ.

        src_mask (S, S), tgt_mask (T, T), memory_mask (T, S), and src_key_padding_mask (N, S), tgt_key_padding_mask (N,
        T), memory_key_padding_mask (N, S). src_is_causal, tgt_is_causal, memory_is_causal: hints that a mask is the
        causal one.
        """
        shapes = f"src {tuple(src.shape)}, tgt {tuple(tgt.shape)}"
        at = 0 if self.batch_first else 1
        if src.ndim != tgt.ndim or (src.ndim == 3 and src.shape[at] != tgt.shape[at]):
            raise norch.ShapeError(f"Transformer: the batches of src and tgt must be equal: {shapes}")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise norch.ShapeError(f"Transformer: src and tgt must have d_model = {self.d_model} features: {shapes}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        out: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): -inf above the diagonal, 0 elsewhere, to be added."""
        return norch.full((sz, sz), -math.inf, device=device, dtype=dtype).triu(1)
