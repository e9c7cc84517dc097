"""Convolution and pooling of volumes (n, c, d, h, w). Pooling is that of images, over h and w, and one step over d.

Loaded when one is first used.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...dispatch.arguments import check_functions
from ...dtype import INTEGER
from ...errors import ShapeError
from ...spec import as_int
from ..copying import like_images
from ..elementwise.arithmetic import div
from ..families import one_dtype
from ..indexing import gather
from ..upcast import upcast
from .convolution import check_conv
from .pooling import adaptive_average, max_pool2d, window_sizes, window_sums
from .volume_convolution import Sextuple, Triple, _conv3d, conv3d_input_grad
from .windows import cached, effective_size

if TYPE_CHECKING:
    from ...tensor import Tensor


@cached
def _triple(value: Any, op: str, what: str, least: int) -> Triple:
    """One int for the three dims, or one for each. ShapeError below `least` and for another number, DTypeError else."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(values) not in (1, 3):
        raise ShapeError(f"{op}(): {what} must be one int or three, got {value!r}")
    ints = tuple(as_int(v, op, what) for v in values)
    if min(ints) < least:
        raise ShapeError(f"{op}(): {what} must be at least {least}, got {value!r}")
    return ints if len(ints) == 3 else ints * 3  # type: ignore[return-value]


def _batched(input: Tensor, op: str) -> Tensor:
    if input.spec.ndim not in (4, 5):
        raise ShapeError(f"{op}(): expected 4 or 5 dims, got shape {tuple(input.spec.shape)}")
    return input if input.spec.ndim == 5 else input.unsqueeze(0)


def _like(out: Tensor, input: Tensor) -> Tensor:
    return out if input.spec.ndim == 5 else out.squeeze(0)


# --- Convolution ----------------------------------------------------------------------------------------------------


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """3-D cross-correlation: (n, in, d, h, w) or (in, d, h, w) with weight (out, in / groups, i, j, k).

    bias: (out), or None. stride, padding, dilation: an int or three; padding also "valid" or "same". Raises ShapeError
    for shapes that do not fit, DTypeError unless all have one dtype.
    """
    op = "conv3d"
    check_conv(op, input.spec, weight.spec, None if bias is None else bias.spec, groups, 3, False)
    one_dtype(op, input.spec, weight.spec, None if bias is None else bias.spec)
    steps, gaps = _triple(stride, op, "stride", 1), _triple(dilation, op, "dilation", 1)
    pads = _pads(padding, op, tuple(weight.spec.shape[2:]), steps, gaps)
    return _like(_conv3d(_batched(input, op), weight, bias, steps, pads, gaps, groups), input)


