"""Functions of PyTorch's that few programs call, made of others. Loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import ops
from ..device import Device
from ..dispatch.arguments import check_functions
from ..dtype import as_dtype, get_default_dtype, int32, int64
from ..errors import DeviceError, DTypeError, ShapeError
from ..ops import abs as magnitude
from ..ops import empty, floor, log2, where
from ..ops.nn.softmax import log_softmax_grad, softmax_grad
from ..tensor.storage import UntypedStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtype import DType
    from ..tensor import Tensor


class Frexp(NamedTuple):
    """What frexp returns."""

    mantissa: Tensor
    exponent: Tensor


def frexp(input: Tensor) -> Frexp:
    """(mantissa, exponent) with input = mantissa * 2**exponent, the mantissa from 0.5 to below 1, or 0, and the
    exponent int32. Infinities and NaN are their own mantissas. Raises DTypeError unless floating.
    """
    if not input.is_floating_point():
        raise DTypeError(f"frexp(): expected a floating dtype, got {input.dtype}")
    plain = (input != 0) & input.isfinite()
    size = where(plain, magnitude(input), 1.0)
    tiny = size < 2.0**-100  # subnormal numbers, whose logarithm may be rounded, are scaled first
    scaled = where(tiny, size * 2.0**100, size) if input.dtype.itemsize > 2 else size
    exponent = floor(log2(scaled.double())) + 1 - where(tiny, 100.0, 0.0).double() * (input.dtype.itemsize > 2)
    mantissa = size.double() / 2**exponent
    low, high = mantissa < 0.5, mantissa >= 1  # where the logarithm was rounded over a whole number
    exponent = exponent - low.double() + high.double()
    mantissa = where(low, mantissa * 2, where(high, mantissa / 2, mantissa))
    signed = ops.copysign(mantissa, input.double()).to(input.dtype)
    return Frexp(where(plain, signed, input), where(plain, exponent, 0.0).to(int32))


def fill(input: Tensor, value: Any) -> Tensor:
    """`value`, a number or a 0-d tensor, in the shape, dtype and layout of `input`. Raises ShapeError for a tensor with
    dims."""
    if getattr(value, "ndim", 0):
        raise ShapeError(f"fill(): the value must be a number or a 0-d tensor, got shape {tuple(value.shape)}")
    return input.clone().fill_(value)


def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of `narrow(input, dim, start, length)`. Raises as that does."""
    return ops.narrow(input, dim, start, length).clone()


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`norch.pad` with `value`: `pad` has (before, after) of the last dim first. Raises as that does."""
    return ops.pad(input, pad, "constant", value)


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
) -> Tensor:
    """A copy of `input` with `src` in the place of `as_strided(input, size, stride, storage_offset)`. Raises ShapeError
    where src has another shape.
    """
    if tuple(src.shape) != tuple(size):
        raise ShapeError(f"as_strided_scatter(): src has shape {tuple(src.shape)}, the view {tuple(size)}")
    flat = ops.arange(input.numel(), device=input.device).reshape(input.shape)
    places = flat.as_strided(tuple(size), tuple(stride), storage_offset).reshape(-1)
    return input.reshape(-1).index_put((places,), src.reshape(-1)).reshape(input.shape)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` rows of `nonzero(input)`, with `fill_value` in those that there are none for."""
    found = ops.nonzero(input)[:size]
    rest = found.new_full((size - found.shape[0], input.ndim), fill_value)
    return ops.cat([found, rest])


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor of shape `size` without values, whose dims lie in memory in the order `physical_layout`, the outermost
    first. Options are those of `empty`. Raises ShapeError unless that is a permutation.
    """
    if sorted(physical_layout) != list(range(len(size))):
        raise ShapeError(f"empty_permuted(): {tuple(physical_layout)} is no order of {len(size)} dims")
    made = empty([size[d] for d in physical_layout], **options)
    back = sorted(range(len(size)), key=lambda d: physical_layout[d])
    return made.permute(back)


def adjoint(input: Tensor) -> Tensor:
    """`input` with its last two dims exchanged, a view; of complex numbers conjugated. ShapeError of one dim."""
    return input.adjoint()


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`channel_shuffle` of `input` in `groups`. Raises as that does."""
    return ops.channel_shuffle(input, groups)


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`size` elements of the file `filename`, mapped: what is written to them goes to the file if `shared`. dtype: of
    the elements, the default one unless given. layout, device, pin_memory: the CPU's, since it is a file's memory.

    Raises OSError for a file that cannot be read, DeviceError for another device.
    """
    if device is not None and Device(device).type != "cpu":
        raise DeviceError(f"from_file(): a file is mapped into the memory of device 'cpu', not of {device!r}")
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, "from_file")
    mapped = UntypedStorage.from_file(filename, bool(shared), (size or 0) * chosen.itemsize)
    return mapped._tensor.view(chosen).requires_grad_(requires_grad)  # type: ignore[attr-defined, no-any-return]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """`true_fn(*operands)` where `pred`, a bool or a tensor of one element, is true, else `false_fn(*operands)`."""
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """The tuple that `body_fn(*values)` makes of `carried_inputs`, again and again, as long as `cond_fn(*values)`."""
    values = tuple(carried_inputs)
    while bool(cond_fn(*values)):
        values = tuple(body_fn(*values))
    return values


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution along the first dim: of `input` (T, N, C), `weight` (K, C, D) and `bias` (D) one of
    (T + 2 pad - K + 1, N, D). Raises ShapeError as `conv1d`."""
    return ops.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType | None = None) -> Tensor:
    """The gradient of softmax's input by its result `output`, whose gradient is `grad_output`, of their shape."""
    return softmax_grad(grad_output, output, dim).to(input_dtype or grad_output.dtype)


def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType | None = None
) -> Tensor:
    """The gradient of log_softmax's input by its result `output`, whose gradient is `grad_output`, of their shape."""
    return log_softmax_grad(grad_output, output, dim).to(input_dtype or grad_output.dtype)


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes of a tensor, as int64."""
    return ops.tensor(list(self.shape), dtype=int64)


check_functions(globals())
