"""In-place arithmetic and the views that its tests try it on."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import norch
from norch import Tensor

OPS: dict[str, Callable[..., Tensor]] = {"add_": norch.add, "sub_": norch.sub, "mul_": norch.mul, "div_": norch.div}
"""By in-place method, the function that says what should come out."""

OPERATORS = {"add_": operator.iadd, "sub_": operator.isub, "mul_": operator.imul, "div_": operator.itruediv}
each_op = pytest.mark.parametrize("name", OPS)


def call(x: Tensor, name: str, *args: Any, **kwargs: Any) -> Tensor:
    result: Tensor = getattr(x, name)(*args, **kwargs)
    return result


def matrix(dtype: norch.dtype = norch.float32, device: Any = None) -> Tensor:
    return norch.tensor([[1, 2, 3], [4, 5, 6]], dtype=dtype, device=device)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda m: m,
    "row": lambda m: m[1],
    "column": lambda m: m[:, 1],
    "transposed": lambda m: m.t(),
    "stepped": lambda m: m[:, ::2],
    "element": lambda m: m[1, 2],
    "diagonal": lambda m: m.diagonal(),
    "none": lambda m: m[:0],
}
