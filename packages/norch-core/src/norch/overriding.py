"""PyTorch's protocol `__torch_function__`: classes that say themselves what functions give for their objects.

Of a subclass of Tensor that defines it, methods, operators and attributes ask it: overriding_methods.py. What functions
are given has, outside of `DisableTorchFunctionSubclass`, a spec that no plan is looked up by: the first op on it raises
`Overridden`, and the outermost public function that was called with it asks the class in its place. So other tensors,
and functions that are given none of these, cost nothing for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, wraps
from inspect import signature
from threading import local
from types import CodeType, FrameType
from typing import Any, Self, TypeVar, cast

from .spec import Spec
from .tensor_base import TakenOver, TensorBase

F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The public functions of ops, by name; `norch.ops.registry` puts its own here."""

ENTRIES: set[CodeType] = set()
"""The code of public functions that leave their failures to `recover`. Their arguments are `args` and `kwargs`."""


class _Thread(local):
    disabled = False
    asking: tuple[tuple[str, int], ...] = ()
    """Names of functions and ids of the objects whose classes are being asked for them."""
    given: tuple[tuple[Any, ...], ...] = ()
    """What `disabled` is running: functions, and ids of their arguments."""


_thread = _Thread()


class DisableTorchFunctionSubclass:
    """Within this context no `__torch_function__` is called in this thread."""

    def __enter__(self) -> Self:
        self._before = _thread.disabled
        _thread.disabled = True
        return self

    def __exit__(self, *error: object) -> None:
        _thread.disabled = self._before


def disabled(func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of a class that overrides nothing: `func` as it is, NotImplemented if that is another
    framework's, which asks again."""
    before, given = (_thread.disabled, _thread.given), (func, *map(id, args))
    if given in before[1]:
        return NotImplemented
    _thread.disabled, _thread.given = True, (*before[1], given)
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _thread.disabled, _thread.given = before


def unasked(function: F) -> F:
    """A function within which no `__torch_function__` is called."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    return cast("F", call)


def is_enabled() -> bool:
    """Whether `__torch_function__` is called in this thread."""
    return not _thread.disabled


def defines(kind: type) -> bool:
    """Whether a class is asked: a subclass of Tensor, by default for results of its own class, or another class that
    has a `__torch_function__`; none whose is `disabled`."""
    found = getattr(kind, "__torch_function__", None)
    return found is not None and found is not disabled and kind is not TensorBase._result_class


def is_overriding(value: Any) -> bool:
    """Whether functions that are given `value` ask its class."""
    kind = type(value)
    return kind.__dict__.get("_overrides", False) or (hasattr(kind, "__torch_function__") and defines(kind))


_NEVER = frozenset({int, float, bool, str, type(None), type(...)})
"""Types of arguments that are never asked."""


_NESTED = frozenset({list, tuple, slice})


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from _flat(value)
        elif type(value) is slice:
            yield from _flat((value.start, value.stop, value.step))
        else:
            yield value


def overriding(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Those among the arguments whose classes are asked: one of each class, subclasses before what they are of."""
    if _thread.disabled:
        return []
    found: list[Any] = []
    values = (*args, *kwargs.values())
    for value in _flat(values) if any(type(value) in _NESTED for value in values) else values:
        if type(value) in _NEVER or not is_overriding(value):
            continue
        if not found:
            found.append(value)
        elif all(type(value) is not type(other) for other in found):
            at = next((i for i, other in enumerate(found) if isinstance(value, type(other))), len(found))
            found.insert(at, value)
    return found


def ask(func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], found: list[Any] | None = None) -> Any:
    """What the classes of the arguments give for `func` on them. Raises TypeError where none gives anything."""
    found = overriding(args, kwargs) if found is None else found
    types = tuple([type(value) for value in found])
    before = _thread.asking
    try:
        for value in found:
            _thread.asking = (*before, (_name_of(func), id(value)))
            result = type(value).__torch_function__(func, types, args, dict(kwargs))
            if result is not NotImplemented:
                return result
    finally:
        _thread.asking = before
    name = f"{getattr(func, '__module__', None)}.{_name_of(func)}"
    raise Unanswered(f"no implementation found for '{name}' on types that implement __torch_function__: {list(types)}")


def _name_of(func: Any) -> str:
    return getattr(func, "__name__", None) or str(func)


def _is_asking(func: Any, found: Iterable[Any]) -> bool:
    """Whether this is called from a `__torch_function__` that knows no better than to call the function again."""
    return bool(_thread.asking) and any((_name_of(func), id(value)) in _thread.asking for value in found)


def of_foreign(*values: Any) -> Callable[..., Any] | None:
    """`call(name, args, kwargs)` that asks the classes of what is no tensor for a function; None if none has a say."""
    asked = not _thread.disabled and [v for v in _flat(values) if is_overriding(v) and not isinstance(v, TensorBase)]
    if not asked:
        return None

    def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "copy":  # the op of clone, with what else it takes
            name, args = "clone", args[:1]
        function: Any = FUNCTIONS.get(name)
        if function is None:  # a method, or of a module of ops that comes late
            function = getattr(TensorBase._result_class, name, None) or getattr(sys.modules["norch.ops"], name, name)
        return call_asked(sys._getframe(1), function, args, kwargs)

    return call


