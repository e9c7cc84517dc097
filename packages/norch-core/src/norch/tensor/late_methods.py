"""Methods that few programs call: functions of norch by the same names, which are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..ops.registry import method


def _function(name: str) -> Any:
    return getattr(import_module("norch"), name)


@method("frexp")
def frexp(self: Any) -> Any:
    """`norch.frexp` of this tensor. Raises as that does."""
    return _function("frexp")(self)


@method("narrow_copy")
def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
    """`norch.narrow_copy` of `length` places from `start` along `dim`. Raises as that does."""
    return _function("narrow_copy")(self, dim, start, length)


@method("as_strided_scatter")
def as_strided_scatter(self: Any, src: Any, size: Any, stride: Any, storage_offset: int = 0) -> Any:
    """`norch.as_strided_scatter` of `src` into this tensor, by `size`, `stride` and `storage_offset`. Raises as that
    does."""
    return _function("as_strided_scatter")(self, src, size, stride, storage_offset)


@method("nonzero_static")
def nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
    """`norch.nonzero_static` of this tensor, `size` rows filled up by `fill_value`."""
    return _function("nonzero_static")(self, size=size, fill_value=fill_value)


@method("lu")
def lu(self: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    """`norch.lu` of these matrices, with `pivot` and `get_infos`. Raises as that does."""
    return _function("lu")(self, pivot, get_infos)


@method("geqrf")
def geqrf(self: Any) -> Any:
    """`norch.geqrf` of these matrices. Raises as that does."""
    return _function("geqrf")(self)


@method("orgqr")
def orgqr(self: Any, input2: Any) -> Any:
    """`norch.orgqr` of this tensor and `input2`, the numbers of the reflections. Raises as that does."""
    return _function("orgqr")(self, input2)


@method("ormqr")
def ormqr(self: Any, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Any:
    """`norch.ormqr` of this tensor, the numbers `input2` and the matrices `input3`, from the `left`, with `transpose`.
    Raises as that does."""
    return _function("ormqr")(self, input2, input3, left, transpose)


@method("unsafe_chunk")
def unsafe_chunk(self: Any, chunks: int, dim: int = 0) -> Any:
    """`chunk` in so many `chunks` along `dim`: of norch's, too, parts may be changed in place. Raises as that does."""
    return self.chunk(chunks, dim)


@method("unsafe_split")
def unsafe_split(self: Any, split_size: Any, dim: int = 0) -> Any:
    """`split` by `split_size` along `dim`. Raises as that does."""
    return self.split(split_size, dim)


@method("unsafe_split_with_sizes")
def unsafe_split_with_sizes(self: Any, split_sizes: Any, dim: int = 0) -> Any:
    """`split` by `split_sizes` along `dim`. Raises as that does."""
    return self.split(list(split_sizes), dim)


@method("dim_order")
def dim_order(self: Any) -> tuple[int, ...]:
    """The dims in the order in which they lie in memory, the outermost first."""
    strides = self.stride()
    return tuple(sorted(range(self.ndim), key=lambda d: -strides[d]))


@method("sparse_dim")
def sparse_dim(self: Any) -> int:
    """0: a tensor of memory has none."""
    return 0


@method("dense_dim")
def dense_dim(self: Any) -> int:
    """The number of dims: all of a tensor of memory are dense."""
    return int(self.ndim)


@method("is_distributed")
def is_distributed(self: Any) -> bool:
    """False: no tensor of norch is cut over devices."""
    return False
