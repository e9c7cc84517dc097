"""Several tensors as one vector, and back, or in groups: those of `torch._utils` and `torch.utils._foreach_utils`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..ops import cat

if TYPE_CHECKING:
    from ..tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all, one after the other."""
    return cat([x.reshape(-1) for x in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of `flat` in the shapes of `tensors`: views."""
    return tuple(part.view(x.shape) for part, x in zip(flat.split([x.numel() for x in tensors]), tensors, strict=True))


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Groups of tensors of one type, in their order, of no more than `size_limit` bytes where more than one."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        group = groups.setdefault((tensor.device, tensor.dtype, tensor.is_sparse), [])
        if group and sum(_nbytes(x) for x in (*group, tensor)) > size_limit:
            yield group.copy()
            group.clear()
        group.append(tensor)
    yield from filter(None, groups.values())


def _nbytes(tensor: Any) -> int:
    """What is stored of a tensor, of a sparse one its indices and values."""
    parts = (tensor.indices(), tensor.values()) if tensor.is_sparse else (tensor,)
    return sum(x.numel() * x.element_size() for x in parts)


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[Any, tuple[list[list[Any]], list[int]]]:
    """The lists cut into those of one device and dtype, by the first of them; `with_indices` with their old places."""
    groups: dict[Any, tuple[list[list[Any]], list[int]]] = {}
    whole = [each or [None] * len(tensorlistlist[0]) for each in tensorlistlist]
    for place, row in enumerate(zip(*whole, strict=True)):
        lists, indices = groups.setdefault((row[0].device, row[0].dtype), ([[] for _ in tensorlistlist], []))
        indices += [place] * with_indices
        for part, value in zip(lists, row, strict=True):
            part.append(value)
    return groups
