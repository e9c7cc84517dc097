"""What users say of changes in place that norch does not see, or that do not count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .. import switches
from ..tensor_base import TensorBase
from .graph import changed_by, next_sequence_number

if TYPE_CHECKING:
    from ..tensor import Tensor


def increment_version(tensor: Tensor | Iterable[Tensor], by: str = "increment_version") -> None:
    """Marks tensors as changed in place by what norch does not see, such as a collective or a kernel of others.

    by: its name, for the error of a backward pass that needs the values as they were.
    """
    for changed in (tensor,) if isinstance(tensor, TensorBase) else tensor:
        changed.buffer.modified = changed_by(by)


@contextmanager
def _unsafe_preserve_version_counter(tensor: Tensor | tuple[Tensor, ...]) -> Iterator[None]:
    """What happens to tensors in the block does not count as a change: for values that come back as they were."""
    buffers = [t.buffer for t in ((tensor,) if isinstance(tensor, TensorBase) else tensor)]
    before = [buffer.modified for buffer in buffers]
    try:
        yield
    finally:
        for buffer, modified in zip(buffers, before, strict=True):
            buffer.modified = modified


def is_unwatched(data: Tensor) -> bool:
    """Whether new values of a tensor count as no change: it is an `x.data` that nothing can have saved, since no op was
    recorded after it was taken."""
    since = data.__dict__.get("_unused_since")
    return since is not None and next_sequence_number() == since + 1


@contextmanager
def unwatched(data: Tensor, op: str) -> Iterator[None]:
    """What gives an `x.data` new values within this context, `op`, is no change."""
    with _unsafe_preserve_version_counter(data):
        yield
    data.__dict__["_unused_since"] = next_sequence_number()
    if switches.noting is not None:
        # A recorded step looks for what it changed: as of its beginning, before all that it saves.
        began = switches.recorded_since, op, None
        data.buffer.modified = max(data.buffer.modified or began, began, key=lambda change: change[0])
