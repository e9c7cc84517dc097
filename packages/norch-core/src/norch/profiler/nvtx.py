"""Ranges and marks that NVIDIA's tools show (Nsight Systems): `norch.cuda.nvtx`, and `emit_nvtx` for every op.

NVTX comes with CUDA: a small library that does nothing unless a tool is attached. It is loaded when it is first used.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import observing
from ..observing import DECOMPOSED, INTO, NODE, STEP, Observed, Observer
from ..spec import Spec
from ..tensor_base import TensorBase

__all__ = ["emit_nvtx", "is_available", "mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_NAMES = ("libnvToolsExt.so.1", "libnvToolsExt.so", "nvToolsExt64_1.dll", "libnvtx3interop.so.1", "libnvtx3interop.so")
_library: Any = None


def _places() -> Iterator[str]:
    """What the library may be called: on the loader's path, then in the wheels of NVIDIA."""
    yield from _NAMES
    found = ctypes.util.find_library("nvToolsExt")
    if found is not None:
        yield found
    for root in sys.path:
        for folder in ("nvtx/lib", "cu13/lib", "cu12/lib"):
            for name in _NAMES:
                path = Path(root) / "nvidia" / folder / name
                if path.is_file():
                    yield str(path)


def _load() -> Any:
    """The library. Raises RuntimeError where there is none."""
    global _library
    if _library is None:
        for place in _places():
            try:
                library = ctypes.CDLL(place)
                push, pop, mark = (getattr(library, f"nvtx{name}") for name in ("RangePushA", "RangePop", "MarkA"))
                start, end = library.nvtxRangeStartA, library.nvtxRangeEnd
            except (OSError, AttributeError):
                continue
            push.argtypes, mark.argtypes, start.argtypes = [ctypes.c_char_p], [ctypes.c_char_p], [ctypes.c_char_p]
            pop.argtypes, end.argtypes = [], [ctypes.c_uint64]
            push.restype = pop.restype = ctypes.c_int
            start.restype, mark.restype, end.restype = ctypes.c_uint64, None, None
            _library = library
            break
        else:
            raise RuntimeError(
                "NVTX functions not installed: there is no nvToolsExt library; it comes with CUDA's toolkit, and with "
                "pip install nvidia-nvtx-cu12"
            )
    return _library


def is_available() -> bool:
    """Whether the library is there. Never raises."""
    try:
        _load()
    except RuntimeError:
        return False
    return True


def range_push(msg: str) -> int:
    """Begins a range named `msg` within those of this thread; returns how deep, from 0. RuntimeError without NVTX."""
    depth: int = _load().nvtxRangePushA(str(msg).encode())
    return depth


def range_pop() -> int:
    """Ends the innermost range of this thread; returns how deep it was. RuntimeError without NVTX."""
    depth: int = _load().nvtxRangePop()
    return depth


def range_start(msg: str) -> int:
    """Begins a range named `msg` that any thread may end, by what is returned. RuntimeError without NVTX."""
    handle: int = _load().nvtxRangeStartA(str(msg).encode())
    return handle


def range_end(range_id: int) -> None:
    """Ends the range that `range_start` gave `range_id` for. RuntimeError without NVTX."""
    _load().nvtxRangeEnd(range_id)


def mark(msg: str) -> None:
    """Marks a moment with the text `msg`. RuntimeError without NVTX."""
    _load().nvtxMarkA(str(msg).encode())


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range for a block or a function: `msg.format(*args, **kwargs)`. RuntimeError without NVTX."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


class emit_nvtx:
    """Within this context every op, node of a backward pass and `record_function` is an NVTX range.

    Run the program under `nsys profile`. A node of the backward pass has the number of the op's, as in PyTorch.
    record_shapes: with the shapes of the arguments. enabled: False makes none. Raises RuntimeError without NVTX.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self._ranges = _Ranges(record_shapes)
        self._entered = False

    def __enter__(self) -> emit_nvtx:
        if self._entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        if self.enabled:
            _load()
            self._entered = True
            observing.observe(self._ranges)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._entered:
            self._entered = False
            observing.release(self._ranges)


class _Ranges(Observer):
    """Makes a range of what it is told of."""

    def __init__(self, record_shapes: bool) -> None:
        self.record_shapes = record_shapes

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        if what.kind == DECOMPOSED:
            return False
        text = what.name
        if what.kind == NODE:
            text = f"{args[0].name()}, seq = {args[0].sequence_number}"
        elif what.kind == STEP:
            text = args[0].name
        elif what.kind == INTO:
            text += "_"
        if self.record_shapes:
            shapes = [
                list(a.spec.shape) if isinstance(a, TensorBase) and type(a.spec) is Spec else []
                for a in (*args, *kwargs.values())
            ]
            text += f", sizes = {shapes}"
        range_push(text)
        return True

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token:
            range_pop()
