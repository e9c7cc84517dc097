"""`norch.explain` of a function: what each call of norch in it does to the memory of its tensors.

Ops are observed where all tools observe them (`norch.observing`); those that one call in the program makes are a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from dis import opmap
from linecache import checkcache, getline
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..dispatch.op import all_ops
from ..errors import NorchError
from ..observing import DECOMPOSED, IN_PLACE, INTO, NODE, Observed, Observer, observed_by
from ..source_lines import own_files
from ..spec import Spec
from ..tensor_base import TensorBase
from .naming import names_in
from .reasons import why_new, why_view
from .storage import Layout, layout_of
from .strips import walk_drawing
from .svg import Drawing, Drawn
from .text import walk_text

if TYPE_CHECKING:
    from types import CodeType, FrameType


MAX_STEPS = 200
"""Steps that are noted; those beyond are counted."""

VIEW, COPY, COMPUTED, WRITTEN, RAISED = "view", "copy", "computed", "in place", "raises"


@dataclass
class Step:
    """A call of norch, and what came of it.

    call: its source, or the name of an op where there is none. ops: the ops that it ran. before: the layouts of the
    tensors that it was given, by name ("" where they have none); after: that of its result. kind: "view" (on the memory
    of what it was given), "copy" (the same elements in memory of their own), "computed", "in place" or "raises".
    nbytes: of new memory.
    """

    call: str
    ops: tuple[str, ...]
    before: tuple[tuple[str, Layout], ...]
    after: Layout | None
    kind: str
    why: str
    nbytes: int


@dataclass(repr=False)
class Walk(Drawn):
    """The steps of a function, as `norch.explain(function)` found them. `str()` is the text, notebooks show the
    picture, `save` writes it. left_out: steps beyond the first 200."""

    steps: tuple[Step, ...]
    left_out: int = 0

    def __str__(self) -> str:
        return walk_text(self)

    def drawing(self) -> Drawing:
        return walk_drawing(self)


@dataclass
class _Open:
    """A step while it goes on. inner: the frame of norch that the program called; it is held so that no other call has
    it. made: what its ops gave, weakly."""

    code: CodeType
    at: int
    inner: FrameType | None
    ops: list[str] = field(default_factory=list)
    given: list[tuple[Any, str, Layout]] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    written: bool = False
    last: Any = None
    spec: tuple[Spec, int] | None = None
    shares: bool = False

    def live(self) -> list[Any]:
        """What it was given and is still there."""
        return [t for weak, *_ in self.given if (t := weak()) is not None]


class _Walker(Observer):
    def __init__(self, names: dict[int, str]) -> None:
        self.thread, self.names = get_ident(), names
        self.steps: list[Step] = []
        self.left_out = self.depth = 0
        self.open: _Open | None = None

    # --- What the observed ops say ---

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if get_ident() != self.thread or what.kind in (DECOMPOSED, NODE):
            return False
        self.depth += 1
        if self.depth > 1:
            return True
        code, at, inner = _outside(sys._getframe(1))
        if self.open is None or self.open.inner is not inner:
            self.close()
            self.open = _Open(code, at, inner)
        step = self.open
        step.ops.append(args[0].name if what.kind == IN_PLACE else what.name)
        if len(self.steps) >= MAX_STEPS:
            return True
        for tensor in _tensors((args, tuple(kwargs.values()))):
            if not any(known() is tensor for known in (*step.made, *[weak for weak, *_ in step.given])):
                if type(tensor.spec) is Spec:
                    step.given.append((ref(tensor), self.names.get(id(tensor), ""), layout_of(tensor)))
        target = args[0] if what.kind == INTO else args[1] if what.kind == IN_PLACE else None
        if isinstance(target, TensorBase) and any(t.buffer is target.buffer for t in step.live()):
            step.written = True
        return True

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        if not token:
            return
        self.depth -= 1
        step = self.open
        if self.depth or step is None:
            return
        for tensor in _tensors(result):
            if type(tensor.spec) is not Spec:
                continue
            given = step.live()
            if any(t is tensor for t in given):
                step.written = True
            step.last, step.spec = ref(tensor), (tensor.spec, tensor.offset)
            step.shares = any(t.buffer is tensor.buffer for t in given)
            step.made.append(ref(tensor))

    # --- Steps ---

    def close(self, error: NorchError | None = None) -> None:
        """Ends the step that is open. Its result is read now, while what comes next still holds it."""
        step, self.open = self.open, None
        if step is None:
            return
        if len(self.steps) >= MAX_STEPS:
            self.left_out += 1
            return
        tensor = None if step.last is None else step.last()
        after = None
        if error is None and step.spec is not None:
            after = Layout(*step.spec, 0, ()) if tensor is None else layout_of(tensor)
        self.steps.append(_judged(step, after, error))

    def fail(self, error: NorchError) -> None:
        """Notes that a call of norch raised."""
        trace, found = error.__traceback__, None
        while trace is not None:
            if not own_files[trace.tb_frame.f_code.co_filename]:
                found = trace.tb_frame.f_code, trace.tb_lasti
            trace = trace.tb_next
        if found is not None and (self.open is None or (self.open.code, self.open.at) != found):
            self.close()
            self.open = _Open(*found, None)
        self.close(error)


def _judged(step: _Open, after: Layout | None, error: NorchError | None) -> Step:
    before = tuple([(name, layout) for _, name, layout in step.given])
    first = before[0][1] if before else None
    kind, why, nbytes = COMPUTED, "", 0
    if error is not None:
        kind, why = RAISED, f"{type(error).__name__}: {error}"
    elif step.written:
        kind, why = WRITTEN, "written into memory that was there"
    elif after is not None and step.shares and first is not None:
        kind, why = VIEW, why_view(first, after)
    elif after is not None:
        nbytes = after.spec.nbytes
        if set(step.ops) <= _moving() and first is not None:
            kind = COPY
        why = why_new(first if kind == COPY else None, after)
    else:
        why = "no tensor is its result"
    return Step(_source(step.code, step.at) or step.ops[0], tuple(step.ops), before, after, kind, why, nbytes)


def _moving() -> set[str]:
    """Ops whose result has the elements of what they are given, and nothing else."""
    return {op.name for op in all_ops() if op.kind == "view"} | {"copy"}


def walk(function: Callable[[], Any], frame: FrameType | None) -> Walk:
    """Calls the function and notes its steps. An error of norch is the last of them; others are raised."""
    walker = _Walker(names_in(frame))
    result = None
    try:
        with observed_by(walker):
            result = function()
            walker.close()
    except NorchError as error:
        walker.fail(error)
        error.__traceback__ = None  # which holds the tensors of the calls
    del result
    return Walk(tuple(walker.steps), walker.left_out)


def _outside(frame: FrameType | None) -> tuple[CodeType, int, FrameType | None]:
    """The nearest code outside of norch and how far it is, and the frame of norch that it called."""
    inner = frame
    while frame is not None and own_files[frame.f_code.co_filename]:
        inner, frame = frame, frame.f_back
    found = frame or inner
    assert found is not None
    return found.f_code, found.f_lasti, inner


def _source(code: CodeType, at: int) -> str:
    """The source of the call, on one line."""
    places = list(code.co_positions())
    line, end_line, column, end_column = places[at // 2] if at // 2 < len(places) else (None,) * 4
    if line is None or end_line is None or column is None or end_column is None:
        return ""
    checkcache(code.co_filename)
    lines = [getline(code.co_filename, n) for n in range(line, end_line + 1)]
    if not all(lines):
        return ""
    # Columns are counted in bytes.
    lines[-1] = lines[-1].encode()[:end_column].decode()
    lines[0] = lines[0].encode()[column:].decode()
    text = " ".join(" ".join(lines).split())
    return f"{text} = ..." if code.co_code[at] == opmap["STORE_SUBSCR"] else text


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, TensorBase):
        yield value
    elif type(value) in (tuple, list):
        for part in value:
            yield from _tensors(part)
