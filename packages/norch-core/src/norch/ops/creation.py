"""Tensors from nothing or from data."""

from __future__ import annotations

from ctypes import c_float
from functools import lru_cache
from importlib import import_module
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from .. import settings
from ..autograd.accumulate import shared_ops
from ..device import CPU, Device, get_default_device, has_stand_in, on_default_change
from ..dispatch.arguments import INTO, fits, into, must_be
from ..dispatch.op import Op
from ..dispatch.plan import PLAN_LIMIT, SCALARS, Inferred
from ..dtype import FLOATING, DType, as_dtype, bool_, float32, float64, get_default_dtype, iinfo, int64, scalar_dtype
from ..errors import DTypeError, ShapeError
from ..overriding import of_foreign
from ..spec import Shape, Spec, as_int, as_shape, dense_strides, elementwise_layout
from ..tensor_base import make_tensor
from .families import primitive
from .registry import public

if TYPE_CHECKING:
    from ..tensor import Tensor

DeviceLike = Device | str | None
Scalar = bool | int | float


def _infer_fill(spec: Spec, value: type) -> Inferred:
    return Inferred((spec,), ((spec.dtype, ()),))


FILL = primitive("fill", "spec value", (), _infer_fill, elementwise=True, numbers=(1,))


_EMPTY = Op("empty", ("spec",), (), lambda spec: Inferred((spec,), (), parts=()), kind="composite")
empty_spec = _EMPTY.call
"""An uninitialised tensor of a spec."""


shared_ops["fill"] = FILL.call


def _infer_copy(x: Spec, dtype: DType | None, row_major: bool | None) -> Inferred:
    """A copy keeps strides without gaps, those of dims of size 1 too: channels-last weights of 1 x 1 stay that."""
    if row_major:
        layout = None
    else:
        layout = (x.numel and dense_strides(x.shape, x.strides)) or elementwise_layout(x.shape, (x,))
    return Inferred((Spec(x.shape, layout, dtype or x.dtype, x.device),), (x,))


COPY = primitive("copy", "x dtype row_major", 1, _infer_copy, (lambda g: g,), elementwise=True)
"""A copy of a tensor in a dtype, on its device: in its own layout, or row by row."""


def _infer_arange(spec: Spec, start: type, step: type) -> Inferred:
    return Inferred((spec,), ((spec.dtype, ()), (spec.dtype, ())))


ARANGE = primitive("arange", "spec start step", (), _infer_arange, numbers=(1, 2))


_specs: dict[Any, Spec] = {}
"""By size, dtype and device: the specs of tensors that were made so before."""
settings.on_change(_specs.clear)
on_default_change.append(_specs.clear)


def spec_for(size: Any, dtype: Any, device: DeviceLike, op: str) -> Spec:
    """A contiguous spec from what a user gave; the default dtype and device where nothing was given."""
    if type(device) is str:  # which device "cuda" is may change
        device = Device(device)
    key = size, dtype, device
    try:
        spec = _specs[key]
        for n in size:
            if type(n) is not int:  # 2.0 and True are keys equal to ints
                raise TypeError
    except (KeyError, TypeError):
        if type(size) is tuple and len(size) == 1 and isinstance(size[0], tuple):
            return spec_for(tuple(size[0]), dtype, device, op)
        chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
        shape = as_shape(size, op)
        spec = Spec(shape, None, chosen, get_default_device() if device is None else Device(device))
        if isinstance(dtype, DType | None) and isinstance(device, Device | None) and not has_stand_in():
            if len(_specs) > PLAN_LIMIT:
                _specs.clear()
            _specs[shape, dtype, device] = spec
    return spec


