"""Constructors made of annotated names, as those of dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
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
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([self_parameter, *fields.values()])
    positional = [name for name, field in fields.items() if field.kind is not inspect.Parameter.KEYWORD_ONLY]
    defaults = {name: f.default for name, f in fields.items() if f.default is not inspect.Parameter.empty}

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(positional, args), **kwargs)
        values = {**defaults, **given}
        if len(given) != len(args) + len(kwargs) or values.keys() != fields.keys():
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        initialise(self, values)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    cls.__init__, cls._fields = __init__, fields
