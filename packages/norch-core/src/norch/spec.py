"""Spec: everything about a tensor but its bytes, and the algebra of views."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, SupportsIndex, overload
from weakref import WeakValueDictionary

from . import shown
from .device import Device
from .dtype import DType
from .errors import DTypeError, IndexError, ShapeError, drawn

Shape = tuple[int, ...]

_item, _new_tuple = tuple.__getitem__, tuple.__new__


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple that prints as PyTorch's does.

    iterable: its sizes, whatever is an index, as tensors of one integer are. Raises TypeError for anything else.
    """

    __slots__ = ()

    def __new__(cls, iterable: Iterable[SupportsIndex] = ()) -> Size:
        return _new_tuple(cls, [n if type(n) is int else operator.index(n) for n in iterable])

    def numel(self) -> int:
        """How many elements a tensor of this shape has."""
        return prod(self)

    # A part of a shape is a shape.
    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: SupportsIndex) -> int: ...
        @overload
        def __getitem__(self, key: slice) -> Size: ...
        def __getitem__(self, key: Any) -> Any: ...
    else:

        def __getitem__(self, key):
            found = _item(self, key)
            return _new_tuple(Size, found) if type(found) is tuple else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple(self) + other) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Size:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented  # a list is made longer by it

    def __mul__(self, count: Any) -> Size:
        return Size(tuple(self) * count)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"{shown.root}.Size({list(self)})"


class Spec:
    """Shape, strides (in elements), dtype and device. Equal specs are the same object, so `is` compares them.

    Derived: `ndim`, `numel`, `is_contiguous`, `nbytes` (what a buffer of its own needs), `overlaps` (two indices may
    share an element, as after `expand`).
    """

    __slots__ = (
        "__weakref__", "device", "dtype", "is_contiguous", "nbytes", "ndim", "numel", "overlaps", "shape", "strides",
    )  # fmt: skip

    shape: Size
    strides: Shape
    dtype: DType
    device: Device
    ndim: int
    numel: int
    is_contiguous: bool
    nbytes: int
    overlaps: bool

    def __new__(cls, shape: Shape, strides: Shape | None, dtype: DType, device: Device) -> Spec:
        """Raises ShapeError for a shape of 2**63 bytes or more, and for such strides."""
        if strides is None:
            strides = contiguous_strides(shape)
        key = (shape, strides, dtype, device)
        found = _interned.get(key)
        if found is not None:
            return found
        with _lock:
            found = _interned.get(key)
            if found is None:
                found = _interned[key] = _make(key)
        _recent.append(found)
        return found

    def like(
        self,
        shape: Shape | None = None,
        strides: Shape | None = None,
        dtype: DType | None = None,
        device: Device | None = None,
    ) -> Spec:
        """A spec of `shape` (this one's by default), contiguous unless `strides` are given."""
        return Spec(
            self.shape if shape is None else shape,
            strides,
            dtype or self.dtype,
            device or self.device,
        )

    def __repr__(self) -> str:
        return f"Spec({tuple(self.shape)}, strides={self.strides}, {self.dtype.name}, '{self.device}')"


_interned: WeakValueDictionary[tuple[Any, ...], Spec] = WeakValueDictionary()
_lock = threading.Lock()
_recent: deque[Spec] = deque(maxlen=256)
"""Specs that no plan holds, kept for the next tensor like the last: making one takes ten times as long."""


def _make(key: tuple[Shape, Shape, DType, Device]) -> Spec:
    shape, strides, dtype, device = key
    if not all(type(n) is int for n in (*shape, *strides)):
        shape, strides = tuple(map(operator.index, shape)), tuple(map(operator.index, strides))
    numel, nbytes = prod(shape), span(shape, strides) * dtype.itemsize
    if max(numel, nbytes) >= 2**63:
        raise ShapeError(f"a tensor of shape {tuple(shape)} has more elements than memory can address")
    if max(map(abs, strides), default=0) * dtype.itemsize >= 2**63:  # of dims of 1 or no elements
        raise ShapeError(f"a tensor of shape {tuple(shape)} cannot have strides {strides}: in bytes, more than 2**63")
    spec = object.__new__(Spec)
    spec.shape, spec.strides, spec.dtype, spec.device = _new_tuple(Size, shape), strides, dtype, device
    spec.ndim, spec.numel, spec.nbytes = len(shape), numel, nbytes
    spec.is_contiguous = _is_contiguous(shape, strides)
    spec.overlaps = not spec.is_contiguous and may_overlap(shape, strides)
    return spec


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides, in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * max(shape[i], 1)
    return tuple(strides)


