"""What the tests of printing share: a stand-in for a tensor, and cases of what it prints."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from norch.dtype import as_dtype, set_default_dtype
from norch.tensor.printing import set_printoptions, tensor_repr


class Printed:
    """The little of a tensor that printing asks for."""

    def __init__(self, values: Any, dtype: str, requires_grad: bool = False, grad_fn: str = "", device: str = "cpu"):
        self.dtype = as_dtype(dtype)
        self.values = np.array(values).astype(self.dtype.numpy)
        self.shape = self.values.shape
        self.requires_grad = requires_grad
        self.grad_fn = SimpleNamespace(name=lambda: grad_fn) if grad_fn else None
        self.device = Device(device)

    def detach(self) -> "Printed":
        return self

    cpu = detach

    def numpy(self) -> np.ndarray:
        return self.values


class Device(str):
    @property
    def type(self) -> str:
        return self.partition(":")[0]

    @property
    def is_meta(self) -> bool:
        return self.type == "meta"


def case(name, values, dtype, expected, requires_grad=False, grad_fn="", default="float32", **options):
    return pytest.param(Printed(values, dtype, requires_grad, grad_fn), expected, default, options, id=name)


def check(tensor, expected, default, options):
    set_printoptions(**options)
    set_default_dtype(as_dtype(default))
    assert tensor_repr(tensor) == expected
