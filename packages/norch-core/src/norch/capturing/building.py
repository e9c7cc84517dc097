"""Between calls of a step and the tensors and numbers that its programs take and give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from ..dispatch.traced import ARGUMENT, Trace, traced
from ..func.trees import flatten, unflatten
from ..tensor_base import TensorBase
from .attributes import Attribute

if TYPE_CHECKING:
    from ..tensor import Tensor


def caller_of(function: Callable[..., Any], leaves: list[Any], structure: Any) -> Callable[..., Any]:
    """Calls `function` with other tensors and numbers in the places of those among `leaves`."""
    at = [i for i, x in enumerate(leaves) if isinstance(x, TensorBase)]
    plain = [None if isinstance(x, TensorBase) else x for x in leaves]

    def call(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        values = list(plain)
        for i, number in enumerate(numbers):
            if number is not None:
                values[i] = number
        for i, tensor in zip(at, tensors, strict=True):
            values[i] = tensor
        args, kwargs = unflatten(structure, values)
        return function(*args, **kwargs)

    return call


def with_traced(arguments: Any, trace: Trace) -> Any:
    """The arguments with floats whose use `trace` is told of."""
    leaves, structure = flatten(arguments)
    follow = [type(x) is float and isfinite(x) for x in leaves]
    found = [traced(x, (ARGUMENT, i), trace) if follow[i] else x for i, x in enumerate(leaves)]
    return unflatten(structure, found)


def putting(build: Callable[[list[Any]], Any], attributes: Sequence[Attribute]) -> Callable[[list[Any]], Any]:
    """`build`, of what a step returns and the tensors that it leaves in attributes."""

    def put(made: list[Any]) -> Any:
        out, tensors = build(made)
        for attribute, tensor in zip(attributes, tensors, strict=True):
            attribute.put(tensor)
        return out

    return put
