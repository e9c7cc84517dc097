"""Products of several matrices, and of vectors along a dim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops.matrix.multi_dot import multi_dot

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["multi_dot", "vecdot"]


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The inner products of vectors along `dim`; the two broadcast."""
    return (x * y).sum(dim, dtype=(x * y).dtype)
