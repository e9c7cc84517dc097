"""Layers as tables: their options are annotated names, as in a dataclass; their forward is one call of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar, dataclass_transform

from norch import switches

from . import functional as F
from .fields import add_constructor
from .functional.loss_arguments import deprecated_reduction
from .module import Module

_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY

M = TypeVar("M", bound=type[Module])

MAX_LAYERS = 2**16
"""Of one stack: a slip such as a size for a count raises, and is not built until memory ends."""


@dataclass_transform()
def layer(function: Callable[..., Any] | None = None) -> Callable[[M], M]:
    """Class decorator: the annotated names of a Module are its options. (Annotations must be strings.)

        @layer(F.leaky_relu)
        class LeakyReLU(Module):
            negative_slope: float = 0.01
            inplace: bool = False

    The constructor takes them in this order (only by keyword after `_: KW_ONLY`), makes each an attribute, or a buffer
    where a tensor is expected, and calls `__post_init__`, which is given what is an `InitVar`. Options are inherited as
    a dataclass inherits fields. Unless the class defines it, `extra_repr` shows the options, or those in `_shown`.

    `function`, where given, makes the forward: it is called with the inputs and the options, by name (`training` too).
    If it has the deprecated arguments `size_average` and `reduce`, so has the constructor.
    """
    size_average_before = getattr(function, "size_average_before", None)

    def decorate(cls: M) -> M:
        if inspect.get_annotations(cls):
            add_constructor(cls, partial(_initialise, cls))
            if size_average_before:
                cls.__init__ = deprecated_reduction(size_average_before)(cls.__init__)  # type: ignore[method-assign]
            # Libraries evaluate what stands here among their own names, where there may be no norch.
            cls.__annotations__ = dict.fromkeys(cls.__annotations__, Any)
        options = tuple(n for n, f in getattr(cls, "_fields", {}).items() if not f.annotation.startswith("InitVar"))
        if function is not None and "forward" not in cls.__dict__:
            cls.forward = _forward(function, options)  # type: ignore[method-assign]
        if options and cls.extra_repr is Module.extra_repr:
            cls.extra_repr = _extra_repr  # type: ignore[method-assign]
        return cls

    return decorate


def _initialise(cls: Any, self: Any, values: dict[str, Any]) -> None:
    bases = type(self).__mro__[type(self).__mro__.index(cls) + 1 :]
    # As super().__init__(), but for bases that are tables too.
    next(vars(base)["__init__"] for base in bases if "__init__" in vars(base) and "_fields" not in vars(base))(self)
    for_init = {}
    for name, value in values.items():
        annotation = self._fields[name].annotation
        if annotation.startswith("InitVar"):
            for_init[name] = value
        elif annotation.startswith("norch.Tensor"):
            self.register_buffer(name, value)
        else:
            setattr(self, name, value)
    if for_init or hasattr(self, "__post_init__"):
        before = switches.fingerprint
        self.__post_init__(**for_init)
        switches.fingerprint = before  # no captured step knows a module that is being made


def _forward(function: Callable[..., Any], options: tuple[str, ...]) -> Any:
    """`def forward(self, input): return F.function(input, dim=self.dim)`, as it would be written by hand.

    The function is looked up in each call, since programs put others in its place: profilers, and faster attention.
    """
    public, function = function, getattr(function, "without_deprecated", function)
    attributes = {*options, "training"}
    names = list(inspect.signature(function).parameters)
    inputs = ", ".join(takewhile(lambda name: name not in attributes, names)) if options else names[0]
    first = inputs.count(",") + 1
    given = [name in attributes for name in names[first:]]
    # PyTorch's modules give these by position, which what was put in a function's place may count on, but for losses.
    count = first + (given.index(False) if False in given else len(given)) if function is public else 0
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    arguments = "".join(
        f", self.{name}" if i < count and kinds[i] is not _KEYWORD_ONLY else f", {name}=self.{name}"
        for i, name in enumerate(names)
        if name in attributes
    )
    name = public.__name__
    namespace: dict[str, Any] = {"F": F, "function": function, "public": public}
    called = "function"
    if getattr(F, name, None) is public:
        called = f"F.{name}" if function is public else f"(function if F.{name} is public else F.{name})"
    source = f"def forward(self, {inputs}):\n    return {called}({inputs}{arguments})"
    exec(compile(source, "<norch forward>", "exec"), namespace)
    forward = namespace["forward"]
    forward.__doc__ = f"The arguments and errors are those of `functional.{function.__name__}`."
    return forward


def _extra_repr(self: Any) -> str:
    """What stands in parentheses when it is printed."""
    shown = getattr(self, "_shown", None)
    if shown is None:  # as PyTorch's, which say "inplace" where it is so
        shown = [name for name in self._fields if name != "inplace" or self.inplace]
    return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
