"""Small functions of PyTorch's that have no other place: what `paths` gives under its modules' names."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from importlib import import_module
from types import UnionType
from typing import Any

import numpy


def unchanged(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that leaves what it decorates as it is."""
    return function if callable(function) else unchanged


def _script(obj: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`jit.script`: a function or class is itself, and runs as it is; of a module, norch-nn's."""
    if hasattr(obj, "forward") and not isinstance(obj, type):
        return import_module("norch.nn.traced").traced(obj)
    return unchanged(obj, *args, **kwargs)


def _is_instance(obj: Any, target_type: Any) -> bool:
    """`isinstance`, for annotations of containers too: `list[int]` and what it has."""
    origin, parts = typing.get_origin(target_type), typing.get_args(target_type)
    if isinstance(target_type, tuple) or origin in (typing.Union, UnionType):
        return any(_is_instance(obj, each) for each in parts or target_type)
    if origin is None or not isinstance(obj, origin):
        return origin is None and isinstance(obj, target_type)
    if origin is dict:
        return all(_is_instance(k, parts[0]) and _is_instance(v, parts[1]) for k, v in obj.items())
    if origin is tuple:
        return len(obj) == len(parts) and all(map(_is_instance, obj, parts))
    return all(_is_instance(each, parts[0]) for each in obj)


def _tqdm(*args: Any, **kwargs: Any) -> Any:
    return import_module("tqdm").tqdm(*args, **kwargs)


def _addindent(s_: str, numSpaces: int) -> str:
    """The text with its lines after the first indented, as modules show their parts."""
    return s_.replace("\n", "\n" + numSpaces * " ")


def _reshaped(x: Any, shape: Any) -> Any:
    """`x` in the shape that a tensor of integers says."""
    return x.reshape(shape.tolist())


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> Any:
    """The sizes of which None is the default's, from the right."""
    if isinstance(out_size, int | tuple):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [d if v is None else v for v, d in zip(out_size, defaults[-len(out_size) :], strict=True)]


def _environment() -> str:
    """What `norch info` says."""
    info = import_module("norch.__main__")
    return str(info.show(info.collect()))


def _vmap(func: Any, in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False) -> Any:
    return import_module("norch.func").vmap(func, in_dims, out_dims)


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    return lambda x: tuple(x) if isinstance(x, list | tuple) else (x,) * n


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """What PyTorch seeds NumPy's generator with in a loader's worker: four words, of its number and the seed."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in numpy.random.SeedSequence(words).generate_state(4)]


class _Forked:
    """What `jit.fork` gives: outside of scripts PyTorch too has called the function by then."""

    def __init__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._value = func(*args, **kwargs)

    def wait(self) -> Any:
        return self._value

    value = wait

    def done(self) -> bool:
        return True
