"""Networks of the sizes that are in use, each written once, for norch and for PyTorch: a language model that decodes,
and an image classifier for small devices."""

from __future__ import annotations

from typing import Any

import numpy as np

# Those of SmolLM-135M.
LAYERS, WIDTH, HEADS, KEY_HEADS, INNER, VOCABULARY = 30, 576, 9, 3, 1536, 49152
HEAD = WIDTH // HEADS


def llama(lib: Any, layers: int = LAYERS) -> Any:
    """Llama's decoder (Touvron et al., 2023) with grouped heads; a call gets tokens and the keys and values of those
    before, and gives the last token's scores and all keys and values."""
    linear, functional = lib.Linear, lib.F

    class Norm(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = lib.Parameter(lib.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            return self.weight * (x * lib.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        half = HEAD // 2
        return x * cos + lib.cat((-x[..., half:], x[..., :half]), -1) * sin

    class Attention(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.o = linear(WIDTH, WIDTH, bias=False), linear(WIDTH, WIDTH, bias=False)
            self.k, self.v = (linear(WIDTH, KEY_HEADS * HEAD, bias=False) for _ in range(2))

        def forward(self, x: Any, cos: Any, sin: Any, before: Any) -> tuple[Any, Any]:
            n, t, _ = x.shape
            q, k, v = (f(x).view(n, t, -1, HEAD).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            if before is not None:
                k, v = lib.cat((before[0], k), 2), lib.cat((before[1], v), 2)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
            return self.o(y.transpose(1, 2).reshape(n, t, WIDTH)), (k, v)

    class Block(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = Norm(), Attention(), Norm()
            self.gate, self.up = linear(WIDTH, INNER, bias=False), linear(WIDTH, INNER, bias=False)
            self.down = linear(INNER, WIDTH, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any, before: Any) -> tuple[Any, Any]:
            y, kept = self.attention(self.norm1(x), cos, sin, before)
            x = x + y
            y = self.norm2(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y)), kept

    class Llama(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = lib.Embedding(VOCABULARY, WIDTH)
            self.blocks = lib.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = Norm(), linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.tokens.weight
            angles = np.outer(np.arange(2048), 1e4 ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
            angles = np.concatenate([angles, angles], 1)
            self.cos, self.sin = lib.tensor(np.cos(angles)), lib.tensor(np.sin(angles))

        def forward(self, tokens: Any, before: Any = None) -> tuple[Any, list[Any]]:
            first = 0 if before is None else before[0][0].shape[2]
            end, x, kept = first + tokens.shape[1], self.tokens(tokens), []
            cos, sin = self.cos[first:end].to(x.dtype), self.sin[first:end].to(x.dtype)
            for at, block in enumerate(self.blocks):
                x, pair = block(x, cos, sin, None if before is None else before[at])
                kept.append(pair)
            return self.head(self.norm(x[:, -1:])), kept

    return Llama()


# Of each stage: the width's multiple inside a block, channels, blocks, stride, size of the depthwise kernel.
STAGES = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)


def efficientnet(lib: Any, classes: int = 1000) -> Any:
    """EfficientNet-Lite0 (Tan & Le, 2019): inverted bottlenecks without squeeze-and-excitation, ReLU6."""

    def convolution(a: int, b: int, size: int, stride: int = 1, groups: int = 1, active: bool = True) -> list[Any]:
        found = [lib.Conv2d(a, b, size, stride, size // 2, groups=groups, bias=False), lib.BatchNorm2d(b)]
        return [*found, lib.ReLU6()] if active else found

    class Bottleneck(lib.Module):  # type: ignore[misc]
        def __init__(self, a: int, b: int, times: int, stride: int, size: int) -> None:
            super().__init__()
            inner = a * times
            wide = convolution(a, inner, 1) if times > 1 else []
            deep = convolution(inner, inner, size, stride, inner)
            self.parts = lib.Sequential(*wide, *deep, *convolution(inner, b, 1, active=False))
            self.adds = a == b and stride == 1

        def forward(self, x: Any) -> Any:
            return x + self.parts(x) if self.adds else self.parts(x)

    parts, channels = convolution(3, 32, 3, 2), 32
    for times, after, blocks, stride, size in STAGES:
        for at in range(blocks):
            parts.append(Bottleneck(channels, after, times, 1 if at else stride, size))
            channels = after
    parts += [*convolution(channels, 1280, 1), lib.AdaptiveAvgPool2d(1), lib.Flatten(), lib.Linear(1280, classes)]
    return lib.Sequential(*parts)
