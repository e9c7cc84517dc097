"""Products of several matrices, and of vectors along a dim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ops
from ..ops.families import accepts_axis
from ..ops.matrix.multi_dot import multi_dot

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["cross", "diagonal", "multi_dot", "vecdot"]


@accepts_axis
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of 3 along `dim`; the two broadcast. Raises ShapeError for another size of `dim`."""
    return ops.cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """`norch.diagonal` of A, `offset` above the main one, of `dim1` and `dim2`: the last two dims by default. Raises as
    that does.
    """
    return ops.diagonal(A, offset, dim1, dim2)


@accepts_axis
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The inner products of the vectors x and y along `dim`; the two broadcast."""
    products = x.conj() * y
    return products.sum(dim, dtype=products.dtype)
