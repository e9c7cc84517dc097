"""Several tensors as one vector, and back: those of `torch._utils`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ops import cat

if TYPE_CHECKING:
    from ..tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all, one after the other."""
    return cat([x.reshape(-1) for x in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of `flat` in the shapes of `tensors`: views."""
    return tuple(part.view(x.shape) for part, x in zip(flat.split([x.numel() for x in tensors]), tensors, strict=True))
