"""Layers as tables: their options are annotated names, as in a dataclass; their forward is one call of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from .functional.loss_arguments import deprecated_reduction
from .module import Module

M = TypeVar("M", bound=type[Module])


@dataclass_transform()
def layer(function: Callable[..., Any] | None = None) -> Callable[[M], M]:
    """Class decorator: the annotated names of a Module are its options.

        @layer(F.leaky_relu)
        class LeakyReLU(Module):
            negative_slope: float = 0.01
            inplace: bool = False

    The constructor takes them in this order (only by keyword after `_: KW_ONLY`), makes each an attribute, or a buffer
    where a tensor is expected, and calls `__post_init__`. Unless the class defines them, `forward` passes its inputs
    and the options to `function`, and `extra_repr` shows the options. A function with the deprecated arguments
    `size_average` and `reduce` gives them to the constructor. Options are inherited as a dataclass inherits fields.
    """

    def decorate(cls: M) -> M:
        if inspect.get_annotations(cls):
            _add_constructor(cls, getattr(function, "size_average_before", None))
        if function is not None:
            cls.forward = _forward(inspect.unwrap(function), cls._options)  # type: ignore[attr-defined, method-assign]
        if cls.extra_repr is Module.extra_repr:
            cls.extra_repr = _extra_repr  # type: ignore[method-assign]
        return cls

    return decorate


def _add_constructor(cls: Any, size_average_before: str | None) -> None:
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
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([self_parameter, *sorted(fields.values(), key=lambda field: field.kind)])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        bound.apply_defaults()
        Module.__init__(self)
        for name, value in list(bound.arguments.items())[1:]:
            if fields[name].annotation.startswith("norch.Tensor"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    cls.__init__ = deprecated_reduction(size_average_before)(__init__) if size_average_before else __init__
    cls._fields, cls._options = fields, tuple(signature.parameters)[1:]


def _forward(function: Callable[..., Any], options: tuple[str, ...]) -> Any:
    if not options:
        return staticmethod(function)
    doc = f"The arguments and errors are those of `functional.{function.__name__}`."
    if tuple(inspect.signature(function).parameters)[1 : 1 + len(options)] != options:  # several inputs

        def by_name(self: Any, *inputs: Any, **named: Any) -> Any:
            return function(*inputs, **named, **{name: getattr(self, name) for name in options})

        by_name.__doc__ = doc
        return by_name

    values = attrgetter(*options)
    if len(options) == 1:

        def forward(self: Any, input: Any) -> Any:
            return function(input, values(self))

    else:

        def forward(self: Any, input: Any) -> Any:
            return function(input, *values(self))

    forward.__doc__ = doc
    return forward


def _extra_repr(self: Any) -> str:
    shown = {name: getattr(self, name) for name in self._options}
    if not shown.get("inplace", True):
        del shown["inplace"]
    return ", ".join(f"{name}={value!r}" for name, value in shown.items())
