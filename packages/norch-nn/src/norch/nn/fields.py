"""Constructors made of annotated names, as those of dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any


def add_constructor(cls: Any, initialise: Callable[[Any, dict[str, Any]], None]) -> None:
    """Gives a class a constructor whose arguments are its annotated names, in order, and then `initialise`s with them.

    What comes after `_: KW_ONLY` is taken only by keyword; class variables are no arguments. Annotations are inherited
    as a dataclass inherits fields. `cls._fields` has all of them, as parameters by name.
    """
    fields: dict[str, inspect.Parameter] = dict(getattr(cls, "_fields", {}))
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, annotation in inspect.get_annotations(cls).items():
        if annotation == "KW_ONLY":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif not annotation.startswith("ClassVar"):
            default = cls.__dict__.get(name, inspect.Parameter.empty)
            fields[name] = inspect.Parameter(name, kind, default=default, annotation=annotation)
            if name in cls.__dict__:
                delattr(cls, name)
    fields = dict(sorted(fields.items(), key=lambda item: item[1].kind))
    by_name = [field for field in fields.values() if field.kind is inspect.Parameter.KEYWORD_ONLY]
    given_as = _initialiser.__code__.replace(  # some libraries look there for an option before they give it
        co_varnames=("self", *fields), co_nlocals=1 + len(fields), co_argcount=1 + len(fields) - len(by_name),
        co_kwonlyargcount=len(by_name), co_name="__init__", co_qualname=f"{cls.__qualname__.lstrip('_')}.__init__",
    )  # fmt: skip

    def start(self: Any, values: dict[str, Any]) -> None:
        del values["self"]
        initialise(self, values)

    init: Any = FunctionType(given_as, {"start": start, "__name__": cls.__module__})
    has_default = [field for field in fields.values() if field.default is not inspect.Parameter.empty]
    init.__defaults__ = tuple(field.default for field in has_default if field not in by_name)
    init.__kwdefaults__ = {field.name: field.default for field in has_default if field in by_name}
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    init.__signature__ = inspect.Signature([self_parameter, *fields.values()])  # with its annotations
    cls.__init__, cls._fields = init, fields


def name_constructor(cls: Any) -> None:
    """Gives a class that inherits such a constructor one under its own name, which errors say."""
    code = getattr(cls.__init__, "__code__", None)
    if "__init__" in vars(cls) or code is None or code.co_filename != __file__:
        return
    inherited = cls.__init__
    code = code.replace(co_qualname=f"{cls.__qualname__.lstrip('_')}.__init__")
    init: Any = FunctionType(code, inherited.__globals__, argdefs=inherited.__defaults__)
    init.__kwdefaults__, init.__signature__ = inherited.__kwdefaults__, inherited.__signature__
    cls.__init__, cls._fields = init, cls._fields


def _initialiser(self: Any) -> None:
    """The code of each constructor, but for its arguments: it has no variable, whose place one of them would take."""
    start(self, locals())  # type: ignore[name-defined]  # noqa: F821
