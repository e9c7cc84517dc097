"""Questions about tensors and dtypes that PyTorch has as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dispatch.arguments import check_functions

if TYPE_CHECKING:
    from ..tensor import Tensor


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return input.is_floating_point()


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.is_signed()


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not 0. Raises ShapeError where there is not exactly one."""
    return input.is_nonzero()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.is_same_size(other)


def is_storage(obj: object) -> bool:
    """Whether `obj` is what `Tensor.storage()` returns."""
    from ..tensor import Storage

    return isinstance(obj, Storage)


def numel(input: Tensor) -> int:
    """How many elements there are."""
    return input.numel()


def get_device(input: Tensor) -> int:
    """The index of the tensor's device; -1 for the CPU."""
    return input.get_device()


def typename(obj: object) -> str:
    """The full name of the type of `obj`; of a tensor, what `Tensor.type()` gives."""
    from ..tensor import Tensor

    if isinstance(obj, Tensor):
        return str(obj.type())
    module = getattr(obj, "__module__", "") or type(obj).__module__
    name = getattr(obj, "__qualname__", "") or type(obj).__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def detach(input: Tensor) -> Tensor:
    """A tensor of the same shape on the same memory that is no part of the graph."""
    return input.detach()


def is_inference(input: Tensor) -> bool:
    """False: there are no inference tensors apart from others."""
    return False


def set_flush_denormal(mode: bool) -> bool:
    """False, for "not supported", as in PyTorch: whatever `mode`, norch never flushes small numbers to 0."""
    return False


check_functions(globals())