def finish(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor


def with_options(op: str, tensor: Tensor, requires_grad: bool, more: dict[str, Any]) -> Tensor:
    """`finish`, and what else PyTorch's creation functions take. Raises TypeError for what norch does not."""
    from ..memory_formats import channels_behind, contiguous_format, strided

    pinned = more.pop("pin_memory", False)
    if more.pop("layout", None) not in (None, strided):
        raise TypeError(f"{op}(): norch has no layout but norch.strided")
    wanted = more.pop("memory_format", None)
    behind = channels_behind(tensor, wanted, op)
    if behind is not None:
        tensor = behind.contiguous().movedim(-1, 1)
    elif wanted is contiguous_format:
        tensor = tensor.contiguous()
    out = more.pop("out", None)
    if out is not None:
        drawn = op.removesuffix("_like") in ("rand", "randn")  # the rest is numbers that fit any dtype
        made = tensor.to(out.device) if drawn else tensor.to(out.device, out.dtype)
        tensor = INTO[0](lambda: made, op, out, (), {})
    if more:
        raise TypeError(f"{op}(): unexpected arguments {', '.join(more)}")
    return finish(tensor.pin_memory() if pinned else tensor, requires_grad)


def dtype_into(dtype: Any, more: dict[str, Any]) -> Any:
    """`dtype`, or where there is none that of `out`, so that what it gets is not rounded to another before."""
    return getattr(more.get("out"), "dtype", None) if dtype is None and more else dtype


def fill_spec(spec: Spec, value: Scalar) -> Tensor:
    """A tensor of `spec` that holds `value` everywhere."""
    return FILL.call(spec, value)


def filled(spec: Spec, value: Any) -> Tensor:
    """`fill_spec` of a number, or of a 0-d tensor, which is not read where it lies on the device of `spec`."""
    if not hasattr(value, "spec"):
        return fill_spec(spec, value.item() if hasattr(value, "item") else value)
    out = empty_spec(spec)
    return out.copy_(value.detach().reshape(()))


def _is_sparse(layout: Any) -> bool:
    from ..memory_formats import sparse_coo, sparse_csc, sparse_csr

    return layout in (sparse_coo, sparse_csr, sparse_csc)


def _no_elements(size: Any, dtype: Any, device: DeviceLike, requires_grad: bool, more: dict[str, Any]) -> Tensor:
    """A sparse tensor of zeros, in the layout that is asked for."""
    spec, layout = spec_for(size, dtype, device, "zeros"), more.pop("layout")
    made = import_module("norch.sparse").sparse_coo_tensor(tuple(spec.shape), dtype=spec.dtype, device=spec.device)
    return with_options("zeros", made.to_sparse(layout=layout), requires_grad, more)


@public(method=False)
def empty(*size: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any) -> Tensor:
    """A tensor of shape `size` whose contents are undefined."""
    if more and not size:
        size = more.pop("size", size)
    if more and _is_sparse(more.get("layout")):
        return _no_elements(size, dtype, device, requires_grad, more)
    out = empty_spec(spec_for(size, dtype, device, "empty"))
    return with_options("empty", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def zeros(*size: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any) -> Tensor:
    """Zeros of shape `size`, an int, several, or a sequence; the default dtype unless given."""
    if more and not size:
        size = more.pop("size", size)
    if more and _is_sparse(more.get("layout")):
        return _no_elements(size, dtype, device, requires_grad, more)
    out = FILL.call(spec_for(size, dtype, device, "zeros"), 0)
    return with_options("zeros", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def ones(*size: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any) -> Tensor:
    """Ones of shape `size`, an int, several, or a sequence; the default dtype unless given."""
    if more and not size:
        size = more.pop("size", size)
    out = FILL.call(spec_for(size, dtype, device, "ones"), 1)
    return with_options("ones", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`fill_value`, a number or a 0-d tensor, in shape `size`; in the dtype of a number of its kind (bool, int64 or the
    default) unless `dtype` is given.

    Raises DTypeError for anything but a number.
    """
    dtype = dtype_into(dtype, more)
    if hasattr(fill_value, "spec"):
        kind = float if fill_value.is_floating_point() else bool if fill_value.spec.dtype is bool_ else int
        chosen = scalar_dtype(kind) if dtype is None else dtype
        out = filled(spec_for(size, chosen, device, "full"), fill_value)
    else:
        value = fill_value if type(fill_value) in SCALARS else getattr(fill_value, "item", lambda: fill_value)()
        if type(value) is complex:
            return import_module("norch.compat.complex_creation").filled(  # type: ignore[no-any-return]
                size, value, dtype, device=device, requires_grad=requires_grad, **more
            )
        if type(value) not in SCALARS:
            raise DTypeError(f"full(): fill_value must be a number, got {type(fill_value).__name__}")
        chosen = scalar_dtype(type(value)) if dtype is None else dtype
        out = FILL.call(spec_for(size, chosen, device, "full"), value)
    return with_options("full", out, requires_grad, more) if more or requires_grad else out


@lru_cache(512)
def _own_layout(spec: Spec) -> Shape | None:
    return elementwise_layout(spec.shape, (spec,))


def like_spec(tensor: Tensor, size: Any, dtype: Any, device: DeviceLike, op: str) -> Spec:
    """What `empty_like` and the like make: in the tensor's layout, where no size is given. DTypeError for no tensor."""
    spec = getattr(tensor, "spec", None)
    if not isinstance(spec, Spec):
        raise DTypeError(f"{op}(): {must_be('input', 'Tensor', tensor)}")
    if size is None and dtype is None and device is None and spec.is_contiguous:
        return spec
    found = spec_for(
        tuple(spec.shape) if size is None else size,
        spec.dtype if dtype is None else dtype,
        spec.device if device is None else device,
        op,
    )
    if size is not None or spec.is_contiguous or type(spec) is not Spec:
        return found
    return found.like(found.shape, _own_layout(spec))


@public(method=False)
def empty_like(
    input: Tensor, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """An uninitialised tensor of input's shape, and its dtype and device unless given.

    Raises DTypeError unless input is a Tensor.
    """
    out = empty_spec(like_spec(input, None, dtype, device, "empty_like"))
    return with_options("empty_like", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def zeros_like(
    input: Tensor, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """Zeros of input's shape, and its dtype and device unless given. Raises DTypeError unless input is a Tensor."""
    spec, emptied = like_spec(input, None, dtype, device, "zeros_like"), getattr(input, "emptied", None)
    out = fill_spec(spec, 0) if emptied is None else emptied(spec.dtype, spec.device)  # of sparse ones
    return with_options("zeros_like", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def ones_like(
    input: Tensor, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, **more: Any
) -> Tensor:
    """Ones of input's shape, and its dtype and device unless given. Raises DTypeError unless input is a Tensor."""
    out = fill_spec(like_spec(input, None, dtype, device, "ones_like"), 1)
    return with_options("ones_like", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`fill_value` in input's shape, and its dtype and device unless given.

    Raises DTypeError unless input is a Tensor.
    """
    out = filled(like_spec(input, None, dtype, device, "full_like"), fill_value)
    return with_options("full_like", out, requires_grad, more) if more or requires_grad else out


def _finite(name: str, value: Any) -> Any:
    """A number that `arange` was given, as Python's. Raises DTypeError for what is none, ShapeError for inf and NaN."""
    if type(value) is not float and type(value) is not int:
        value = value.item() if hasattr(value, "item") else value
        value = float(value) if isinstance(value, float) else value
        if not fits("float", value):
            raise DTypeError(f"arange(): {must_be(name, 'float', value)}")
    if not isfinite(value):
        raise ShapeError(f"arange(): {name} must be finite, got {value}")
    return value


@public(method=False, check=False)
def arange(
    start: float | None = None,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **more: Any,
) -> Tensor:
    """start, start + step, … up to but not including `end`; `arange(n)` counts from 0.

    int64 where all three are ints, else the default dtype. Raises ShapeError for a step of 0 or in the wrong direction,
    DTypeError for bool, TypeError without `end`.
    """
    if out is not None:
        return into(arange, out, start, end, step, dtype=dtype, device=device)  # type: ignore[no-any-return]
    if end is None:
        start, end = None, start
    if start is None:
        start = 0
    if end is None:
        raise TypeError("arange() missing 1 required argument: 'end'")
    if not (type(start) is type(end) is type(step) is int):
        asked = of_foreign(start, end, step)
        if asked is not None:
            return asked("arange", (start, end, step), {"dtype": dtype, "device": device})  # type: ignore[no-any-return]
        start, end, step = _finite("start", start), _finite("end", end), _finite("step", step)
    if step == 0 or (end - start) * step < 0:
        raise ShapeError(f"arange(): no values from {start} to {end} in steps of {step}")
    if dtype is None:
        dtype = get_default_dtype() if float in (type(start), type(end), type(step)) else int64
    if dtype is not int64 and as_dtype(dtype, "arange") is int64:
        dtype = int64
    if dtype is int64 and float in (type(start), type(end), type(step)) and abs(step) >= 1:
        start, end, step = int(start), int(end), int(step)  # PyTorch does so for this dtype alone
    count = -int((start - end) // step) if type(step) is not float else ceil((end - start) / step)
    spec = spec_for((count,), dtype, device, "arange")
    if spec.dtype is bool_:
        raise DTypeError("arange(): cannot take bool")
    made: Tensor = ARANGE.call(spec, start, step)
    return with_options("arange", made, requires_grad, more) if more or requires_grad else made


def bounded(value: Any, dtype: DType, op: str) -> Any:
    """A bound of linspace or logspace as a number, for integers a whole one. Raises DTypeError beyond `dtype`."""
    value = value.item() if hasattr(value, "item") else value
    if dtype.category == FLOATING:
        return value
    limits = iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise DTypeError(f"{op}(): {value} is out of range for {dtype}")
    return int(value)


def with_float64(device: Device) -> Device:
    """A device to compute in float64 on: that one, or the CPU where it has no such dtype."""
    return CPU if "float64" in device.backend.missing_dtypes else device


@public(method=False)
def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`steps` values evenly spaced from `start` to `end`, both included."""
    count = as_int(steps, "linspace", "steps")
    spec = spec_for((count,), dtype_into(dtype, more), device, "linspace")
    start, end = bounded(start, spec.dtype, "linspace"), bounded(end, spec.dtype, "linspace")
    if spec.dtype is float32:  # the last bit as PyTorch has it, whose step is a float32
        start, end = c_float(start).value, c_float(end).value
        step = c_float(c_float(end - start).value / c_float(max(count - 1, 1)).value).value
    else:
        step = (end - start) / max(count - 1, 1)
    device = with_float64(spec.device)
    wide = spec.dtype if spec.dtype.is_floating_point else float64
    is_made_so = wide is spec.dtype and device is spec.device
    made = spec if is_made_so else spec.like(dtype=wide, device=device)
    if count < 2:
        values: Tensor = ARANGE.call(made, float(start), step)
    else:
        # From both ends to the middle, so that the last value is `end` exactly; each in float64, rounded once.
        first = made.like((count // 2,))
        second = made.like((count - count // 2,)) if count % 2 else first
        up, down = ARANGE.call(first, float(start), step), ARANGE.call(second, float(end), -step)
        values = _joined(up, down)
    values = values if is_made_so else values.to(spec.dtype).to(spec.device)
    return with_options("linspace", values, requires_grad, more) if more or requires_grad else values


def _joined(a: Tensor, b: Tensor) -> Tensor:
    """`a`, and behind it the vector `b` from its end to its beginning."""
    from .shape.joining import cat, reverse

    return cat((a, reverse(b, (0,))))


@public(method=False)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Ones on the diagonal of an n x m matrix (n x n), zeros elsewhere."""
    rows = as_int(n, "eye", "n")
    columns = rows if m is None else as_int(m, "eye", "m")
    out = fill_spec(spec_for((rows, columns), dtype, device, "eye"), 0)
    size = min(rows, columns)
    diagonal = make_tensor(out.spec.like((size,), (columns + 1,)), out.buffer)
    FILL.into(diagonal, diagonal.spec, 1)
    return with_options("eye", out, requires_grad, more) if more or requires_grad else out
