"""The memory behind tensors, as PyTorch's `Tensor.storage()` shows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tensor_base import TensorBase


class Storage:
    """The buffer of a tensor."""

    def __init__(self, tensor: TensorBase) -> None:
        self._tensor = tensor

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> Storage:
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

    def untyped(self) -> Storage:
        """Itself: it is bytes."""
        return self

    def __getitem__(self, index: Any) -> Any:
        """An element, or for a slice an array of NumPy's on the same memory."""
        return self._tensor.numpy().reshape(-1)[index]  # type: ignore[attr-defined]

    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(self._tensor.buffer.nbytes)

    def size(self) -> int:
        """Elements of the tensor's dtype that fit."""
        return self.nbytes() // self._tensor.spec.dtype.itemsize

    __len__ = size

    @property
    def _cdata(self) -> int:
        """What tells this memory from other, as programs know it from PyTorch."""
        return id(self._tensor.buffer)

    def data_ptr(self) -> int:
        """The address of its first byte."""
        return self._tensor.spec.device.backend.data_ptr(self._tensor.buffer)
