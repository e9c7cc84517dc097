"""PyTorch's old names of sparse tensors: `norch.sparse.FloatTensor(indices, values, size)`."""

from __future__ import annotations

from typing import Any

from ..dtype import TENSOR_TYPES, DType
from .making import sparse_coo_tensor
from .tensor import SparseTensor


class _SparseType(type):
    """A type whose instances are the COO tensors of one dtype."""

    dtype: DType

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, SparseTensor) and value.is_sparse and value.dtype is cls.dtype

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """A tensor of indices, values and, if given, a size; or an empty one of sizes."""
        if not data or isinstance(data[0], int) or len(data) == 1:
            return sparse_coo_tensor(data[0] if len(data) == 1 else data or (0,), dtype=cls.dtype, device=device)
        return sparse_coo_tensor(*data, dtype=cls.dtype, device=device)


def _sparse_type(name: str) -> _SparseType:
    dtype = TENSOR_TYPES[name]
    return _SparseType(name, (), {"__doc__": f"Old form of COO tensors of dtype {dtype.name}.", "dtype": dtype})


__all__ = list(TENSOR_TYPES)
globals().update({name: _sparse_type(name) for name in TENSOR_TYPES})
