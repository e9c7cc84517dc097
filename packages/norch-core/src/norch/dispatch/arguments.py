"""What a user sees of an argument of a wrong type: the function, the argument and what came.

Nothing is checked while a call works: the annotations of a function are read when it failed, and those of an op when a
plan is made for it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from types import FunctionType, MemberDescriptorType
from typing import Any, NoReturn, ParamSpec, TypeVar
from warnings import warn

import numpy as np

from ..errors import BackendError, DTypeError, NorchError, ShapeError
from ..overriding import ENTRIES, of_foreign
from ..overriding import recover as recover_overridden
from ..spec import Spec
from ..tensor_base import TensorBase

P = ParamSpec("P")
R = TypeVar("R")

_EXPECTED = {
    "Tensor": "a Tensor", "int": "an int", "float": "a number", "bool": "a bool", "str": "a string", "None": "None",
    "Operand": "a Tensor or a number", "Scalar": "a number", "Generator": "a Generator", "Module": "a Module",
    "Optimizer": "an Optimizer", "Sequence[Tensor]": "a sequence of Tensors", "Sequence[int]": "a sequence of ints",
}  # fmt: skip
"""By annotation, what is said to be wanted. Other annotations are not checked."""


def checked(function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
    """`function`, whose failures for arguments of a wrong type name it, the argument and what came."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return recover(error, function, args, kwargs, name, call)  # type: ignore[no-any-return]

    call.explains = True  # type: ignore[attr-defined]
    ENTRIES.add(call.__code__)  # type: ignore[attr-defined]
    return call


