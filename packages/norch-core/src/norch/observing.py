"""The one place where what runs is observed: calls of ops, nodes of the backward pass, copies between host and device.

    class Counter(Observer):
        def entered(self, what, args, kwargs):      # before; what it returns is the call's token
            return what.name
        def left(self, token, result, error):       # after, also where an exception passes
            seen[token] += 1

    with observed_by(Counter()):
        model(x)

While nobody observes, nothing of this is on the path of an op: a function that is `observable` is as it was written.
The first observer has the code of each exchanged for code that tells all observers and calls the original; when the
last has gone, the code is put back. Every thread is observed. What `left` raises, the caller of the op gets.

An observer must not keep the tensors that it sees: whether memory can be used again is decided by who holds it. Ops
that it calls are observed too. Ops of a captured step's replay are no calls: there is one REPLAY.

`norch.capture` and the shadow device listen elsewhere, at the backend's contract, since what they need is the calls of
kernels; `norch coverage` at both. Autocast observes nothing: it changes what ops are called with (`amp.hooks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from .dispatch.op import Op

F = TypeVar("F", bound=Callable[..., Any])

OP = "op"
"""A call of an op by one of its names. An in-place one is called "add_"; its first argument is what it changes."""
INTO = "into"
"""An op whose result is written into the memory of its first argument, which it does not read."""
IN_PLACE = "in place"
"""An op whose kernel writes over its first operand, where the graph takes part or it is a composite: `args` are the op,
that operand, the others and the method's name. It gives False where it cannot, and the op is then called as it is."""
STEP = "step"
"""A step of an optimiser: `args` are those of `norch.ops.optimizer.driver.run_step`, the op first."""
DECOMPOSED = "decomposed"
"""An op that the backend lacks, computed from others: `args` are its plan and arguments. It is within an OP."""
NODE = "node"
"""A node of the graph in a backward pass: `args` are the node, the pass and the gradient, which nobody may keep."""
PASS = "pass"
"""A whole backward pass."""
FUNCTION = "function"
"""`apply` of a `Function`: `args` are its class and arguments."""
TRANSFER = "transfer"
"""Values that pass between the host and a device: `args` begin with the tensor, or the data."""
CAPTURED = "captured"
"""A call of a captured step: `args` begin with the step."""
REPLAY = "replay"
"""The replay of a program of a captured step, which is within a CAPTURED: `args` begin with the program."""
RECORD = "record"
"""A part of a program that its author has named: `norch.profiler.record_function`."""


class Observed(NamedTuple):
    """What is about to be called: one of the kinds above, its name, and of an op its entry."""

    kind: str
    name: str
    op: Op | None = None


class Observer:
    """Is told of all that is observable, before and after. A call that raises is left too, with its exception."""

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Before the call of `what` with `args` and `kwargs`; what it returns, `left` gets."""

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        """After the call that `entered` gave `token` for, with its `result` or `error`."""


class Asker(Observer):
    """Is asked for what calls of OP, INTO, IN_PLACE and TRANSFER give, and told of nothing.

    There may be one at a time, and it is within all observers: these are told of a call by `function`.
    """

    def give(self, what: Observed, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call of `function`, which is `what`, gives; by itself it would be `function(*args, **kwargs)`."""
        return function(*args, **kwargs)


def observable(kind: str, name: str | None = None, hands_over: bool = False) -> Callable[[F], F]:
    """Makes a function, which must not be a closure, one that observers are told of.

    name: its own unless given. hands_over: it is a `run_backward`, whose gradient nothing but it may hold.
    """

    def mark(function: F) -> F:
        what = Observed(kind, name or function.__name__)
        add(function, lambda _: what, hands_over)
        return function

    return mark


# --- Exchanging code ------------------------------------------------------------------------------------------------

Describe = Callable[[Any], Observed]

_functions: list[tuple[Any, Describe, bool]] = []
"""Weakly, since ops of plug-ins go."""
_lock = RLock()
_observers: tuple[Observer, ...] = ()


def add(function: Any, describe: Describe, hands_over: bool = False) -> None:
    """Registers a function; `describe(function)` is asked when it is first observed."""
    if function.__closure__ is not None:
        raise TypeError(f"{function.__name__}: the code of a closure cannot be exchanged")
    _functions.append((ref(function), describe, hands_over))
    if _observers:
        with _lock:
            _exchange(function, describe, hands_over)


def unobserved(function: Any) -> Any:
    """The function that is called in place of `function` while it is observed; otherwise itself."""
    return getattr(function, "_unobserved", function)


