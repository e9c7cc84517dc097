"""Signatures: what of a call decides which program it may run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from .. import switches
from ..amp.state import state as autocast
from ..autograd.graph import Leaf, is_recording, resolve
from ..autograd.mode import is_inference_mode_enabled
from ..device import Device
from ..dtype import DType
from ..func.trees import REGISTERED
from ..ops.generator import chosen_generator
from ..spec import span
from ..tensor_base import TensorBase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..spec import Spec
    from ..tensor import Tensor

VALUES = (int, bool, str, bytes, type(None), DType, Device)
"""Types of arguments and results that are the same where they are equal. Floats are by their bits."""


class Same:
    """An argument that is no value: it is the same only as itself. It is not kept alive where that can be."""

    __slots__ = ("get", "number")

    def __init__(self, value: Any) -> None:
        self.number = id(value)
        try:
            self.get: Any = ref(value)
        except TypeError:
            self.get = lambda: value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and (found := self.get()) is not None and found is other.get()

    def __hash__(self) -> int:
        return self.number


def modes() -> tuple[Any, ...]:
    """What else a step may depend on, of this thread and of the process."""
    cast = tuple(sorted(autocast.active.items())) if autocast.active else None
    generator = chosen_generator.get()
    chosen = None if generator is None else Same(generator)
    return is_recording(), is_inference_mode_enabled(), switches.fingerprint, cast, chosen


def key_of(leaves: Sequence[Any], structure: Any) -> Any:
    """What a call has in common with those that may run the same program: a float may be another."""
    tensors: list[Any] = [x for x in leaves if isinstance(x, TensorBase)]
    return tuple(map(_key_of_leaf, leaves)), repr(structure), shared(tensors), modes()


def mixed_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What calls have in common that may run the same program, if objects among the arguments are the same too; None
    where there are containers, or numbers that may be others."""
    found: list[Any] = [len(args), tuple(kwargs)]
    for x in (*args, *kwargs.values()):
        kind = type(x)
        if isinstance(x, TensorBase):
            found.append(x.spec)
        elif kind in VALUES:
            found += (kind, x)
        elif isinstance(x, _NEVER_QUICK) or kind in REGISTERED:
            return None
        else:
            found.append(id(x))
    return (*found, is_recording(), switches.fingerprint)


_NEVER_QUICK = (list, tuple, dict, float, np.generic)


def with_floats(key: Any, leaves: Sequence[Any]) -> Any:
    """The key for these floats alone."""
    return key, tuple([repr(x) for x in leaves if type(x) is float])


def alike(a: Any, b: Any) -> bool:
    """Whether two keys differ in nothing but which objects there are among the arguments."""
    if len(a) < 4 or a[1:] != b[1:] or len(a[0]) != len(b[0]):
        return False
    return all(x == y or type(x) is type(y) is Same for x, y in zip(a[0], b[0], strict=True))


def _key_of_leaf(x: Any) -> Any:
    if isinstance(x, TensorBase):
        node = None if x.node is None else resolve(x)  # type: ignore[arg-type]
        if node is None:
            return canonical(x.spec)
        # A leaf's gradient is part of what a step may do: another leaf is another step.
        return x.spec, Same(x) if type(node) is Leaf else node is not None
    if type(x) in VALUES:
        return type(x), x
    if type(x) is float:
        return float if isfinite(x) else (float, repr(x))
    if isinstance(x, np.generic):
        return type(x), repr(x)
    return Same(x)


def canonical(spec: Spec) -> Spec:
    """A spec for all tensors like this one: a stride over one element says nothing, and differs from slice to slice.

    Where ops are recorded it is this spec alone, since the backward pass will see the tensor as it is.
    """
    return spec.like() if 1 in spec.shape and spec.is_contiguous and not is_recording() else spec


@contextmanager
def canonically(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Within this context arguments have canonical specs, which the kernels that are recorded are made for."""
    before = [(t, t.spec, spec) for t in tensors if resolve(t) is None and (spec := canonical(t.spec)) is not t.spec]
    for tensor, _, spec in before:
        tensor.spec = spec
    try:
        yield
    finally:
        for tensor, was, spec in before:
            if tensor.spec is spec:
                tensor.spec = was


def shared(tensors: Sequence[Tensor]) -> Any:
    """Which tensors share memory, None where none do: for each the first on its memory, and how far behind it."""
    buffers = [x.buffer for x in tensors]
    if len({id(b) for b in buffers}) == len(buffers):
        return None
    found = []
    for tensor in tensors:
        first = next(i for i, b in enumerate(buffers) if b is tensor.buffer)
        others = [t for t in tensors if t.buffer is tensor.buffer]
        found.append((first, None if are_apart(others) else extent(tensor)[0] - extent(tensors[first])[0]))
    return tuple(found)


def extent(tensor: Tensor) -> tuple[int, int]:
    """Where in its memory a tensor begins and ends, in bytes."""
    spec = tensor.spec
    size = spec.dtype.itemsize
    return tensor.offset * size, (tensor.offset + span(spec.shape, spec.strides)) * size


def are_apart(tensors: Sequence[Tensor]) -> bool:
    """Whether no two of these tensors, all on one memory, have a byte in common."""
    found = sorted(map(extent, tensors))
    return all(end <= begin and first < begin for (first, end), (begin, _) in pairwise(found))


def described(leaves: Sequence[Any], floats: bool) -> str:
    """The arguments of a signature, as text; floats: with their values."""
    return f"({', '.join('float' if type(x) is float and not floats else _described(x) for x in leaves)})"


def _described(x: Any) -> str:
    if isinstance(x, TensorBase):
        spec = x.spec
        return f"{spec.dtype}{list(spec.shape)}" + ("" if spec.device.type == "cpu" else f" on {spec.device}")
    return repr(x) if type(x) in (*VALUES, float) else type(x).__name__