def _is_contiguous(shape: Shape, strides: Shape) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def span(shape: Shape, strides: Shape) -> int:
    """How many elements lie from the first to the last one of a layout."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def may_overlap(shape: Shape, strides: Shape) -> bool:
    """Whether two indices may share an element. Exact for what views make; errs on True for odd `as_strided` ones."""
    last = 0  # the furthest element of the dims so far
    for stride, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if size == 0:
            return False
        if stride <= last:
            return True
        last += stride * (size - 1)
    return False


def dense_strides(shape: Shape, strides: Shape) -> Shape | None:
    """`strides` if they are a permutation of contiguous ones (no gaps, no overlap), else None."""
    return strides if not may_overlap(shape, strides) and span(shape, strides) == prod(shape) else None


def packed_strides(shape: Shape, strides: Shape) -> Shape:
    """Strides without gaps, the dims in memory in the order that `strides` have."""
    out, step = [0] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        out[d] = step
        step *= shape[d]
    return tuple(out)


def elementwise_layout(shape: Shape, specs: Sequence[Any]) -> Shape | None:
    """A result's strides, by PyTorch's rule: without gaps, the dims in memory in the order that the operands' have, the
    first operand's where they differ. None for contiguous ones."""
    found = [s for s in specs if type(s) is Spec]
    if all(s.is_contiguous for s in found):
        return None
    if all(s.shape == shape for s in found):
        if all(s.strides == found[0].strides for s in found):
            dense = dense_strides(shape, found[0].strides)
            if dense is not None:
                return dense
        last = channels_last_strides(shape)
        if last is not None and all(is_packed(shape, s.strides, last) for s in found):
            return last
    order = _memory_order(shape, [expand_strides(s.shape, s.strides, shape) for s in found])
    if order == list(range(len(shape) - 1, -1, -1)):
        return None
    out, step = [0] * len(shape), 1
    for d in order:
        out[d] = step
        step *= shape[d]
    return tuple(out)


def _memory_order(shape: Shape, operands: Sequence[Shape]) -> list[int]:
    """The dims from the one that varies fastest: sorted, by insertion, by the first operand's strides that tell."""

    def compare(a: int, b: int) -> int:
        for strides in operands:
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if shape[a] > shape[b]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            told = compare(order[j], order[at])
            if told > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif told < 0:
                break
    return order


def channels_last_strides(shape: Shape) -> Shape | None:
    """The strides of (n, c, h, w) or (n, c, d, h, w) whose channels vary fastest; None for other numbers of dims."""
    if len(shape) not in (4, 5):
        return None
    out, step = [0] * len(shape), 1
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        out[d] = step
        step *= max(shape[d], 1)
    return tuple(out)


def is_packed(shape: Shape, strides: Shape, wanted: Shape) -> bool:
    """Whether `strides` are `wanted` in every dim that has more than one element."""
    return all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


def is_channels_last(spec: Spec) -> bool:
    """Whether PyTorch would take an image or volume for channels-last, by its strides: row-major where both fit."""
    shape, strides = spec.shape, spec.strides
    if spec.ndim not in (4, 5) or not spec.numel or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(spec.ndim - 1, 1, -1), 0):
        if strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * shape[d]
    return True


def image_layout(shape: Shape, *specs: Spec) -> Shape | None:
    """The strides of an op's result on images: channels-last where one of `specs` is, else None, for contiguous."""
    return channels_last_strides(shape) if any(map(is_channels_last, specs)) else None


def reshape_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides that show the same elements as `new`, or None where only a copy can.

    Runs of dims that lie in memory like one long dim are merged, then split again; each new dim must fit within a run.
    """
    if 0 in shape:
        return contiguous_strides(new)
    runs: list[list[int]] = []  # [size, stride of the last dim], outermost first
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = [runs[-1][0] * size, stride]
        else:
            runs.append([size, stride])
    result = [1] * len(new)
    left, step = runs.pop() if runs else (1, 1)
    for i in range(len(new) - 1, -1, -1):
        size = new[i]
        if size == 1:
            result[i] = step
            continue
        if left == 1 and runs:
            left, step = runs.pop()
        if left % size:
            return None
        result[i] = step
        left //= size
        step *= size
    return tuple(result)


def broadcast_shapes(*shapes: Shape, op: str = "broadcast_shapes") -> Shape:
    """The shape that all broadcast to, by NumPy's rules. Raises ShapeError, naming `op` and every shape."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return tuple(shapes[0])
    result: list[int] = [1] * max(map(len, shapes), default=0)
    for shape in map(tuple, shapes):  # whose items cost less than those of Size
        for i in range(-len(shape), 0):
            size = shape[i]
            if size != 1 and size != result[i]:
                if result[i] != 1:
                    raise ShapeError(
                        f"{op}(): shapes {' and '.join(str(tuple(s)) for s in shapes)} do not broadcast: "
                        f"dim {i} has sizes {result[i]} and {size}" + _drawn_operands(shapes, i)
                    )
                result[i] = size
    return tuple(result)


