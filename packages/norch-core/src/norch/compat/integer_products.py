"""Products with matrices of int8, which programs that quantise models call by PyTorch's private names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtype import float32, int8, int32
from ..errors import DTypeError, ShapeError
from ..ops import matmul

if TYPE_CHECKING:
    from ..tensor import Tensor


def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """self @ mat2 in int32, of int8 matrices (m, k) and (k, n).

    Raises DTypeError for other dtypes, ShapeError for other shapes.
    """
    if self.dtype is not int8 or mat2.dtype is not int8:
        raise DTypeError(f"_int_mm(): expected int8, got {self.dtype} and {mat2.dtype}")
    if self.ndim != 2 or mat2.ndim != 2:
        raise ShapeError(f"_int_mm(): expected matrices, got shapes {tuple(self.shape)} and {tuple(mat2.shape)}")
    return matmul(self.to(int32), mat2.to(int32))


def _weight_int8pack_mm(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """self @ mat2.T * scales, of a floating matrix (m, k), int8 weights (n, k) and a scale for each row of these (n).

    It is computed in float32, and has the dtype of `self`. Raises DTypeError for weights that are not int8.
    """
    if mat2.dtype is not int8:
        raise DTypeError(f"_weight_int8pack_mm(): expected weights of int8, got {mat2.dtype}")
    return (matmul(self.to(float32), mat2.to(float32).t()) * scales.to(float32)).to(self.dtype)
