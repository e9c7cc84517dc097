"""`norch.detect_nan`: stops at the first op, forward or backward, that makes a NaN or an infinity.

The rule: an op makes a NaN if its result holds one and no tensor or number that it was given does; it makes an infinity
if its result holds one and all that it was given is finite. So `masked_fill(mask, -inf)` and `full(3, inf)` make none,
since the number is the program's own, but the softmax of a row of -inf makes a NaN. An op that reads no tensor makes
nothing. Of an op that is computed from others the result counts; the first of these with a bad one is named. A node of
the backward pass is judged likewise, by the gradients that it was given and what it saved.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from . import observing
from .autograd import anomaly
from .autograd.graph import Node, is_recording, set_recording
from .errors import NotFiniteError
from .observing import FUNCTION, IN_PLACE, INTO, NODE, OP, STEP, Observed, Observer, leave
from .source_lines import here, table
from .spec import Spec
from .tensor.out import tensors_in
from .tensor_base import TensorBase

if TYPE_CHECKING:
    from .tensor import Tensor

NAN, INFINITY = "NaN", "infinity"


class _Call:
    """A call that goes on. before, texts: what was in the tensors that it will change. part: the first part of it that
    made something, with what that says."""

    __slots__ = ("args", "before", "kind", "kwargs", "name", "outer", "part", "texts", "what")

    def __init__(self, what: Observed, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.what, self.kind, self.name, self.args, self.kwargs = what, what.kind, name, args, kwargs
        self.before: dict[int, str | None] = {}
        self.texts: dict[int, str] = {}
        self.part: str | None = None
        self.outer: _Call | None = None


class detect_nan:
    """Raises NotFiniteError at the first op, forward or backward, that makes a NaN or an infinity: within this context,
    or between `start()` and `stop()`.

    The error has the op, its line (in a backward pass that of the op which is differentiated), and shape, dtype, least,
    largest and mean value of what it was given, with how many of these are NaN or infinite. nan, inf: what to look for.
    What was NaN before, such as data, is no fault of an op: the first op that gets it draws a warning.

    Infinities that a program means to have, as of a gradient scaler that tries too large a scale, are left alone with
    `inf=False`. Captured steps run as they are meanwhile. Each op waits for its device, and reads its result once more:
    for debugging.
    """

    def __init__(self, nan: bool = True, inf: bool = True) -> None:
        self._detector = _Detector(nan, inf)
        self._before: list[Any] = []

    def start(self) -> detect_nan:
        """Looks from now on."""
        observing.observe(self._detector)
        self._before.append(anomaly.set_check(self._detector.check_gradient))
        return self

    def stop(self) -> None:
        """Looks no more."""
        if self._before:
            anomaly.set_check(self._before.pop())
            observing.release(self._detector)

    def __enter__(self) -> detect_nan:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()


class _Detector(Observer):
    """What is told of each op, and of each gradient."""

    def __init__(self, nan: bool, inf: bool) -> None:
        self.nan, self.inf = nan, inf
        self._stacks: dict[int, list[_Call]] = {}
        self._busy: set[int] = set()
        self._warned = False

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call | None:
        name = _name(what, args)
        if name is None or get_ident() in self._busy:
            return None
        call = _Call(what, name, args, kwargs)
        changed: Iterable[Any] = ()
        if what.kind == NODE:
            changed = args[2] if type(args[2]) is list else (args[2],)  # a gradient may be given away
        elif what.kind == STEP:
            changed = tensors_in(args[2])
        elif what.kind == IN_PLACE:
            changed = (args[1],)
        elif what.kind == OP and (what.name.endswith("_") or kwargs.get("out") is not None):
            changed = tensors_in(_read(args, kwargs))
        for tensor in changed:
            if tensor is not None:
                call.before[id(tensor)] = self._kind(tensor)
                if what.kind == OP or what.kind == IN_PLACE:
                    call.texts[id(tensor)] = self._apart(partial(statistics, tensor))
        if what.kind == NODE:
            call.args = args[:2]  # nobody but the node may hold the gradient
        stack = self._stacks.setdefault(get_ident(), [])
        call.outer = stack[-1] if stack else None
        stack.append(call)
        return call

    def left(self, call: _Call | None, result: Any, error: BaseException | None) -> None:
        if call is None:
            return
        leave(self._stacks[get_ident()], call)
        if error is not None or call.kind == NODE:
            return
        if call.kind == IN_PLACE:
            outputs = [call.args[1]] if result else []
        elif call.kind == INTO:
            outputs = [call.args[0]]
        elif call.kind == STEP:
            outputs = list(tensors_in(call.args[2][:-1]))
        else:
            outputs = list(tensors_in(result))
        bad = next((bad for tensor in outputs if (bad := self._kind(tensor)) is not None), None)
        is_known = call.kind != OP or all(type(tensor.spec) is Spec for tensor in outputs)
        if bad is None and not (call.part is not None and not is_known):
            return
        given = call.args[1:] if call.kind == INTO else call.args[2:3] if call.kind == STEP else call.args
        given = _read(given, call.kwargs)
        reads = list(tensors_in(given))
        kinds = [call.before[id(t)] if id(t) in call.before else self._kind(t) for t in reads]
        if bad is not None and not self._made(bad, kinds, given):
            if bad == NAN and NAN in kinds and call.kind != STEP:
                self._warn(call, reads, kinds)
            return
        said = call.part or self._say(call, bad or NAN, outputs, reads, kinds)
        if call.outer is not None and call.outer.kind != FUNCTION:
            call.outer.part = call.outer.part or said
            return
        head, _, rest = said.partition("\n")
        within = _within(call)
        raise NotFiniteError(f"detect_nan(): {head}{within}{table((f'{call.name} called', here()))}\n{rest}".rstrip())

    def check_gradient(self, node: Node, position: int, value: Tensor) -> None:
        """What the backward pass calls with each gradient that a node gives."""
        if get_ident() in self._busy:
            return
        bad = self._kind(value)
        if bad is None:
            return
        stack = self._stacks.get(get_ident(), ())
        call = next((c for c in reversed(stack) if c.kind == NODE and c.args[0] is node), None)
        if call is None:
            return
        saved = list(tensors_in(node.saved_inputs or ()))
        kinds = [*call.before.values(), *[self._kind(t) for t in saved]]
        numbers = [value for value in node.saved_inputs or () if isinstance(value, float)]
        if not self._made(bad, kinds, numbers):
            return
        name = node.title()
        said = call.part or self._say(call, bad, [value], saved, kinds[len(call.before) :])
        head, _, rest = said.partition("\n")
        within = _within(call)
        where = table((f"{name} called", node.line), ("backward called", here()))
        raise NotFiniteError(
            f"detect_nan(): {head}{within}, in the gradient of operand {position} of {name}{where}\n{rest}".rstrip()
        )

    # --- What is said -------------------------------------------------------------------------------------------------

    def _kind(self, tensor: Any) -> str | None:
        """What a tensor holds that is looked for: NaN, or else an infinity. None for none."""
        spec = tensor.spec
        if type(spec) is not Spec or not spec.dtype.is_floating_point or spec.dtype.is_stored or not spec.numel:
            return None
        if spec.device.type == "meta":
            return None
        largest = self._apart(lambda: float(tensor.detach().abs().amax().item()))
        if math.isnan(largest):
            return NAN if self.nan else None
        return INFINITY if self.inf and math.isinf(largest) else None

    def _apart(self, function: Callable[[], Any]) -> Any:
        """Calls a function whose ops are neither observed here nor recorded."""
        thread, before = get_ident(), is_recording()
        self._busy.add(thread)
        set_recording(False)
        try:
            return function()
        finally:
            set_recording(before)
            self._busy.discard(thread)

    def _made(self, bad: str, kinds: list[str | None], given: Iterable[Any]) -> bool:
        """Whether what was given can be blamed, or the op. See the rule above."""
        numbers = list(_numbers(given))
        if not kinds:
            return False
        if bad == NAN:
            return NAN not in kinds and not any(math.isnan(n) for n in numbers)
        return not any(kinds) and all(math.isfinite(n) for n in numbers)

    def _say(self, call: _Call, bad: str, outputs: list[Any], reads: list[Any], kinds: list[Any]) -> str:
        """The sentence, and a row for each tensor."""
        rows = []
        for i, tensor in enumerate(outputs):
            rows.append((_numbered("result", i, outputs), self._apart(partial(statistics, tensor)), ""))
        titles = _titles(call)
        for i, (tensor, kind) in enumerate(zip(reads, kinds, strict=True)):
            title = titles[i] if len(titles) == len(reads) else _numbered("operand", i, reads)
            note = "" if kind is None else f"held {'NaN' if kind == NAN else 'infinities'} before: not its fault"
            text = call.texts.get(id(tensor)) or self._apart(partial(statistics, tensor))
            rows.append((title, text, "after the step" if call.kind == STEP else note))
        wide = max(len(title) for title, *_ in rows)
        lines = [f"    {title:{wide}}   {text}{note and f'   ({note})'}" for title, text, note in rows]
        name = call.name if call.kind != NODE else f"the gradient of {call.name.removesuffix('_backward')}"
        return "\n".join([f"{name} made {'a NaN' if bad == NAN else 'an infinity'}", *lines])

    def _warn(self, call: _Call, reads: list[Any], kinds: list[str | None]) -> None:
        if self._warned or call.outer is not None or call.before:
            return
        self._warned = True
        at = kinds.index(NAN)
        text = self._apart(lambda: statistics(reads[at]))
        line = here()
        where = "" if line is None else f" ({line})"
        warnings.warn(
            f"detect_nan(): {call.name}{where} was given NaN in operand {at}, {text}: made before, or by the program; "
            "what only passes it on is no fault",
            UserWarning,
            stacklevel=2,
        )


def _name(what: Observed, args: tuple[Any, ...]) -> str | None:
    """What errors call it; None for what is not judged."""
    if what.kind == OP:
        return None if what.op is not None and what.op.kind == "view" else what.name
    if what.kind == INTO:
        return f"{what.name}_"
    if what.kind == STEP:
        return str(args[0].name)
    if what.kind == IN_PLACE:
        return f"{args[0].name}_"
    if what.kind == FUNCTION:
        return str(args[0].__name__)
    return f"{args[0].title()}_backward" if what.kind == NODE else None


def _within(call: _Call) -> str:
    """What a part of a call is said to be a part of: nothing where it is the same op, in another form."""
    same = call.part is None or call.part.startswith(f"{call.name} made")
    return "" if same else f", as a part of {call.name}"


def _read(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a call reads: `out` only where it is an operand too."""
    return (*args, *[value for name, value in kwargs.items() if name != "out"])


