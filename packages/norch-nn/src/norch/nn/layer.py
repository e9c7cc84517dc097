"""Layers as tables: their options are annotated names, as in a dataclass; their forward is one call of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import takewhile
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
    where a tensor is expected, and calls `__post_init__`. Options are inherited as a dataclass inherits fields. Unless
    the class defines it, `extra_repr` shows the options, or those in `_shown`.

    `function`, where given, makes the forward: it is called with the inputs and the options, by name (`training` too).
    If it has the deprecated arguments `size_average` and `reduce`, so has the constructor.
    """

    size_average_before = getattr(function, "size_average_before", None)

    def decorate(cls: M) -> M:
        if inspect.get_annotations(cls):
            _add_constructor(cls, size_average_before)
        options = getattr(cls, "_options", ())
        if function is not None and "forward" not in cls.__dict__:
            call = inspect.unwrap(function) if size_average_before else function
            cls.forward = _forward(call, options)  # type: ignore[method-assign]
        if options and cls.extra_repr is Module.extra_repr:
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

    options = tuple(signature.parameters)[1:]
    positional = [name for name in options if fields[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    defaults = {name: fields[name].default for name in options if fields[name].default is not inspect.Parameter.empty}
    buffers = {name for name in options if fields[name].annotation.startswith("norch.Tensor")}

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(positional, args), **kwargs) if args else kwargs
        values = {**defaults, **given}
        if len(args) > len(positional) or values.keys() != fields.keys():
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        Module.__init__(self)
        for name, value in values.items():
            if name in buffers:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    cls.__init__ = deprecated_reduction(size_average_before)(__init__) if size_average_before else __init__
    cls._fields, cls._options = fields, options


def _forward(function: Callable[..., Any], options: tuple[str, ...]) -> Any:
    """`def forward(self, input): return function(input, dim=self.dim)`, as it would be written by hand."""
    attributes = {*options, "training"}
    names = list(inspect.signature(function).parameters)
    inputs = ", ".join(takewhile(lambda name: name not in attributes, names)) if options else names[0]
    arguments = "".join(f", {name}=self.{name}" for name in names if name in attributes)
    namespace: dict[str, Any] = {"function": function}
    exec(f"def forward(self, {inputs}):\n    return function({inputs}{arguments})", namespace)
    forward = namespace["forward"]
    forward.__doc__ = f"The arguments and errors are those of `functional.{function.__name__}`."
    return forward


def _extra_repr(self: Any) -> str:
    shown = getattr(self, "_shown", None)
    if shown is None:  # as PyTorch's, which say "inplace" where it is so
        shown = [name for name in self._options if name != "inplace" or self.inplace]
    return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
