"""How a tensor lies in memory: which elements of its storage it shows, at which index, and which dims merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .. import switches
from ..spec import Shape, Spec, contiguous_strides, span
from ..tensor.printing import element_texts

if TYPE_CHECKING:
    from ..tensor import Tensor

WHOLE = 24
"""Elements up to which the whole storage is shown."""

SOME = 12
"""How many of a larger storage, about."""

MANY = 1000
"""How many indices that show one element are counted."""


@dataclass(frozen=True)
class Cell:
    """An element of the storage: its position, its value as text, and at how many indices the tensor shows it.

    index: the first of them; None for an element that the tensor does not show. value: "?" where it cannot be read.
    """

    position: int
    value: str
    index: Shape | None
    count: int


@dataclass(frozen=True)
class Layout:
    """A tensor's place in its storage as it is now; it holds on to neither.

    size: how many elements of the dtype the storage has. cells: those that are shown, in order; of a large storage, the
    neighbourhood of the tensor's first and last elements.
    """

    spec: Spec
    offset: int
    size: int
    cells: tuple[Cell, ...]

    @property
    def is_overlapping(self) -> bool:
        """Whether several indices show one element."""
        return self.spec.overlaps and self.spec.numel > 1

    def position(self, order: int) -> int:
        """Where the element is that comes `order`-th in row-major order."""
        return self.offset + _distance(self.spec, order)


def layout_of(tensor: Tensor) -> Layout:
    """The layout of a tensor, with the values of its cells."""
    spec, offset = tensor.spec, tensor.offset
    size = int(tensor.buffer.nbytes) // spec.dtype.itemsize
    places = shown(spec, offset, size)
    cells = []
    for position, value in zip(places, _values(tensor, places)):
        index, count = index_at(spec.shape, spec.strides, position - offset)
        cells.append(Cell(position, value, index, count))
    return Layout(spec, offset, size, tuple(cells))


def shown(spec: Spec, offset: int, size: int) -> list[int]:
    """The positions of the elements to show of a storage of `size`."""
    if size <= WHOLE:
        return list(range(size))
    found = {0, size - 1}
    if not spec.numel:
        return sorted(found)
    # The last element, the second one along each dim, and as many of the first ones as there is room for.
    steps = [offset + s for n, s in zip(spec.shape, spec.strides, strict=True) if n > 1][-4:]
    firsts = [offset + _distance(spec, n) for n in range(min(spec.numel, 4 * SOME))]
    for position in [offset + span(spec.shape, spec.strides) - 1, *steps, *firsts]:
        if len(found) > SOME:
            break
        found |= {p for p in (position - 1, position, position + 1) if 0 <= p < size}
    return sorted(found)


def _distance(spec: Spec, order: int) -> int:
    """How far behind the first element that one is which comes `order`-th in row-major order."""
    at = 0
    for size, stride in zip(reversed(spec.shape), reversed(spec.strides), strict=True):
        order, i = divmod(order, size)
        at += i * stride
    return at


def index_at(shape: Shape, strides: Shape, at: int) -> tuple[Shape | None, int]:
    """The first index, in row-major order, of the element `at` behind the first one, and how many indices it has.

    More than `MANY` are not counted.
    """
    if 0 in shape or at < 0:
        return None, 0
    dims = sorted([d for d, n in enumerate(shape) if n > 1 and strides[d]], key=lambda d: -strides[d])
    room = [sum([(shape[d] - 1) * strides[d] for d in dims[k:]]) for k in range(len(dims) + 1)]
    index, found, effort = [0] * len(shape), [], 0

    def search(k: int, rest: int) -> None:
        nonlocal effort
        if k == len(dims):
            if rest == 0:
                found.append(tuple(index))
            return
        size, stride = shape[dims[k]], strides[dims[k]]
        for i in range(max(0, -((room[k + 1] - rest) // stride)), min(size - 1, rest // stride) + 1):
            effort += 1
            if len(found) > MANY or effort > 20 * MANY:
                break
            index[dims[k]] = i
            search(k + 1, rest - i * stride)

    search(0, at)
    repeats = prod([n for n, s in zip(shape, strides, strict=True) if n > 1 and not s])
    return (min(found), len(found) * repeats) if found else (None, 0)


def _values(tensor: Tensor, places: Sequence[int]) -> list[str]:
    """The elements at some positions of the storage, as text: neighbours are read in one piece."""
    spec = tensor.spec
    if spec.device.is_meta or switches.noting is not None or not places:
        return ["?"] * len(places)  # a step that is being captured must not read values
    size, backend = spec.dtype.itemsize, spec.device.backend
    data = bytearray(len(places) * size)
    view, start = memoryview(data), 0
    for i, position in enumerate(places):
        if i + 1 == len(places) or places[i + 1] != position + 1:
            backend.copy_out(tensor.buffer, places[start] * size, view[start * size : (i + 1) * size])
            start = i + 1
    return [text.strip() for text in element_texts(np.frombuffer(data, spec.dtype.numpy))[0]]


# --- Dims that merge ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two neighbouring dims (those of size 1 left out), and whether they lie in memory like one long dim."""

    dims: tuple[int, int]
    merges: bool
    why: str


def pairs(spec: Spec) -> list[Pair]:
    """Which neighbouring dims merge: those where the outer stride is the inner one's times its size."""
    dims = [d for d, n in enumerate(spec.shape) if n != 1]
    found = []
    for a, b in pairwise(dims):
        outer, inner, size = spec.strides[a], spec.strides[b], spec.shape[b]
        merges = outer == inner * size
        why = f"stride {outer} {'=' if merges else 'is not'} {size} x {inner}"
        found.append(Pair((a, b), merges, why))
    return found


def runs(spec: Spec) -> list[tuple[int, int]]:
    """Size and stride of what dims merge into, outermost first."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(spec.shape, spec.strides, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return found


def row_major(spec: Spec) -> Shape:
    """The strides of a contiguous tensor of that shape."""
    return contiguous_strides(spec.shape)


def index_formula(spec: Spec, offset: int) -> tuple[str, str]:
    """An index, and the position that it stands for: "[i, j]" and "4 + 3 i + j"."""
    letters = "ijklmn" if spec.ndim <= 6 else ""
    names = [letters[d] if letters else f"i{d}" for d in range(spec.ndim)]
    terms = [str(offset)] if offset else []
    for name, size, stride in zip(names, spec.shape, spec.strides, strict=True):
        if stride and size != 1:
            terms.append(name if stride == 1 else f"{stride} {name}")
    return f"[{', '.join(names)}]" if names else "", " + ".join(terms) or "0"
