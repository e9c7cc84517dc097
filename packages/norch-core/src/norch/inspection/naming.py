"""What a program calls its tensors, and which of them share a storage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..living import kinds_of, living
from ..source_lines import own_files
from ..tensor_base import TensorBase

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_SIZE = 1000
"""Elements up to which a list or dict of the program is searched."""


def caller() -> FrameType | None:
    """The nearest frame that is not norch's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and own_files[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def names_in(frame: FrameType | None) -> dict[int, str]:
    """By id, the names of the tensors that a program at `frame` can name."""
    found: dict[int, str] = {}
    for name, tensor in named_in(frame):
        found.setdefault(id(tensor), name)
    return found


def named_in(frame: FrameType | None) -> list[tuple[str, Any]]:
    """The tensors that a program at `frame` can name, with their names: variables of its functions and modules, what
    lists and dicts among them hold, parameters and buffers of models."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    while frame is not None:
        if not own_files[frame.f_code.co_filename]:
            if frame.f_locals is not frame.f_globals:
                found += _named(frame.f_locals)
            if id(frame.f_globals) not in seen:
                seen.add(id(frame.f_globals))
                found += _named(frame.f_globals)
            forget_variables(frame)
        frame = frame.f_back
    return found


def forget_variables(frame: FrameType | None) -> None:
    """Before Python 3.13 a frame whose variables were looked at has a copy of them, which would keep them alive as long
    as the call lasts. It is left alone where the program has it too, from `locals()`, or a debugger."""
    if frame is not None and sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
        variables = frame.f_locals
        if sys.getrefcount(variables) == _FRAMES_OWN and sys.gettrace() is None:
            variables.clear()


_FRAMES_OWN = 3
"""What `getrefcount` says there of a dict that only the frame holds."""


def _named(scope: Any) -> Iterator[tuple[str, Any]]:
    """Variables first; a notebook's own names, such as `_12`, last."""
    items = sorted(scope.items(), key=lambda item: item[0].startswith("_"))
    for name, value in items:
        if isinstance(value, TensorBase):
            yield name, value
    for name, value in items:
        if name.startswith("_"):
            break
        if type(value) in (list, tuple) and len(value) <= MAX_SIZE:
            yield from [(f"{name}[{i}]", x) for i, x in enumerate(value) if isinstance(x, TensorBase)]
        elif type(value) is dict and len(value) <= MAX_SIZE and name != "Out":
            yield from [(f"{name}[{k!r}]", x) for k, x in value.items() if isinstance(x, TensorBase)]
        elif not isinstance(value, type) and callable(getattr(type(value), "named_parameters", None)):
            try:
                yield from [
                    (f"{name}.{inner}", x)
                    for named in ("named_parameters", "named_buffers")
                    for inner, x in getattr(value, named)()
                ]
            except Exception:  # a model that is half made
                continue


def others_on(tensor: Tensor) -> list[Tensor]:
    """The other living tensors on the same storage, the one that it is a view of first."""
    buffer = tensor.buffer
    found = [t for t in living(kinds_of(TensorBase)) if t is not tensor and getattr(t, "buffer", None) is buffer]
    found.sort(key=lambda t: (t is not tensor.base, t.base is not None))
    return found
