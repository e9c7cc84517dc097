"""Transforms made of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from norch import nn
from norch.utils.data import sample_rng as generator

from .images import probability


class Compose:
    """Applies `transforms` one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        lines = [f"    {transform!r}" for transform in self.transforms]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


class Lambda:
    """Applies the function `lambd`."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: expected a function, got {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RandomApply(nn.Module):
    """With probability `p`, applies `transforms` one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        probability(p, "RandomApply")
        self.p = p

    def forward(self, img: Any) -> Any:
        if generator().random() < self.p:
            for transform in self.transforms:
                img = transform(img)
        return img

    def __repr__(self) -> str:
        lines = [f"    {transform!r}" for transform in self.transforms]
        return "\n".join([f"{type(self).__name__}(", f"    p={self.p}", *lines, ")"])