def foreign(args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """`call(name, args, kwargs)` of an argument that is no tensor, and knows what a function gives for it."""
    for value in args:
        for part in value if isinstance(value, list | tuple) else (value,):
            found: Callable[..., Any] | None = getattr(type(part), "_norch_function", None) or of_foreign(part)
            if found is not None:
                return found
    return None


INTO: list[Callable[..., Any]] = []
"""`write_out` of norch.tensor.out, which puts it here."""


def into(function: Callable[..., Any], out: Any, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, its results written into `out`."""
    return INTO[0](function, function.__name__, out, args, kwargs)


_NUMPYS = {
    "axis": ("dim", "dims"), "keepdims": ("keepdim",), "x": ("input",), "a": ("input",), "x1": ("input",),
    "x2": ("other",),
}  # fmt: skip
"""NumPy's names of arguments, which all functions of PyTorch take, and what they are called there."""


def _by_our_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments by name, those of NumPy's names by those that `function` has, None where it has all of them."""
    names = list(_signature(function).parameters)
    found = {}
    for name, value in kwargs.items():
        known = [name, *_NUMPYS.get(name, ())]
        if not args and names and (name == "input" or "input" in known):
            known.append(names[0])
        found[next((n for n in known if n in names and n not in found), name)] = value
    return found if found.keys() != kwargs.keys() and len(found) == len(kwargs) else None


def is_bound(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a call of a public function has an object before its arguments whose class has the function among its
    attributes. PyTorch's functions are built in, and no methods of such a class."""
    kind = type(args[0]) if args else object
    return (
        getattr(kind, "__module__", "") != "builtins"
        and not issubclass(kind, TensorBase)
        and any(value is function for each in kind.__mro__ for value in vars(each).values())
    )


def recover(
    error: Exception,
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    name: str | None = None,
    call: Callable[..., Any] | None = None,
) -> Any:
    """What a failed call gives as a function of a class (`is_bound`), by way of an overriding argument
    (`norch.overriding`) or a `foreign` one, with NumPy's numbers as Python's, or without `out`. call: the public
    function, where `function` is not it.

    Else it raises what `explain` does. So a function costs nothing for taking these, of which it need not know.
    """
    if is_bound(call or function, args):
        return (call or function)(*args[1:], **kwargs)
    overridden = recover_overridden(error, call or function, args, kwargs)
    if overridden is not None:
        return overridden[0]
    found = foreign((*args, *kwargs.values()))
    if found is not None:
        title, out = name or function.__name__, kwargs.get("out")
        rest = {k: v for k, v in kwargs.items() if k != "out"}
        if out is not None:
            return INTO[0](call or function, title, out, args, rest)
        return call(*args, **rest) if call is not None and "out" in kwargs else found(title, args, rest)
    if any(isinstance(v, np.generic) for v in (*args, *kwargs.values())) and _is_ours(error):
        args = tuple([v.item() if isinstance(v, np.generic) else v for v in args])
        kwargs = {k: v.item() if isinstance(v, np.generic) else v for k, v in kwargs.items()}
        try:
            return function(*args, **kwargs)
        except Exception as second:
            error = second
    if isinstance(error, TypeError):
        ordered = numbers_by_name(function.__name__, args, kwargs)
        if ordered is not None:
            return (call or function)(*ordered[0], **ordered[1])
        others = _OTHER_NAMES.get(function.__name__, {})
        if others.keys() & kwargs.keys():
            kwargs = {others.get(k, k): v for k, v in kwargs.items() if others.get(k, k) is not None}
            return (call or function)(*args, **kwargs)
        by_ours = _by_our_names(function, args, kwargs)
        if by_ours is not None:
            return (call or function)(*args, **by_ours)
    if "out" not in kwargs or not isinstance(error, TypeError) or "out" in _signature(function).parameters:
        explain(error, function, args, kwargs, name)
    rest = {k: v for k, v in kwargs.items() if k != "out"}
    title = name or function.__name__
    try:
        return function(*args, **rest) if kwargs["out"] is None else INTO[0](function, title, kwargs["out"], args, rest)
    except Exception as second:
        explain(second, function, args, rest, name)


CHECKED_MODULES: list[dict[str, Any]] = []
"""The `globals()` of each module whose functions are `checked` as a whole."""


def check_functions(module: dict[str, Any], package: str | None = None) -> None:
    """Makes the public functions of a module `checked`: called at its end, with its `globals()`.

    package: where they come from, if not from the module itself.
    """
    CHECKED_MODULES.append(module)
    for name, value in list(module.items()):
        if isinstance(value, FunctionType) and not name.startswith("_") and not hasattr(value, "explains"):
            if value.__module__.startswith(package or module["__name__"]) and not hasattr(value, "op"):
                module[name] = checked(value, name)


_NUMBERS_FIRST = {
    "add": (2, "alpha"), "sub": (2, "alpha"), "addcmul": (3, "value"), "addcdiv": (3, "value"),
    **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm"), (3, "beta", "alpha")),
}  # fmt: skip
"""By function: how many tensors it takes, and the numbers that PyTorch's first versions took between them."""


_OTHER_NAMES: dict[str, dict[str, str | None]] = {
    **dict.fromkeys(("hsplit", "vsplit", "dsplit"), dict.fromkeys(("indices", "sections"), "indices_or_sections")),
    "inv": {"input": "A"}, "pinv": {"input": "A", "rcond": "rtol"},
    "gather": {"sparse_grad": None}, "split": {"tensor": "input"},
}  # fmt: skip
"""By function: names of arguments that PyTorch has besides, for what each is in norch, None where it has no say."""


def numbers_by_name(name: str, args: tuple[Any, ...], kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call in the order that PyTorch has deprecated, `add(x, alpha, y)`, in that of today; None for
    others."""
    count, *names = _NUMBERS_FIRST.get(name, (0,))
    tensors = tuple([a for a in args if isinstance(a, TensorBase)])
    numbers = [a for a in args if type(a) in (int, float, bool)]
    if len(tensors) != count or not 0 < len(numbers) <= len(names) or len(args) != count + len(numbers):
        return None
    named = dict(zip(names, numbers, strict=False))
    if isinstance(args[-1], TensorBase) and not named.keys() & kwargs.keys():
        warn(f"{name}(): PyTorch has deprecated numbers before tensors; write {names[-1]}= by name", stacklevel=5)
        return tensors, {**kwargs, **named}
    return None


_signature = lru_cache(256)(inspect.signature)


def explain(
    error: Exception, function: Callable[..., Any], args: Any, kwargs: Any, name: str | None = None
) -> NoReturn:
    """Raises what a user should see of an exception of `function(*args, **kwargs)`."""
    title = name or function.__name__
    if isinstance(error, NotImplementedError | StopIteration) or not _is_ours(error):
        raise error
    clear = isinstance(error, NorchError) and not isinstance(error, BackendError)
    if clear and (not isinstance(error, DTypeError) or f"{title}()" in str(error)):
        raise error
    try:
        given = _signature(function).bind_partial(*args, **kwargs)
    except TypeError as unbound:  # too many, or none of that name: Python says so, unless something else failed before
        raise error if isinstance(error, TypeError) else TypeError(f"{title}(): {unbound}") from None
    wrong = _mismatch(function, given)
    if wrong is not None:
        raise DTypeError(f"{title}(): {wrong}") from None
    if clear or isinstance(error, BackendError | MemoryError | ImportError | Warning):
        raise error
    if isinstance(error, ZeroDivisionError) and "other" in given.arguments:
        raise error  # a division's own
    if isinstance(error, TypeError | ValueError | RuntimeError | IndexError | ZeroDivisionError) and (
        re.match(r"\w+\(\)|\w+: ", str(error)) or type(error).__module__.startswith("norch")
    ):
        raise error  # it names its op already
    came = ", ".join([f"{k}={describe(v)}" for k, v in given.arguments.items()])
    kind = ShapeError if isinstance(error, ValueError | ArithmeticError | IndexError) else DTypeError
    raise kind(f"{title}(): cannot be called with {came}: {error}") from error


def check_arguments(function: Callable[..., Any], args: Any, kwargs: Any, name: str) -> None:
    """Raises DTypeError for an argument that its annotation does not allow; asked once a call of `name` has failed."""
    try:
        given = _signature(function).bind_partial(*args, **kwargs)
    except TypeError:
        return
    wrong = _mismatch(function, given)
    if wrong is not None:
        raise DTypeError(f"{name}(): {wrong}") from None


def _is_ours(error: Exception) -> bool:
    """Whether norch raised it, or what norch called, and no function of the user's had a part in it."""
    trace = error.__traceback__
    while trace is not None:
        root = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if root not in ("norch", "numpy", "ml_dtypes") and root not in sys.stdlib_module_names:
            return False
        trace = trace.tb_next
    return True


def _mismatch(function: Any, given: inspect.BoundArguments) -> str | None:
    """The first argument that its annotation does not allow, what was expected and what came."""
    for name, value in given.arguments.items():
        parameter = given.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        several = parameter.kind is parameter.VAR_POSITIONAL
        for part in value if several else (value,):
            # Of `*tensors` the first may be a list of them all.
            if not fits(parameter.annotation, part) and not (several and isinstance(part, list | tuple)):
                return must_be(name, parameter.annotation, part)
    return None


def must_be(name: str, note: Any, value: object) -> str:
    wanted = " or ".join([_EXPECTED[part] for part in _parts(note)])
    return f"{name} must be {wanted}, got {describe(value)}"


def describe(value: object) -> str:
    if isinstance(value, TensorBase):
        return f"a {value.spec.dtype} Tensor of shape {tuple(value.spec.shape)}"
    own = getattr(type(value), "_described", None)
    if own is not None:  # a complex pair: its values are on a device
        return str(own(value))
    return f"{type(value).__name__} {value!r:.80}"


def _parts(note: Any) -> tuple[str, ...]:
    return _split(str(note))


@lru_cache(1024)
def _split(note: str) -> tuple[str, ...]:
    return tuple([part.strip().removeprefix("norch.") for part in note.split("|")])


def fits(note: Any, value: Any) -> bool:
    """Whether an annotation allows a value. True for annotations that are not known."""
    parts = _parts(note)
    return not all(part in _EXPECTED for part in parts) or any(_fits(part, value) for part in parts)


def _fits(note: str, value: Any) -> bool:
    if note == "None":
        return value is None
    if note in ("Tensor", "Generator", "Module", "Optimizer"):
        return any(kind.__name__ == note for kind in type(value).__mro__)
    if note.startswith("Sequence"):
        inner = note[len("Sequence[") : -1]
        return (
            not isinstance(value, str | Mapping) and hasattr(value, "__iter__") and all(_fits(inner, v) for v in value)
        )
    if note == "str":
        return isinstance(value, str)
    if isinstance(value, TensorBase):
        return note == "Operand" or (not value.spec.shape and (note != "int" or not value.spec.dtype.is_floating_point))
    if note == "int":
        return hasattr(value, "__index__") and not isinstance(value, type)
    if note == "Operand" and isinstance(value, np.ndarray):
        return True
    if isinstance(value, np.generic | np.ndarray):
        return np.ndim(value) == 0 and value.dtype.kind in "biuf"
    return isinstance(value, bool | int | float)


def plain(value: Any) -> Any:
    """An attribute as plans keep it: Python's own numbers for NumPy's, 0-d tensors' and ints in disguise, no lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | TensorBase):
        return value.item() if value.shape == () else value  # type: ignore[union-attr]
    if hasattr(type(value), "__index__"):
        return value if isinstance(value, int) else value.__index__()
    return tuple([plain(v) for v in value]) if type(value) in (tuple, list) else value


def is_plain(value: Any) -> bool:
    """Whether a part of a plan's key is one that plans keep: no number of NumPy's, no tensor."""
    kind = type(value)
    if kind is tuple:
        return all(map(is_plain, value))
    if kind is type:
        return value in (bool, int, float)
    if kind is Spec or isinstance(value, int):
        return True
    # A member descriptor is what the class Tensor has where a tensor has its spec.
    foreign = isinstance(value, np.generic | np.ndarray | TensorBase | list | MemberDescriptorType)
    return not foreign and not hasattr(kind, "__index__")


def check_attributes(op: str, notes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raises DTypeError for an attribute that its annotation does not allow, ShapeError for an int beyond 64 bits."""
    for name, value in values.items():
        note = notes.get(name)
        if not fits(note, value):
            raise DTypeError(f"{op}(): {must_be(name, note, value)}")
        if _is_beyond(value):
            raise ShapeError(f"{op}(): {name} is out of range: {value!r:.80}")


def _is_beyond(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_is_beyond, value))
    return type(value) is int and not -(2**63) <= value < 2**63
