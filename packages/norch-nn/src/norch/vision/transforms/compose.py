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
    """Applies the function `lambd`. Raises TypeError unless it can be called."""

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


class RandomChoice:
    """Applies one of `transforms`, each as likely as the other or as the weights `p` say.

    Raises ValueError for other than one weight each.
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None) -> None:
        if p is not None and (len(p) != len(transforms) or min(p) < 0 or sum(p) <= 0):
            raise ValueError(f"RandomChoice: p must have a weight for each of {len(transforms)} transforms, got {p!r}")
        self.transforms, self.p = transforms, p

    def __call__(self, img: Any) -> Any:
        shares = None if self.p is None else [weight / sum(self.p) for weight in self.p]
        return self.transforms[int(generator().choice(len(self.transforms), p=shares))](img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(transforms={self.transforms}, p={self.p})"


class RandomOrder(Compose):
    """Applies `transforms` one after the other, in a random order."""

    def __call__(self, img: Any) -> Any:
        for i in generator().permutation(len(self.transforms)):
            img = self.transforms[i](img)
        return img
