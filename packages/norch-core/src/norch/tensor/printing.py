"""The text of a tensor: what `repr(t)` gives, character for character what PyTorch prints.

Three steps: `_pick` chooses the elements to show, `element_texts` writes each of them at one common width, `_nest` puts
the brackets, the line breaks and the dots around them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..dtype import bool_, get_default_dtype, int64

Array = np.ndarray[Any, Any]


class _Options:
    __slots__ = ("edgeitems", "linewidth", "precision", "sci_mode", "threshold")

    def __init__(self) -> None:
        self.precision, self.edgeitems, self.linewidth = 4, 3, 80
        self.threshold: float = 1000
        self.sci_mode: bool | None = None  # None: decided by the values


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
_options = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print; what is None stays as it is, but `sci_mode` goes back to automatic, as in PyTorch.

    `precision`: digits after the point. `threshold`: above this many elements, only `edgeitems` at each end of a dim
    are shown. `linewidth`: where lines break. `profile` ("default", "short" or "full") sets those four, and the others
    given override it; another changes nothing, as in PyTorch. `sci_mode`: scientific notation always (True) or never
    (False).
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    chosen = _PROFILES.get(profile or "", {})
    for name, value in {**chosen, **{k: v for k, v in given.items() if v is not None}}.items():
        setattr(_options, name, value)
    _options.sci_mode = sci_mode


def tensor_repr(tensor: Any, *, tensor_contents: str | None = None) -> str:
    """The `repr` of a tensor: its values, then whatever `norch.tensor(values)` would not give by itself.

    tensor_contents: what stands for the values.
    """
    shape = tuple(tensor.shape)
    empty = 0 in shape
    kind = type(tensor)
    head = f"{kind.__name__ if getattr(kind, '_overrides', False) else 'tensor'}("
    meta = tensor.device.is_meta
    if tensor_contents is not None:
        body = tensor_contents
    else:
        body = "..." if meta else "[]" if empty else format_array(tensor.detach().cpu().numpy(), len(head))

    notes = []
    if tensor.device.type != "cpu":
        notes.append(f"device='{tensor.device}'")
    if meta or ((len(shape) != 1) if empty else (_options.edgeitems == 0)):  # the brackets do not tell
        notes.append(f"size={shape}")
    implied = (get_default_dtype(),) if empty or meta else (get_default_dtype(), int64, bool_)
    if tensor.dtype not in implied:
        notes.append(f"dtype={tensor.dtype!r}")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")

    return with_notes(head + body, notes, len(head))


def with_notes(text: str, notes: list[str], indent: int, break_line: bool = False) -> str:
    """The text and, behind it, what else is to be said, closed by a bracket. break_line: the first on a new line."""
    column = len(text) - text.rfind("\n") + 1  # where a note would start, PyTorch's way: 1 for the line break
    for note in notes:
        if break_line or column + len(note) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + note
            column, break_line = indent + len(note), False
        else:
            text += ", " + note
            column += len(note) + 2
    return text + ")"


def format_array(values: Array, indent: int) -> str:
    """The values in brackets, as they stand `indent` columns from the left."""
    cut = [False] * values.ndim
    if values.size > _options.threshold:
        cut = [n > 2 * _options.edgeitems for n in values.shape]
        if any(cut):
            if _options.edgeitems == 0:
                return "[...]"
            values = _pick(values, cut)
    texts, width = element_texts(values)
    return _nest(iter(texts), values.shape, cut, indent, width)


def _pick(values: Array, cut: list[bool]) -> Array:
    """A copy of the elements at the edges of the dims to cut."""
    edge = _options.edgeitems
    places = ([*range(edge), *range(n - edge, n)] if short else [*range(n)] for n, short in zip(values.shape, cut))
    picked: Array = values[np.ix_(*places)]
    return picked


def element_texts(values: Array) -> tuple[list[str], int]:
    """Each element as text, in order, padded to a common width; and that width."""
    if values.dtype.kind in "biu":
        texts = [str(x) for x in values.ravel().tolist()]
        width = max(map(len, texts), default=0)
    else:
        if values.dtype.kind != "f" or values.dtype.itemsize == 1:
            values = values.astype(np.float32)  # bfloat16 and float8
        numbers = values.ravel().tolist()
        # Only these choose notation and width: zero, inf and nan take what they are given, and may stick out.
        sizes = [abs(x) for x in numbers if x != 0 and math.isfinite(x)]
        integral = all(x.is_integer() for x in sizes)
        if _scientific(sizes):
            spec, point = f".{_options.precision}e", ""
        elif integral:
            spec, point = ".0f", "."
        else:
            spec, point = f".{_options.precision}f", ""
        texts = [format(x, spec) + point if math.isfinite(x) else str(x) for x in numbers]
        width = max((len(text) for x, text in zip(numbers, texts) if x != 0 and math.isfinite(x)), default=1)
    return [text.rjust(width) for text in texts], width


def _scientific(sizes: list[float]) -> bool:
    """Whether these magnitudes, none of them zero, need scientific notation."""
    if not sizes:
        return False
    if _options.sci_mode is not None:
        return _options.sci_mode
    low, high = min(sizes), max(sizes)
    return high / low > 1000 or high > 1e8 or low < 1e-4


def _nest(texts: Iterator[str], shape: tuple[int, ...], cut: list[bool], indent: int, width: int) -> str:
    """The next elements of `texts`, as many as `shape` holds, in brackets, with dots in the middle of each cut dim."""
    if not shape:
        return next(texts)
    if len(shape) > 1:
        parts = [_nest(texts, shape[1:], cut[1:], indent + 1, width) for _ in range(shape[0])]
        if cut[0]:
            parts.insert(_options.edgeitems, "...")
        between = "," + "\n" * (len(shape) - 1) + " " * (indent + 1)
        return "[" + between.join(parts) + "]"
    row = [next(texts) for _ in range(shape[0])]
    if cut[0]:
        row.insert(_options.edgeitems, " ...")
    count = max(1, (_options.linewidth - indent) // (width + 2))  # to a line
    lines = (", ".join(row[i : i + count]) for i in range(0, len(row), count))
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
