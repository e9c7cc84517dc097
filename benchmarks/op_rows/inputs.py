"""Random inputs of either library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Op(Protocol):
    def __call__(self, name: str, function: Callable[..., Any], *inputs: Callable[[], Any], grad: bool = True) -> None:
        """Takes a row: `function` of the inputs, forward and, with `grad`, back to those that are floating."""


def sources(lib: Any, device: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """`normal(*shape)` and `uniform(*shape)`, float32, and `integers(end, *shape)`, int64."""

    def normal(*shape: int) -> Any:
        return lib.randn(*shape, device=device)

    def uniform(*shape: int) -> Any:
        return lib.rand(*shape, device=device)

    def integers(end: int, *shape: int) -> Any:
        return lib.randint(0, end, shape, device=device)

    return normal, uniform, integers


def grid(lib: Any, device: str, count: int, height: int, width: int) -> Any:
    """Places of all pixels, each moved a little: (count, height, width, 2)."""
    lines = [lib.linspace(-1, 1, n, device=device) for n in (height, width)]
    places = lib.stack(lib.meshgrid(*lines, indexing="xy"), -1)
    return places + 0.05 * lib.randn(count, height, width, 2, device=device)
