"""New tensors of a tensor's dtype and device, under the names of its methods; and the rarer kinds of new tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..device import Device, get_default_device
from ..dispatch.failure import allocate_for
from ..dtype import as_dtype, float64, get_default_dtype
from ..errors import ShapeError
from ..spec import Size, Spec, as_shape, span
from ..tensor_base import make_tensor
from .creation import (
    DeviceLike,
    bounded,
    dtype_into,
    empty_spec,
    fill_spec,
    filled,
    full,
    like_spec,
    linspace,
    with_float64,
    with_options,
)
from .from_data import tensor
from .registry import method, public

if TYPE_CHECKING:
    from ..tensor import Tensor


@method()
def new_empty(
    self: Tensor, *size: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """An uninitialised tensor of shape `size` with this one's dtype and device. Raises as empty does."""
    if more and not size:
        size = more.pop("size", size)
    out = empty_spec(like_spec(self, size, dtype, device, "new_empty"))
    return with_options("new_empty", out, requires_grad, more) if more or requires_grad else out


@method()
def new_zeros(
    self: Tensor, *size: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """Zeros of shape `size` with this tensor's dtype and device. Raises as zeros does."""
    if more and not size:
        size = more.pop("size", size)
    out = fill_spec(like_spec(self, size, dtype, device, "new_zeros"), 0)
    return with_options("new_zeros", out, requires_grad, more) if more or requires_grad else out


@method()
def new_ones(
    self: Tensor, *size: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """Ones of shape `size` with this tensor's dtype and device. Raises as ones does."""
    if more and not size:
        size = more.pop("size", size)
    out = fill_spec(like_spec(self, size, dtype, device, "new_ones"), 1)
    return with_options("new_ones", out, requires_grad, more) if more or requires_grad else out


@method()
def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`fill_value` in shape `size` with this tensor's dtype and device. Raises as full does."""
    out = filled(like_spec(self, size, dtype, device, "new_full"), fill_value)
    return with_options("new_full", out, requires_grad, more) if more or requires_grad else out


@method()
def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of `data` with this tensor's dtype and device unless given."""
    return tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


@method()
def new_empty_strided(
    self: Tensor,
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """An uninitialised tensor of shape `size` with strides `stride`, of this tensor's dtype and device unless given.

    Raises as `empty_strided`.
    """
    return empty_strided(
        size, stride, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad, **more
    )


@public(method=False)
def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """An uninitialised tensor of shape `size` with strides `stride`, counted in elements. Raises ShapeError for
    negative ones.
    """
    shape, strides = as_shape(size, "empty_strided"), as_shape(stride, "empty_strided")
    if len(shape) != len(strides):
        raise ShapeError(f"empty_strided(): shape {shape} and strides {strides} differ in length")
    like = Spec(
        shape,
        strides,
        get_default_dtype() if dtype is None else as_dtype(dtype, "empty_strided"),
        get_default_device() if device is None else Device(device),
    )
    nbytes = span(shape, strides) * like.dtype.itemsize
    out = make_tensor(like, allocate_for(like, nbytes))
    return with_options("empty_strided", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def scalar_tensor(
    s: Any, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """A number `s` as a 0-d tensor, of the default dtype unless given."""
    return full((), s, dtype=dtype or get_default_dtype(), device=device, requires_grad=requires_grad, **more)


@public(method=False)
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`steps` values evenly spaced in the exponent, base**start to base**end included. Raises as linspace does."""
    dtype = dtype_into(dtype, more)
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, "logspace")
    start, end = (bounded(v, chosen, "logspace") for v in (start, end))
    target = get_default_device() if device is None else Device(device)
    exponents = linspace(start, end, steps, dtype="float64", device=with_float64(target))
    # To fewer bits than float64 has, the exponential is exact enough, and fast.
    is_short = 0 < base < math.inf and chosen.is_floating_point and chosen is not float64
    values: Tensor = (exponents * math.log(base)).exp() if is_short else float(base) ** exponents
    values = values.to(chosen).to(target)
    return with_options("logspace", values, requires_grad, more) if more or requires_grad else values


@method()
def new(self: Tensor, *data: Any, size: Any = None, device: DeviceLike = None) -> Tensor:
    """`new_tensor` of data, or `new_empty` of sizes, or of `size`, as `Tensor(...)`. PyTorch's old form of both.

    Of a tensor of the same dtype and device it is a view.
    """
    if size is not None:
        return new_empty(self, size, device=device)
    spec = getattr(data[0], "spec", None) if len(data) == 1 and device is None else None
    if isinstance(spec, Spec) and (spec.dtype, spec.device) == (self.spec.dtype, self.spec.device):
        return data[0][...]  # type: ignore[no-any-return]
    if len(data) == 1 and not isinstance(data[0], int | Size):
        return new_tensor(self, data[0], device=device)
    return new_empty(self, *(data or (0,)), device=device)
