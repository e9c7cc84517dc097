"""Places: whose memory the kernels of a recorded step read and write."""

from __future__ import annotations

from typing import Any, NamedTuple

TEMPORARY, ARGUMENT, STATE, GRADIENT, CONSTANT = "temporary", "argument", "state", "gradient", "constant"
"""Whose memory a place is: made and gone within the step, or its result; an argument's; that of a tensor which was
there before; that of a leaf's gradient which was there before; made of data of the host."""


class PlaceInfo:
    """What is known of a place. `owner`: the tensor (weakly) whose memory it is, or the leaf whose gradient's.

    owners: all tensors (weakly) that had this memory. buffer: that of the recording, for what outlives it. data: the
    bytes of a constant; `shared` what owns them, where the buffer has the memory of an array.
    """

    __slots__ = (
        "argument", "backend", "buffer", "data", "index", "kind", "nbytes", "owner", "owners", "shared", "written",
    )  # fmt: skip

    def __init__(self, kind: str, nbytes: int, backend: Any, index: int) -> None:
        self.kind, self.nbytes, self.backend, self.index = kind, nbytes, backend, index
        self.argument = -1
        self.buffer: Any = None
        self.data: bytes | None = None
        self.owner: Any = None
        self.owners: list[Any] = []
        self.written = False
        self.shared: Any = False

    def role(self) -> Any:
        """What must be the same in two recordings."""
        return self.kind, self.nbytes, self.index, self.argument

    def is_same(self, other: PlaceInfo, others: bool = False) -> bool:
        """Whether this is the memory of the same thing, in another recording. others: or of another tensor."""
        if self.role() != other.role():
            return False
        if others and self.kind == STATE and self.buffer is not other.buffer:
            return other.owner is not None and other.owner() is not None
        if self.kind == STATE and self.buffer is other.buffer:
            return True
        if self.kind in (STATE, GRADIENT):
            return self.owner is not None and self.owner is other.owner and self.owner() is not None
        return True


class OfLeaf(NamedTuple):
    """A result that is the gradient of a leaf."""

    leaf: Any  # weakly