def _call(*args: Any, **kwargs: Any) -> Any:
    what, function, entered, left = "<four>"  # type: ignore[str-unpack]  # exchanged as well
    token = entered(what, args, kwargs)  # type: ignore[operator]
    try:
        result = function(*args, **kwargs)  # type: ignore[operator]
    except BaseException as error:
        left(token, None, error)  # type: ignore[operator]
        raise
    left(token, result, None)  # type: ignore[operator]
    return result


def _hand_over(self: Any, backward: Any, grad: Any) -> Any:
    """`_call` of a `run_backward`: who holds a gradient decides whether its memory is used again."""
    what, function, entered, left = "<four>"  # type: ignore[str-unpack]
    given = [grad]
    del grad
    token = entered(what, (self, backward, given[0]), {})  # type: ignore[operator]
    try:
        result = function(self, backward, given.pop())  # type: ignore[operator]
    except BaseException as error:
        left(token, None, error)  # type: ignore[operator]
        raise
    left(token, result, None)  # type: ignore[operator]
    return result


def _ask(*args: Any, **kwargs: Any) -> Any:
    what, function, give = "<three>"  # type: ignore[str-unpack]
    return give(what, function, args, kwargs)  # type: ignore[operator]


def _with_constant(code: CodeType, name: str, value: Any, own: Any) -> CodeType:
    constants = tuple([value if constant == name else constant for constant in code.co_consts])
    return code.replace(co_consts=constants, co_name=own.__name__, co_qualname=own.__name__)


def _exchange(function: Any, describe: Describe, hands_over: bool) -> None:
    own = function.__dict__.get("_unobserved")
    if own is None:
        own = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
        own.__kwdefaults__, own.__annotations__ = function.__kwdefaults__, function.__annotations__
        function.__dict__["_unobserved"] = own
        function.__dict__.setdefault("__wrapped__", own)  # whose signature it shows
    what = describe(function)
    code: CodeType = (_hand_over if hands_over else _call).__code__
    told = _observers[0] if len(_observers) == 1 else _All(_observers)
    code = _with_constant(code, "<four>", (what, own, told.entered, told.left), own)
    asker = next((o for o in _observers if isinstance(o, Asker)), None)
    if asker is not None and what.kind in (OP, INTO, IN_PLACE, TRANSFER):
        telling = own if told is asker else FunctionType(code, function.__globals__, own.__name__)
        code = _with_constant(_ask.__code__, "<three>", (what, telling, asker.give), own)
    function.__code__ = code


def _restore(function: Any) -> None:
    own = function.__dict__.pop("_unobserved", None)
    if own is not None:
        function.__code__ = own.__code__
        if function.__dict__.get("__wrapped__") is own:
            del function.__dict__["__wrapped__"]


def _apply() -> None:
    gone = False
    for weak, describe, hands_over in tuple(_functions):
        function = weak()
        if function is None:
            gone = True
        elif _observers:
            _exchange(function, describe, hands_over)
        else:
            _restore(function)
    if gone:
        _functions[:] = [entry for entry in _functions if entry[0]() is not None]


class _All(Observer):
    """Several observers: the last to come is the innermost."""

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return [(observer, observer.entered(what, args, kwargs)) for observer in self.observers]

    def left(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token:
            observer, own = token.pop()
            try:
                observer.left(own, result, error)
            finally:
                self.left(token, result, error)


# --- Observers ------------------------------------------------------------------------------------------------------


def is_observed() -> bool:
    """Whether there are observers: what makes several ops one then has to make each."""
    return bool(_observers)


def observe(observer: Observer) -> None:
    """Has `observer` told of everything from now on."""
    _change((*_observers, observer))


def release(observer: Observer) -> None:
    """Has it told of nothing more. Of calls that it was told of, it is still told that they end."""
    _change(tuple([other for other in _observers if other is not observer]))


def _change(observers: tuple[Observer, ...]) -> None:
    global _observers
    with _lock:
        before, _observers = _observers, observers
        try:
            _apply()
        except BaseException:  # Ctrl-C in the middle
            _observers = min(before, observers, key=len)
            _apply()
            raise


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Within this context `observer` is told of everything."""
    observe(observer)
    try:
        yield
    finally:
        release(observer)


def leave(stack: list[Any], call: Any) -> None:
    """Takes a call from those that go on, with what was not left in it, since Ctrl-C came in between."""
    if stack and stack[-1] is call:
        stack.pop()
    elif call in stack:
        del stack[stack.index(call) :]


def entered(what: Observed, args: tuple[Any, ...] = ()) -> Any:
    """Tells observers, if there are any, of what is no function: a RECORD."""
    return _All(_observers).entered(what, args, {}) if _observers else None


def left(token: Any) -> None:
    """Of its end. token: what `entered` gave."""
    if token:
        _All(()).left(token, None, None)
