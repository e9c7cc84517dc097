"""Vision transformers (Dosovitskiy et al., 2020)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import norch
from norch import nn

from ..ops.misc import MLP, Conv2dNormActivation
from .building import builder

_layer_norm = partial(nn.LayerNorm, eps=1e-6)


class ConvStemConfig(NamedTuple):
    """A convolution of a stem that stands in the place of the patches."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Callable[..., nn.Module] = nn.BatchNorm2d
    activation_layer: Callable[..., nn.Module] = nn.ReLU


class MLPBlock(MLP):
    """Two linear layers with a GELU between."""

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention among the tokens, then a perceptron on each, both after a norm and added to what came in."""

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = _layer_norm,
    ) -> None:
        super().__init__()
        self.num_heads, self.ln_1 = num_heads, norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout, self.ln_2 = nn.Dropout(dropout), norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """What each place stands for is added to the tokens (n, seq_length, hidden_dim); then blocks, then a norm."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = _layer_norm,
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(norch.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        block = partial(EncoderBlock, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        self.layers = nn.Sequential(OrderedDict((f"encoder_layer_{i}", block()) for i in range(num_layers)))
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Patches of an image as tokens, with one more whose end is classified: (n, 3, size, size) -> (n, num_classes).

    image_size, patch_size: sides in pixels, the second of which divides the first (else ValueError). num_layers,
    num_heads, hidden_dim, mlp_dim: of the encoder. attention_dropout: of its weights. representation_size: of a tanh
    layer before the last one. conv_stem_configs: convolutions in place of the one that makes patches.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        norm_layer: Callable[..., nn.Module] = _layer_norm,
        conv_stem_configs: Sequence[ConvStemConfig] | None = None,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"VisionTransformer: patches of {patch_size} do not divide images of {image_size}")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.mlp_dim, self.num_classes, self.representation_size = mlp_dim, num_classes, representation_size
        self.attention_dropout, self.dropout, self.norm_layer = attention_dropout, dropout, norm_layer
        self.conv_proj = self._projection(conv_stem_configs)
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(norch.zeros(1, 1, hidden_dim))
        self.encoder = Encoder(
            *(self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        )
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"], heads["act"] = nn.Linear(hidden_dim, representation_size), nn.Tanh()
            nn.init.trunc_normal_(heads["pre_logits"].weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(heads["pre_logits"].bias)
        heads["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        nn.init.zeros_(heads["head"].weight)
        nn.init.zeros_(heads["head"].bias)
        self.heads = nn.Sequential(heads)

    def _projection(self, stem: Sequence[ConvStemConfig] | None) -> nn.Module:
        if stem is None:
            last = projection = nn.Conv2d(3, self.hidden_dim, self.patch_size, self.patch_size)
            nn.init.trunc_normal_(last.weight, std=math.sqrt(1 / (3 * self.patch_size**2)))
            nn.init.zeros_(last.bias)
            return projection
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        channels = 3
        for i, (outputs, kernel, stride, norm, activation) in enumerate(stem):
            parts[f"conv_bn_relu_{i}"] = Conv2dNormActivation(
                channels, outputs, kernel, stride, norm_layer=norm, activation_layer=activation
            )
            channels = outputs
        parts["conv_last"] = last = nn.Conv2d(channels, self.hidden_dim, 1)
        nn.init.normal_(last.weight, 0.0, math.sqrt(2 / self.hidden_dim))
        nn.init.zeros_(last.bias)
        return nn.Sequential(parts)

    def _process_input(self, x: norch.Tensor) -> norch.Tensor:
        """Patches as tokens: (n, 3, h, w) -> (n, h w / patch_size², hidden_dim). Raises ShapeError for another size."""
        if x.ndim != 4 or tuple(x.shape[2:]) != (self.image_size, self.image_size):
            raise norch.ShapeError(
                f"VisionTransformer: expected images (n, 3, {self.image_size}, {self.image_size}), got shape "
                f"{tuple(x.shape)}"
            )
        return self.conv_proj(x).flatten(2).permute(0, 2, 1)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        x = self._process_input(x)
        x = norch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


def _vit(patch: int, layers: int, heads: int, hidden: int, mlp: int, **options: Any) -> VisionTransformer:
    return VisionTransformer(options.pop("image_size", 224), patch, layers, heads, hidden, mlp, **options)


vit_b_16 = builder("vit_b_16", _vit, 16, 12, 12, 768, 3072, doc="ViT-B/16")
vit_b_32 = builder("vit_b_32", _vit, 32, 12, 12, 768, 3072, doc="ViT-B/32")
vit_l_16 = builder("vit_l_16", _vit, 16, 24, 16, 1024, 4096, doc="ViT-L/16")
vit_l_32 = builder("vit_l_32", _vit, 32, 24, 16, 1024, 4096, doc="ViT-L/32")
vit_h_14 = builder("vit_h_14", _vit, 14, 32, 16, 1280, 5120, doc="ViT-H/14")
