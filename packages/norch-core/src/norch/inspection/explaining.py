"""`norch.explain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from ..dispatch.arguments import describe
from ..errors import DTypeError
from ..spec import Spec
from ..tensor import Tensor
from ..tensor_base import TensorBase
from .explanation import Explanation, explained
from .naming import caller
from .steps import Walk, walk


@overload
def explain(thing: Tensor, *, name: str = "") -> Explanation: ...
@overload
def explain(thing: Callable[[], Any], *, name: str = "") -> Walk: ...


def explain(thing: Any, *, name: str = "") -> Any:
    """How a tensor lies in memory, or what each step of a function does to that.

    Of a tensor: its storage with the elements that it shows, shape, strides and offset, the other living tensors on the
    storage, which dims merge, and which calls would copy. `norch.explain(lambda: x.T.reshape(6))` calls the function
    and tells of each call of norch in it whether its result is a view or a copy, and why; an error that norch raises is
    the last step.

    thing: a tensor of any shape, dtype and device, or a function without arguments.
    name: what the tensor is called, unless what the program calls it, which is looked for in the variables of its
    functions, its lists and dicts, and its models.

    `print` shows the text, a notebook the picture, and `save("picture.svg")` writes that. Of values only the few that
    are shown are read. Raises DTypeError for anything else, and for tensors that have no strides: sparse ones, and
    those inside vmap.
    """
    frame = caller()
    if not isinstance(thing, TensorBase):
        if not callable(thing):
            raise DTypeError(f"explain(): expected a Tensor or a function without arguments, got {describe(thing)}")
        if callable(getattr(type(thing), "named_parameters", None)):
            raise DTypeError(
                "explain(): give a function, lambda: model(x); norch.summary shows what a model consists of"
            )
        return walk(thing, frame)
    if type(thing.spec) is not Spec:
        raise DTypeError(f"explain(): a {type(thing).__name__} has no strides; explain what it consists of")
    return explained(thing, frame, name)  # type: ignore[arg-type]
