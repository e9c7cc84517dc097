"""Methods that are functions of `norch.special` and `norch.compat`, which are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..ops.elementwise import gamma
from ..ops.registry import method

if TYPE_CHECKING:
    from . import Tensor


def _of_special(name: str, *args: Any) -> Any:
    return getattr(import_module("norch.special"), name)(*args)


@method("i0", inplace=True)
def i0(self: Tensor) -> Tensor:
    """`norch.special.i0` of this tensor."""
    return _of_special("i0", self)  # type: ignore[no-any-return]


@method("igamma", inplace=True)
def igamma(self: Tensor, other: Tensor | float) -> Tensor:
    """`norch.special.gammainc` of this tensor and `other`. Raises as that does."""
    return _of_special("gammainc", self, other)  # type: ignore[no-any-return]


@method("igammac", inplace=True)
def igammac(self: Tensor, other: Tensor | float) -> Tensor:
    """`norch.special.gammaincc` of this tensor and `other`. Raises as that does."""
    return _of_special("gammaincc", self, other)  # type: ignore[no-any-return]


@method("mvlgamma", inplace=True)
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """`norch.special.multigammaln` of this tensor, of dimension p. Raises as that does."""
    return _of_special("multigammaln", self, p)  # type: ignore[no-any-return]


@method("polygamma", inplace=True)
def polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of `digamma` at this tensor: `norch.polygamma`. Raises as that does."""
    return gamma.polygamma(n, self)


@method("histogram")
def histogram(self: Tensor, bins: Any, **options: Any) -> Any:
    """`norch.histogram` of this tensor in `bins`, with its options. Raises as that does."""
    return import_module("norch.compat.histograms").histogram(self, bins, **options)
