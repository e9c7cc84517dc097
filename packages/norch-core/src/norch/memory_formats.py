"""Memory formats and layouts: what `memory_format=` and `layout=` may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import shown
from .errors import ShapeError

if TYPE_CHECKING:
    from .tensor import Tensor


class _Named:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{shown.root}.{self._name}"

    def __reduce__(self) -> str:
        return self._name


class memory_format(_Named):
    """How the elements of a tensor lie in memory: `norch.contiguous_format`, `norch.channels_last`, ...

    name: how it prints.
    """


class layout(_Named):
    """How the elements of a tensor are stored: `norch.strided`, `norch.sparse_coo`, `norch.sparse_csr` or
    `norch.sparse_csc`.

    name: how it prints.
    """


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
"""Of blocks: for programs that ask whether a tensor has one, which none has."""

_NDIM = {channels_last: 4, channels_last_3d: 5}


def suits(tensor: Tensor, wanted: Any) -> bool:
    """Whether a memory format is for tensors of so many dims; True for what is none."""
    return tensor.ndim == _NDIM.get(wanted, tensor.ndim)


def channels_behind(tensor: Tensor, wanted: Any, op: str) -> Tensor | None:
    """For a channels-last format, the tensor with its channels as last dim; None for the row-major ones.

    Raises ShapeError where the format is not for so many dims, ValueError for what is not a memory format.
    """
    if wanted in (None, contiguous_format, preserve_format):
        return None
    if wanted not in _NDIM:
        raise ValueError(f"{op}(): memory_format must be one of norch's memory formats, got {wanted!r}")
    if tensor.ndim != _NDIM[wanted]:
        raise ShapeError(f"{op}(): {wanted!r} is for {_NDIM[wanted]} dims, got shape {tuple(tensor.shape)}")
    return tensor.movedim(1, -1)