def foreign_among(values: tuple[Any, ...]) -> Callable[..., Any] | None:
    """`of_foreign` of these arguments, which costs next to nothing where all are tensors, numbers and slices."""
    for value in values:
        if isinstance(value, TensorBase) or (kind := type(value)) in _NEVER:
            continue
        if kind is not slice or type(value.start) not in _NEVER or type(value.stop) not in _NEVER:
            return of_foreign(*values)
    return None


class Unanswered(TypeError):
    """No class of the arguments gives anything for a function."""


# --- Where a call comes from ----------------------------------------------------------------------------------------

_OUTSIDE = "distributed distributions func fx hub nn optim ray utils vision".split()
_UNASKED = ("norch.autograd", "norch.ops.from_data")
ENTRY, UNASKED = "entry", "unasked"


class _Inside(dict[str, bool]):
    """By name of a module: whether it is a part of functions, not one that calls them as users do."""

    def __missing__(self, name: str) -> bool:
        root, _, path = name.partition(".")
        outside = path.partition(".")[0] in _OUTSIDE and not path.startswith("nn.functional")
        self[name] = found = root == "norch" and not outside
        return found


_inside = _Inside()
is_inside = _inside.__getitem__


def _within(frame: FrameType | None) -> str | None:
    """ENTRY where a public function that was given such tensors goes on there, UNASKED where one of which
    no class is asked, or a backward pass."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not _inside[name]:
            return None
        if frame.f_code in ENTRIES:
            given = frame.f_locals
            if overriding(given["args"], given["kwargs"]):
                return ENTRY
        elif name.startswith(_UNASKED):
            return UNASKED
        frame = frame.f_back
    return None


def call_asked(frame: FrameType | None, func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Asks for `func`, which was called from `frame`, or leaves it to the function that goes on there."""
    found = overriding(args, kwargs)
    if _is_asking(func, found):
        kinds = ", ".join(f"{type(value).__module__}.{type(value).__qualname__}" for value in found)
        raise Unanswered(f"{_name_of(func)}(): {kinds} is no Tensor of norch, and its __torch_function__ only calls "
                         "the function again; norch.from_dlpack() converts it")  # fmt: skip
    within = _within(frame)
    if within is ENTRY:
        raise Overridden("left to the function that was called")
    return disabled(func, (), args, kwargs) if within is UNASKED else ask(func, args, kwargs, found)


def recover(error: Exception, call: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> tuple[Any] | None:
    """What the classes of arguments give for a public function that failed with `error`; None where none is asked."""
    found = overriding(args, kwargs)
    if not found or (not isinstance(error, Overridden) and all(isinstance(x, TensorBase) for x in found)):
        return None
    if not isinstance(error, Overridden) and _is_asking(call, found):
        raise error
    return (call_asked(sys._getframe(2).f_back, call, args, kwargs),)


@lru_cache(256)
def _by_name_only(func: Callable[..., Any], params: tuple[str, ...]) -> list[str]:
    """Those of an op's parameters that its function takes by name only."""
    kinds = [p.kind for p in signature(func).parameters.values()]
    return [name for name, kind in zip(params, kinds, strict=False) if kind is kind.KEYWORD_ONLY]


class Overridden(TakenOver):
    """Raised where a plan is looked up for a tensor whose class is asked."""

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        try:
            frame: FrameType | None = sys._getframe(1)
            inner = frame
            while frame is not None and _inside[frame.f_globals.get("__name__", "")]:
                inner, frame = frame, frame.f_back
            assert inner is not None
            func: Any = FUNCTIONS.get(op.name)
            kwargs: dict[str, Any] = {}
            known = inner.f_code.co_name in ("_call", "_unwritten", op.name) and (
                getattr(func, "op", None) is op or op.variadic or inner.f_code is getattr(func, "__code__", None)
            )
            if not known:
                func = op.call
            elif not op.variadic:
                names = _by_name_only(func, op.params)
                count = len(args) - len(names)
                args, kwargs = args[:count], dict(zip(names, args[count:], strict=True))
            return call_asked(sys._getframe(1), func, args, kwargs)
        except Exception as found:
            raise found from None

    def into(self, op: Any, out: Any, args: tuple[Any, ...]) -> None:
        disabled(op.into, (), (out, *args))


class OverriddenSpec(Spec):
    """The spec of a tensor whose class is asked: as `plain`, but that no plan is looked up by it."""

    __slots__ = ("plain",)
    plain: Spec

    def __hash__(self) -> int:
        raise Overridden("the class of this tensor is asked what a function gives")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


_own_spec: Any = TensorBase.__dict__["spec"]
plain_spec: Callable[[Any], Spec] = _own_spec.__get__
"""The spec of a tensor, whatever its class."""


def get_spec(self: Any) -> Spec:
    plain: Spec = _own_spec.__get__(self)
    if _thread.disabled or not self._overrides:
        return plain
    spec: OverriddenSpec = object.__new__(OverriddenSpec)
    spec.plain = plain
    return spec


def set_spec(self: Any, spec: Spec) -> None:
    _own_spec.__set__(self, spec.plain if type(spec) is OverriddenSpec else spec)