def _pads(padding: Any, op: str, kernel: tuple[int, ...], stride: Triple, dilation: Triple) -> Sextuple:
    """`padding` as six numbers. "same" puts the odd element behind, as PyTorch does."""
    if padding == "valid":
        return 0, 0, 0, 0, 0, 0
    if not isinstance(padding, str):
        d, h, w = _triple(padding, op, "padding", 0)
        return d, d, h, h, w, w
    if padding != "same":
        raise ValueError(f"{op}(): padding must be ints, 'same' or 'valid', got {padding!r}")
    if stride != (1, 1, 1):
        raise ShapeError(f"{op}(): padding 'same' needs stride 1, got {stride}")
    d, h, w = (effective_size(k, gap) - 1 for k, gap in zip(kernel, dilation))
    return d // 2, d - d // 2, h // 2, h - h // 2, w // 2, w - w // 2


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of conv3d, its gradient: (n, in, z, y, x) with weight (in, out / groups, i, j, k).

    bias: (out), or None. d is (z - 1) * stride - 2 * padding + dilation * (i - 1) + output_padding + 1. Raises as
    conv_transpose2d does.
    """
    op = "conv_transpose3d"
    biased = None if bias is None else bias.spec
    channels = check_conv(op, input.spec, weight.spec, biased, as_int(groups, op, "groups"), 3, True)
    one_dtype(op, input.spec, weight.spec, biased)
    limits = (("stride", 1), ("padding", 0), ("output_padding", 0), ("dilation", 1))
    given = (stride, padding, output_padding, dilation)
    steps, pads, extra, gaps = (_triple(v, op, what, least) for v, (what, least) in zip(given, limits))
    x = _batched(input, op)
    size = []
    for n, k, s, p, e, gap in zip(x.spec.shape[2:], weight.spec.shape[2:], steps, pads, extra, gaps):
        size.append((n - 1) * s - 2 * p + effective_size(k, gap) + e)
        if e >= max(s, gap) or size[-1] < 0 or n < 1:
            raise ShapeError(
                f"{op}(): input {tuple(input.spec.shape)} with weight {tuple(weight.spec.shape)}, stride {steps}, "
                f"padding {pads}, dilation {gaps} and output_padding {extra} gives no result of a definite size; "
                "output_padding must be less than stride or dilation"
            )
    around = (pads[0], pads[0], pads[1], pads[1], pads[2], pads[2])
    out = conv3d_input_grad(x, weight, (x.spec.shape[0], channels, *size), steps, around, gaps, groups)
    return _like(out if bias is None else out + bias.reshape(channels, 1, 1, 1), input)


# --- Pooling: a window's largest element, or its sum, is found plane by plane ---------------------------------------


@cached
def _pools(kernel_size: Any, stride: Any, padding: Any, op: str) -> tuple[Triple, Triple, Triple]:
    kernel = _triple(kernel_size, op, "kernel_size", 1)
    steps = kernel if stride is None or stride in ((), []) else _triple(stride, op, "stride", 1)
    return kernel, steps, _triple(padding, op, "padding", 0)


def _flat_planes(x: Tensor) -> Tensor:
    """(n, c, d, h, w) to (n, c * d, h, w)."""
    n, c, d, h, w = x.spec.shape
    return x.reshape(n, c * d, h, w)


def _columns(x: Tensor, planes: Tensor) -> Tensor:
    """What was made of the planes of x, as (n, c, d, h * w)."""
    n, c, d = x.spec.shape[:3]
    return planes.reshape(n, c, d, planes.spec.shape[2] * planes.spec.shape[3])


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window: (n, c, d, h, w) or (c, d, h, w) -> the same with z * y * x windows.

    See max_pool2d for the arguments, ints or three; indices are into d * h * w. Raises as it does.
    """
    op = "max_pool3d"
    kernel, steps, pads = _pools(kernel_size, stride, padding, op)
    gaps, x = _triple(dilation, op, "dilation", 1), _batched(input, op)
    within = (kernel[1:], steps[1:], pads[1:], gaps[1:], ceil_mode)
    along = ((kernel[0], 1), (steps[0], 1), (pads[0], 0), (gaps[0], 1), ceil_mode)
    planes = max_pool2d(_flat_planes(x), *within, return_indices)
    size = (planes[0] if return_indices else planes).spec.shape[2:]
    if not return_indices:
        out = max_pool2d(_columns(x, planes), *along)
        return like_images(_like(out.reshape(*out.spec.shape[:3], *size), input), input)
    out, deep = max_pool2d(_columns(x, planes[0]), *along, True)
    # The depth and the column that a window's largest is in; the plane's own index says where in the plane.
    d, area, inner = x.spec.shape[2], x.spec.shape[3] * x.spec.shape[4], size[0] * size[1]
    n, c, z = out.spec.shape[:3]
    found = gather(_columns(x, planes[1]).reshape(n, c, d * inner), 2, deep.reshape(n, c, z * inner))
    indices = (deep.reshape(n, c, z * inner) // inner) * area + found
    shape = (n, c, z, *size)
    return tuple([like_images(_like(each.reshape(shape), input), input) for each in (out, indices)])


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The average of each window: (n, c, d, h, w) or (c, d, h, w) -> the same with z * y * x windows.

    See avg_pool2d for the arguments, ints or three, as which it raises.
    """
    op = "avg_pool3d"
    whole = "trunc" if one_dtype(op, input.spec).category == INTEGER else None
    kernel, steps, pads = _pools(kernel_size, stride, padding, op)
    if divisor_override is not None and as_int(divisor_override, op, "divisor_override") == 0:
        raise ShapeError(f"{op}(): divisor_override must not be 0")
    x = upcast(_batched(input, op))
    planes = window_sums(op, _flat_planes(x), kernel[1:], steps[1:], pads[1:], ceil_mode)
    out = window_sums(op, _columns(x, planes), (kernel[0], 1), (steps[0], 1), (pads[0], 0), ceil_mode)
    out = out.reshape(*out.spec.shape[:3], *planes.spec.shape[2:])
    divisor: Any = divisor_override
    if divisor is None and not any(pads) and not ceil_mode:
        divisor = prod(kernel)
    elif divisor is None:
        sizes = zip(x.spec.shape[2:], out.spec.shape[2:], kernel, steps, pads, strict=True)
        along = [out.new_tensor(window_sizes(*size, count_include_pad)) for size in sizes]
        divisor = along[0].reshape(-1, 1, 1) * along[1].unsqueeze(1) * along[2]
    return _like(div(out, divisor, rounding_mode=whole).to(input.dtype), input)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Averages of z * y * x parts: (…, d, h, w) -> (…, z, y, x). See adaptive_avg_pool2d, as which it raises."""
    return adaptive_average(input, output_size, 3)


check_functions(globals())
