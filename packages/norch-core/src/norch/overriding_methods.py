"""The methods, operators and attributes of subclasses of Tensor that define `__torch_function__`: they ask it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType
from typing import Any

from .overriding import Unanswered, call_asked, disabled, get_spec, is_enabled, is_inside, set_spec
from .tensor_base import TensorBase

_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "remainder", "pow": "pow", "matmul": "matmul",
}  # fmt: skip
CALLED = {f"__{operator}__": name for operator, name in _OPERATORS.items()}
CALLED |= {f"__i{operator}__": f"{name}_" for operator, name in _OPERATORS.items() if operator != "matmul"}
CALLED |= {f"__{name}__": name for name in ("neg", "abs", "lt", "le", "gt", "ge")}
CALLED |= {
    "__radd__": "add",
    "__rmul__": "mul",
    "__rand__": "bitwise_and",
    "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
}
"""By name of an operator: the method that the class is asked for, as by PyTorch; others are asked for by their own."""

_LEFT = frozenset("__new__ __init__ __init_subclass__ __torch_function__ __hash__ __iter__".split())
"""What a class has as it is."""


_BINARY = frozenset(
    f"__{r}{name}__"
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift eq ne lt le gt ge".split()
    for r in ("", "r", "i")
)


def _asks(value: Any) -> bool:
    """Whether the class of a tensor is asked: one of a base that is may have given that up."""
    return is_enabled() and bool(value._overrides)


def _method(kind: type, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    asked = getattr(kind, CALLED.get(name, name), original)
    forward = None
    if name.startswith("__r") and hasattr(kind, operator := f"__{name[3:]}"):
        forward = getattr(kind, CALLED.get(operator, operator))

    if name == "as_subclass" or (name.startswith("_") and not name.startswith("__")):

        @wraps(original)
        def unasked(self: Any, *args: Any, **kwargs: Any) -> Any:
            return disabled(original, (), (self, *args), kwargs)

        return unasked

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _asks(self):
            return original(self, *args, **kwargs)
        func, given = asked, (self, *args)
        if forward is not None and args and isinstance(args[0], TensorBase):
            func, given = forward, given[::-1]
        try:
            return call_asked(sys._getframe(1), func, given, kwargs)
        except Unanswered:
            if name in _BINARY:
                return NotImplemented  # Python then asks the other operand
            raise

    return call


def _attribute(original: property) -> property:
    def get(self: Any) -> Any:
        getter: Any = original.__get__
        return getter(self) if not _asks(self) else call_asked(sys._getframe(1), getter, (self,), {})

    def set_(self: Any, value: Any) -> None:
        setter: Any = original.__set__
        setter(self, value) if not _asks(self) else call_asked(sys._getframe(1), setter, (self, value), {})

    def delete(self: Any) -> None:
        deleter: Any = original.__delete__
        deleter(self) if not _asks(self) else call_asked(sys._getframe(1), deleter, (self,), {})

    return property(get, original.fset and set_, original.fdel and delete, original.__doc__)


def _iterate(self: Any) -> Iterator[Any]:
    if not self.dim():
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _of_class(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A method that a class has in place of Tensor's, for all but norch's own functions, which know only Tensor's."""

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside = is_inside(sys._getframe(1).f_globals.get("__name__", ""))
        return (ours if inside else original)(self, *args, **kwargs)

    return call


def _is_ours(member: Any) -> bool:
    """Whether this is norch's: what programs add to Tensor is as they made it, and no class is asked for it."""
    function = member.fget if isinstance(member, property) else member
    return (getattr(function, "__module__", None) or "norch").partition(".")[0] == "norch"


_asking: list[type] = []


def _between(kind: type) -> type:
    """A subclass of Tensor with the methods that ask, which its subclasses have for a base: `super()` finds them."""
    if not _asking:
        _asking.append(kind)  # while it is made, and prepared itself
        _asking[0] = type(kind)(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__})
    return _asking[0]


def prepare(cls: type, kind: type) -> None:
    """Has the class `cls` asked for what its base `kind`, Tensor, defines and no other base of it does."""
    between = _between(kind)
    if between is not kind and kind in cls.__bases__:
        cls.__bases__ = tuple([between if base is kind else base for base in cls.__bases__])
    cls._overrides = True  # type: ignore[attr-defined]
    cls.spec = property(get_spec, set_spec)  # type: ignore[attr-defined]
    theirs = kind.__mro__
    own = cls.__mro__[: cls.__mro__.index(kind)]
    prepared = [base for base in own[1:] if base.__dict__.get("_overrides")]
    for name in {name for base in theirs[:-1] for name in vars(base)} - _LEFT:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        original = vars(owner)[name]
        if owner in prepared or (owner in theirs and not _is_ours(original)):
            continue
        if owner not in theirs:
            ours = getattr(kind, name)
            if isinstance(original, FunctionType) and isinstance(ours, FunctionType) and not name.startswith("__"):
                setattr(cls, name, _of_class(original, ours))
        elif isinstance(original, property):
            setattr(cls, name, _attribute(original))
        elif isinstance(original, FunctionType):
            setattr(cls, name, _method(kind, name, original))
    if next(base for base in cls.__mro__ if "__iter__" in vars(base)) in theirs:
        cls.__iter__ = _iterate  # type: ignore[attr-defined]


def convert(value: Any, kind: type) -> Any:
    """Tensors that a function gave, in tuples and lists too, as objects of a subclass of Tensor."""
    if hasattr(type(value), "as_subclass"):  # complex numbers too
        return value if isinstance(value, kind) else value.as_subclass(kind)
    if isinstance(value, tuple | list):
        parts = [convert(part, kind) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
