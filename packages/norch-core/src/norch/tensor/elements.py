"""Python functions of a tensor's elements, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError, DeviceError, DTypeError
from ..ops.from_data import tensor as new_tensor
from ..ops.registry import method

if TYPE_CHECKING:
    from . import Tensor


@method()
def apply_(self: Tensor, function: Callable[[Any], Any]) -> Tensor:
    """Replaces every element by `function` of it, a Python function: slow, and on the CPU only.

    Raises DeviceError elsewhere, AutogradError for a tensor that requires grad.
    """
    return _mapped(self, function, (), "apply_")


@method()
def map_(self: Tensor, tensor: Tensor, function: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces every element by `function` of it and of the other tensor's; slow, and on the CPU only.

    The other broadcasts. Raises DeviceError elsewhere, DTypeError for another dtype, AutogradError for a tensor that
    requires grad.
    """
    return _mapped(self, function, (tensor,), "map_")


def _mapped(self: Tensor, function: Callable[..., Any], others: tuple[Any, ...], op: str) -> Tensor:
    if self.spec.device.type != "cpu":
        raise DeviceError(f"{op}(): a Python function of elements runs on the CPU only, not on {self.spec.device}")
    for other in others:
        if other.spec.dtype is not self.spec.dtype:
            raise DTypeError(f"{op}(): tensors of {self.spec.dtype} and {other.spec.dtype}; convert one")
    if self.requires_grad:
        raise AutogradError(f"{op}(): cannot be differentiated; use it on detach()")
    columns = [x.expand(tuple(self.spec.shape)).reshape(-1).tolist() for x in (self, *others)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    return self.copy_(new_tensor(values, dtype=self.spec.dtype).reshape(tuple(self.spec.shape)))