def _numbers(values: Iterable[Any]) -> Iterator[float]:
    for value in values:
        if type(value) is float:
            yield value
        elif isinstance(value, tuple | list):
            yield from _numbers(value)


def _titles(call: _Call) -> list[str]:
    """The names of the tensors that a composite was given; [] where they have none."""
    op = call.what.op
    if op is None or op.kind != "composite" or call.kwargs or len(call.args) > len(op.params):
        return []
    return [name for name, value in zip(op.params, call.args) if isinstance(value, TensorBase)]


def _numbered(what: str, at: int, among: list[Any]) -> str:
    return what if len(among) == 1 else f"{what} {at}"


def statistics(tensor: Any) -> str:
    """Dtype and shape of a tensor, the least, largest and mean of its finite values, and how many are not."""
    text = f"{tensor.spec.dtype.name} {tuple(tensor.spec.shape)}"
    if type(tensor.spec) is not Spec or not tensor.spec.numel or tensor.spec.device.type == "meta":
        return text
    values = np.asarray(tensor.detach().cpu().numpy()).astype(np.float64)
    finite = values[np.isfinite(values)]
    if finite.size:
        text += f": min {finite.min():.6g}, max {finite.max():.6g}, mean {finite.mean():.6g}"
    else:
        text += ": nothing finite"
    nans, infinities = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    if nans or infinities:
        counts = [f"{nans} NaN"] * bool(nans) + [f"{infinities} infinite"] * bool(infinities)
        text += f", {', '.join(counts)} of {values.size}"
    return text
