"""`torch.jit` for programs: modules that were traced or scripted run as they are, and are saved whole."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any

import norch

from . import functional
from .module import Module
from .registry import list_registries


class ScriptModule(Module):
    """The base of modules that programs compile: of it are those that `jit.trace` and `jit.script` gave."""

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """`jit.save` of this module. Raises as that does."""
        save(self, f, _extra_files)


class _Traced(ScriptModule):
    """A module that computes as another, whose class and parameters it has."""

    @property
    def original_name(self) -> str:
        """The name of the class that was traced."""
        return type(self).__name__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return traced, (_with_state(type(self).__bases__[1], self),)


@cache
def _class_of(kind: Any) -> Any:
    return type(kind.__name__, (_Traced, kind), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _with_state(kind: type[Module], module: Module) -> Module:
    out: Module = object.__new__(kind)
    out.__dict__.update(module.__dict__)
    list_registries(out)
    return out


def traced(module: Module) -> Module:
    """A module of a class of its own that has the parameters, buffers and modules of `module`."""
    kind: Any = type(module)
    return module if isinstance(module, ScriptModule) else _with_state(_class_of(kind), module)


def trace(func: Any, example_inputs: Any = None, *, example_kwarg_inputs: Any = None, **options: Any) -> Any:
    """A module that computes as `func`, a module, does, on the same parameters; of a function, that function.

    example_inputs: a tensor, or a tuple of arguments, that `func` is called with once. options: PyTorch's, ignored.
    Nothing is frozen to what the example led through: what comes out runs the Python of `func`. Raises what that
    raises.
    """
    if example_inputs is not None or example_kwarg_inputs is not None:
        given = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
        func(*(() if example_inputs is None else given), **(example_kwarg_inputs or {}))
    return traced(func) if isinstance(func, Module) else func


def trace_module(mod: Module, inputs: dict[str, Any], **options: Any) -> Module:
    """`trace` of a module of which several methods are called with `inputs`, by their names. Raises what they raise."""
    for name, given in inputs.items():
        getattr(mod, name)(*(given if isinstance(given, tuple | list) else (given,)))
    return traced(mod)


def save(m: Module, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Saves a module, its parameters and the names of its modules' classes, for `jit.load`.

    f: a path or a file. Raises DTypeError for what is no module, NotImplementedError for extra files.
    """
    if not isinstance(m, Module):
        raise norch.DTypeError(f"jit.save(): expected a module, got {type(m).__name__}")
    if _extra_files:
        raise NotImplementedError("jit.save(): norch keeps no extra files; save them beside it")
    norch.save(m, f)


def _classes(kind: type) -> Iterator[type]:
    yield kind
    each: type
    for each in kind.__subclasses__():
        yield from _classes(each)


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **options: Any) -> Module:
    """The module that `jit.save` has saved, of classes that the program has imported.

    It runs no code that the file brings: the file names modules' classes, enums and functions of `nn.functional`, and
    what it names besides is refused. f: a path or a file. map_location: a device, as of `norch.load`. Raises
    NotImplementedError for extra files and for TorchScript of PyTorch, whose programs norch does not run, and as
    `norch.load`.
    """
    if _extra_files:
        raise NotImplementedError("jit.load(): norch keeps no extra files; read them from beside it")
    known: list[Any] = [*_classes(Module), *_classes(Enum), traced]
    known += [value for name, value in vars(functional).items() if callable(value) and not name.startswith("_")]
    with norch.serialization.safe_globals(known):
        found = norch.load(f, map_location=map_location)
    if not isinstance(found, Module):
        raise NotImplementedError(
            "jit.load(): norch runs no TorchScript; norch.load gives the state_dict of such a file, for a model to load"
        )
    return traced(found)