def _drawn_operands(shapes: tuple[Shape, ...], dim: int) -> str:
    names = ("input", "other") if len(shapes) == 2 else [f"operand {i}" for i in range(len(shapes))]
    marks = [(dim,) if len(s) >= -dim and s[dim] != 1 else () for s in shapes]
    return drawn(*zip(names, shapes, marks, strict=True))


def expand_strides(shape: Shape, strides: Shape, new: Shape) -> Shape:
    """The strides of `shape` broadcast to `new`: 0 in each dim that is repeated."""
    if shape == new:
        return strides
    lead = len(new) - len(shape)
    return (0,) * lead + tuple(0 if n == 1 != m else s for n, s, m in zip(shape, strides, new[lead:], strict=True))


def as_int(value: Any, op: str, what: str) -> int:
    """`value` as an int (Python and NumPy integers, integer 0-d tensors). Raises DTypeError naming `op` and `what`."""
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{op}(): {what} must be an int, got {value!r} of type {type(value).__name__}") from None


def wrap_dim(dim: Any, ndim: int, op: str) -> int:
    """`dim` counted from the front. Raises IndexError outside [-ndim, ndim); a 0-d tensor has dims 0 and -1."""
    at = dim if type(dim) is int else as_int(dim, op, "dim")
    rank = ndim or 1
    if -rank <= at < rank:
        return at % rank
    raise IndexError(f"{op}(): dim {at} is out of range for {ndim} dims (expected {-rank} to {rank - 1})")


def wrap_dims(dims: Any, ndim: int, op: str) -> Shape:
    """Dims as an ascending tuple; None means all of them. Raises IndexError, and ShapeError for a repeated dim."""
    if dims is None:
        return tuple(range(ndim))
    wrapped = [wrap_dim(d, ndim, op) for d in (dims if isinstance(dims, tuple | list) else (dims,))]
    if len(set(wrapped)) != len(wrapped):
        raise ShapeError(f"{op}(): dim appears twice in {dims}")
    return tuple(sorted(d for d in wrapped if d < ndim))


def as_shape(size: Any, op: str) -> Shape:
    """A shape from an int, a sequence of ints, or `*args` that hold either. Raises ShapeError for a negative size."""
    if isinstance(size, tuple | list) and len(size) == 1 and isinstance(size[0], tuple | list):
        size = size[0]
    if not isinstance(size, tuple | list):
        size = (size,)
    shape = tuple([as_int(n, op, "size") for n in size])
    if shape and min(shape) < 0:
        raise ShapeError(f"{op}(): sizes cannot be negative, got {shape}")
    if prod(shape) >= 2**60:
        raise ShapeError(f"{op}(): shape {shape} has more elements than memory can address")
    return shape


def _product(shape: Shape, written: str) -> str:
    """What is said of sizes whose product is not `numel`."""
    if shape.count(-1) > 1:
        return "and one size alone may be -1"
    if -1 in shape:
        rest = -prod(shape)
        return f"which {rest} does not divide" if rest > 0 else "and nothing can be told of -1 beside a size of 0"
    return f"not {written}{f' = {prod(shape)}' if '*' in written else ''}"


def infer_size(shape: Shape, numel: int, op: str, source: Shape) -> Shape:
    """`shape` with its one -1 worked out from `numel`. Raises ShapeError where the element counts differ."""
    if shape.count(-1) == 1:
        rest = -prod(shape)
        if rest and numel % rest == 0:
            shape = tuple(numel // rest if n == -1 else n for n in shape)
    if prod(shape) != numel or any(n < 0 for n in shape):
        counted = "*".join([str(n) for n in source if n != 1]) or "1"
        wanted = "*".join([str(n) for n in shape if n != 1]) or "1"
        raise ShapeError(
            f"{op}(): shape {shape} does not fit {numel} elements of shape {tuple(source)}"
            f"\n    {counted} = {numel}, {_product(shape, wanted)}"
        )
    return shape
