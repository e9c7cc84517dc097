"""The memory behind tensors, as PyTorch's `Tensor.storage()` and `untyped_storage()` show it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..dtype import DType, get_default_dtype, uint8
from ..tensor_base import make_tensor

if TYPE_CHECKING:
    from ..device import Device
    from ..tensor_base import TensorBase
    from . import Tensor


class Storage:
    """The buffer of a tensor, in elements: of its dtype, or bytes. Of a number, new memory for so many elements; of
    nested lists of numbers, memory that holds them.
    """

    _new: DType | None = None
    """The dtype of new memory; None for the default dtype."""

    def __init__(self, tensor: TensorBase | int | Sequence[Any] = 0, *, device: Any = None) -> None:
        if not hasattr(tensor, "spec"):
            from ..ops import empty
            from ..ops import tensor as holding

            make: Any = empty if isinstance(tensor, int) else holding
            tensor = make(tensor, dtype=self._new or get_default_dtype(), device=device)
        self._tensor: TensorBase = tensor  # type: ignore[assignment]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    @property
    def _dtype(self) -> DType:
        return uint8

    def _elements(self) -> Tensor:
        """All of the memory as a vector."""
        spec = self._tensor.spec.like((self.size(),), (1,), self._dtype)
        return make_tensor(spec, self._tensor.buffer)

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._tensor)

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._tensor.spec.device

    @property
    def is_cuda(self) -> bool:
        """Whether that is a CUDA device."""
        return self.device.type == "cuda"

    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(self._tensor.buffer.nbytes)

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._dtype.itemsize

    def size(self) -> int:
        """How many elements it has."""
        return self.nbytes() // self._dtype.itemsize

    def __len__(self) -> int:
        return self.size()

    def __getitem__(self, index: Any) -> Any:
        """An element, as a number, or for a slice an array of NumPy's on the same memory."""
        found = self._elements()
        return found.numpy()[index] if isinstance(index, slice) else found[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements, as numbers."""
        found: list[Any] = self._elements().tolist()
        return found

    def fill_(self, value: Any) -> Any:
        """Sets every element to the number `value`. Returns itself."""
        self._elements().fill_(value)
        return self

    def copy_(self, source: Storage, non_blocking: bool = False) -> Any:
        """Takes the elements of `source`, which has as many. Returns itself. non_blocking: as of `Tensor.copy_`.

        Raises ShapeError for another number of elements.
        """
        self._elements().copy_(source._elements(), non_blocking)
        return self

    def clone(self) -> Any:
        """A copy of the memory."""
        return type(self)(self._elements().clone())

    def cpu(self) -> Any:
        """Itself in host memory, a copy of what is not there."""
        return type(self)(self._elements().cpu())

    @property
    def _cdata(self) -> int:
        """What tells this memory from other, as programs know it from PyTorch."""
        return id(self._tensor.buffer)

    def is_shared(self) -> bool:
        """Whether other processes may write to it: see `Tensor.is_shared`."""
        return bool(self._tensor.is_shared())  # type: ignore[attr-defined]

    def data_ptr(self) -> int:
        """The address of its first byte."""
        return self._tensor.spec.device.backend.data_ptr(self._tensor.buffer)


class TypedStorage(Storage):
    """The buffer of a tensor as elements of its dtype: what `Tensor.storage()` gives."""

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self.untyped()

    @property
    def _dtype(self) -> DType:
        return self._tensor.spec.dtype

    @property
    def dtype(self) -> DType:
        """That of the elements."""
        return self._dtype


class UntypedStorage(Storage):
    """The buffer of a tensor as bytes: what `Tensor.untyped_storage()` gives."""

    _new = uint8

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` of the file `filename` (all of it for 0), read when they are used. What is written to them
        goes to the file if `shared`, and is lost otherwise. With `shared` the file is made, or made longer, where it is
        shorter. Raises OSError for a file that cannot be read.
        """
        import mmap

        import numpy as np

        from ..ops import from_numpy

        if shared and nbytes and not os.path.exists(filename):
            open(filename, "xb").close()
        with open(filename, "r+b" if shared else "rb") as file:
            if shared and nbytes > os.path.getsize(filename):
                file.truncate(nbytes)
            mapped = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        return cls(from_numpy(np.frombuffer(mapped, np.uint8)))

    def untyped(self) -> UntypedStorage:
        """Itself: it is bytes."""
        return self
