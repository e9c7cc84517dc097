"""Convolution, as a matrix product with the windows of the input, and its two gradients.

The three ops are each other's derivatives: conv2d(input, weight) is linear in both, its gradients are conv2d_input_grad
and conv2d_weight_grad, and theirs are found among the three again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ShapeError, drawn
from ...spec import Spec, as_int, image_layout, is_channels_last
from ..copying import contiguous
from ..creation import fill_spec
from ..families import composite, one_dtype
from ..registry import public
from ..upcast import upcast
from .windows import (
    Pads,
    Pair,
    Windows,
    add_windows,
    as_images,
    cached,
    crop,
    effective_size,
    from_images,
    output_size,
    pad2d,
    pair,
    window_view,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...tensor import Tensor


def _windows(weight_shape: Any, stride: Pair, dilation: Pair) -> Windows:
    return Windows((weight_shape[2], weight_shape[3]), stride, dilation)


@cached
def _are_permuted(grad: Spec, *operands: Spec) -> bool:
    return grad.shape[2] == 1 and is_channels_last(grad) and not any(map(is_channels_last, operands))


def _rows(grad: Tensor, *operands: Spec) -> Tensor:
    """The gradient of conv1d's result row-major: permuted rows are no images with their channels last."""
    return contiguous(grad) if _are_permuted(grad.spec, *operands) else grad


def gradient_rules(trio: Callable[[], Any], crop: Callable[[Tensor, Spec], Tensor]) -> tuple[dict[str, Any], ...]:
    """The rules of a convolution, of its input's gradient and of its weight's: `trio()` are the three.

    crop(out, spec): of windows those that a gradient of `spec` is of; a transposed convolution with output_padding may
    have more.
    """

    def to_input(
        g: Tensor, input_spec: Spec, weight: Tensor, stride: Any, pads: Any, dilation: Any, groups: int
    ) -> Tensor:
        rows = _rows(g, input_spec, weight.spec)
        return trio()[1](rows, weight, tuple(input_spec.shape), stride, pads, dilation, groups)  # type: ignore[no-any-return]

    def to_weight(
        g: Tensor, input: Tensor, weight_spec: Spec, stride: Any, pads: Any, dilation: Any, groups: int
    ) -> Tensor:
        rows = _rows(g, input.spec, weight_spec)
        return trio()[2](rows, input, tuple(weight_spec.shape), stride, pads, dilation, groups)  # type: ignore[no-any-return]

    def input_grad_to_grad(
        g: Tensor, grad_spec: Spec, weight: Tensor, stride: Any, pads: Any, dilation: Any, groups: int
    ) -> Tensor:
        rows = _rows(g, grad_spec, weight.spec)
        return crop(trio()[0](rows, weight, None, stride, pads, dilation, groups), grad_spec)

    def input_grad_to_weight(
        g: Tensor, grad: Tensor, weight_spec: Spec, stride: Any, pads: Any, dilation: Any, groups: int
    ) -> Tensor:
        rows = _rows(g, grad.spec, weight_spec)
        return trio()[2](grad, rows, tuple(weight_spec.shape), stride, pads, dilation, groups)  # type: ignore[no-any-return]

    def weight_grad_to_grad(
        g: Tensor, grad_spec: Spec, input: Tensor, stride: Any, pads: Any, dilation: Any, groups: int
    ) -> Tensor:
        return crop(trio()[0](input, g, None, stride, pads, dilation, groups), grad_spec)

    def weight_grad_to_input(
        g: Tensor, grad: Tensor, input_spec: Spec, stride: Any, pads: Any, dilation: Any, groups: int
    ) -> Tensor:
        return trio()[1](grad, g, tuple(input_spec.shape), stride, pads, dilation, groups)  # type: ignore[no-any-return]

    return (
        {"input": to_input, "weight": to_weight},
        {"grad": input_grad_to_grad, "weight": input_grad_to_weight},
        {"grad": weight_grad_to_grad, "input": weight_grad_to_input},
    )


def _crop_like(out: Tensor, spec: Spec) -> Tensor:
    return crop(out, (0, 0), (spec.shape[2], spec.shape[3]))


def _trio() -> tuple[Any, Any, Any]:
    return _conv2d, conv2d_input_grad, conv2d_weight_grad


_FORWARD, _INPUT_GRAD, _WEIGHT_GRAD = gradient_rules(_trio, _crop_like)


def _infer_conv2d(
    input: Spec, weight: Spec, bias: Spec | None, stride: Pair, pads: Pads, dilation: Pair, groups: int
) -> Spec:
    one_dtype("conv2d", input, weight, bias)
    h, w = input.shape[2:]
    size = output_size((h, w), pads, _windows(weight.shape, stride, dilation), "conv2d")
    shape = (input.shape[0], weight.shape[0], *size)
    return input.like(shape, image_layout(shape, input, weight))


@composite(
    _infer_conv2d,
    {**_FORWARD, "bias": lambda g: g.sum((0, 2, 3))},
    name="conv2d",
    native="floating",
)
def _conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, pads: Pads, dilation: Pair, groups: int
) -> Tensor:
    n, (o, c, kh, kw) = input.spec.shape[0], weight.spec.shape
    windows = _windows(weight.spec.shape, stride, dilation)
    h, w = input.spec.shape[2:]
    size = output_size((h, w), pads, windows, "conv2d")
    columns = window_view(pad2d(input, pads, 0), size, windows, "ngcijyx", groups)
    product = weight.reshape(groups, o // groups, c * kh * kw) @ columns.reshape(
        n, groups, c * kh * kw, size[0] * size[1]
    )
    out = product.reshape(n, o, *size)
    return out if bias is None else out + bias.reshape(o, 1, 1)


def infer_grad(op: str) -> Any:
    """The rule of both gradients, which are given the shape of their result."""

    def infer(grad: Spec, other: Spec, shape: tuple[int, ...], *attrs: Any) -> Spec:
        one_dtype(op, grad, other)
        return grad.like(shape, image_layout(shape, grad, other))

    return infer


@composite(infer_grad("conv2d_input_grad"), _INPUT_GRAD, native="floating")
def conv2d_input_grad(
    grad: Tensor, weight: Tensor, shape: tuple[int, ...], stride: Pair, pads: Pads, dilation: Pair, groups: int
) -> Tensor:
    """The gradient of conv2d's input, which has `shape`, from that of its result: (n, out, y, x) -> (n, in, h, w).

    Raises DTypeError unless both have one dtype.
    """
    n, o, rows, columns = grad.spec.shape
    _, c, kh, kw = weight.spec.shape
    flat = weight.reshape(groups, o // groups, c * kh * kw)
    windows = upcast(flat.mT @ grad.reshape(n, groups, o // groups, rows * columns))
    windows = windows.reshape(n, groups * c, kh, kw, rows, columns)
    moves = _windows(weight.spec.shape, stride, dilation)
    out = add_windows(lambda i, j: windows[:, :, i, j], windows.spec.like(shape), pads, (rows, columns), moves)
    return contiguous(out.to(grad.dtype))


@composite(infer_grad("conv2d_weight_grad"), _WEIGHT_GRAD)
def conv2d_weight_grad(
    grad: Tensor, input: Tensor, shape: tuple[int, ...], stride: Pair, pads: Pads, dilation: Pair, groups: int
) -> Tensor:
    """The gradient of conv2d's weight, of `shape`, from its result's (n, out, y, x). DTypeError as for conv2d."""
    n, o, rows, columns = grad.spec.shape
    _, c, kh, kw = shape
    if not grad.spec.numel:
        return fill_spec(grad.spec.like(shape), 0)
    windows = window_view(pad2d(input, pads, 0), (rows, columns), _windows(shape, stride, dilation), "gnyxcij", groups)
    right = windows.reshape(groups, n * rows * columns, c * kh * kw)
    left = grad.reshape(n, groups, o // groups, rows * columns).permute(1, 2, 0, 3)
    product = left.reshape(groups, o // groups, n * rows * columns) @ right
    return product.reshape(shape)


# --- As called ------------------------------------------------------------------------------------------------------


def _pads(padding: Any, op: str, kernel: tuple[int, ...], stride: Pair, dilation: Pair, dims: int) -> Pads:
    """`padding` as four numbers. "same" puts the odd element behind, as PyTorch does."""
    if padding == "valid":
        return 0, 0, 0, 0
    if not isinstance(padding, str):
        h, w = pair(padding, op, "padding", 0, dims)
        return h, h, w, w
    if padding != "same":
        raise ValueError(f"{op}(): padding must be ints, 'same' or 'valid', got {padding!r}")
    if stride != (1, 1):
        raise ShapeError(f"{op}(): padding 'same' needs stride 1, got {stride}")
    h, w = (effective_size(k, d) - 1 for k, d in zip(kernel, dilation))
    return h // 2, h - h // 2, w // 2, w - w // 2


def check_conv(op: str, input: Spec, weight: Spec, bias: Spec | None, groups: int, dims: int, transposed: bool) -> int:
    """Checks the shapes and returns the number of channels that come out."""
    channels = "in, out / groups" if transposed else "out, in / groups"
    if input.ndim not in (dims + 1, dims + 2) or weight.ndim != dims + 2:
        raise ShapeError(
            f"{op}(): expected input with {dims + 1} or {dims + 2} dims and weight ({channels}, *kernel) with "
            f"{dims + 2}, got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    given = input.shape[-dims - 1]
    first, second = weight.shape[:2]
    fits = groups >= 1 and first % groups == 0 and given == (first if transposed else second * groups)
    if not fits or 0 in weight.shape[2:]:
        raise ShapeError(
            f"{op}(): {given} channels of input {tuple(input.shape)} do not fit weight {tuple(weight.shape)}, which is "
            f"({channels}, *kernel), with groups {groups}"
            + drawn(
                ("input", input.shape, (-dims - 1,)),
                ("weight", weight.shape, (0 if transposed else 1,)),
                why=f"({channels})",
            )
        )
    out = second * groups if transposed else first
    if bias is not None and tuple(bias.shape) != (out,):
        raise ShapeError(
            f"{op}(): bias {tuple(bias.shape)} does not fit {out} channels"
            + drawn(("weight", weight.shape, (1 if transposed else 0,)), ("bias", bias.shape, (0,)))
        )
    return out


@public(method=False)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """2-D cross-correlation: (n, in, h, w) or (in, h, w), with weight (out, in / groups, i, j), gives (n, out, y, x).

    bias: (out), or None. stride, padding, dilation: an int or two. padding may be "valid" (none) or "same" (as large as
    the input; stride 1). By one matrix product with all windows (Chellapilla et al., 2006). Raises ShapeError for
    shapes that do not fit and windows larger than the input, DTypeError unless all have one dtype.
    """
    return _conv(input, weight, bias, (stride, padding, dilation), groups, "conv2d", 2)


@public(method=False)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """1-D cross-correlation: (n, in, w) or (in, w) with weight (out, in / groups, j), gives (n, out, x): see conv2d."""
    return _conv(input, weight, bias, (stride, padding, dilation), groups, "conv1d", 1)


def _conv(
    input: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...], groups: int, op: str, dims: int
) -> Tensor:
    """`settings`: stride, padding and dilation as they were given."""
    specs = (input.spec, weight.spec, None if bias is None else bias.spec, groups)
    stride, pads, dilation = _conv_plan(op, dims, *specs, *settings)
    x, kernel = _operands(input, weight, dims, op)
    return from_images(_conv2d(x, kernel, bias, stride, pads, dilation, groups), input, dims)


def _operands(input: Tensor, weight: Tensor, dims: int, op: str) -> tuple[Tensor, Tensor]:
    """Input and weight as those of the 2-D op. Permuted rows are no images with their channels last."""
    x = as_images(input, dims, op)
    if dims == 2:
        return x, weight
    return contiguous(x) if _is_last(x.spec) else x, weight.unsqueeze(2)


_is_last = cached(is_channels_last)


@cached
def _conv_plan(
    op: str, dims: int, input: Spec, weight: Spec, bias: Spec | None, groups: int, *settings: Any
) -> tuple[Pair, Pads, Pair]:
    """Stride, pads and dilation of the 2-D op, all checked."""
    check_conv(op, input, weight, bias, groups, dims, False)
    stride, dilation = pair(settings[0], op, "stride", 1, dims), pair(settings[2], op, "dilation", 1, dims)
    kernel = (*(1,) * (2 - dims), *weight.shape[2:])
    return stride, _pads(settings[1], op, kernel, stride, dilation, dims), dilation


@public(method=False)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of conv2d, its gradient: (n, in, y, x), with weight (in, out / groups, i, j), gives (n, out, h, w).

    bias: (out), or None. h is (y - 1) * stride - 2 * padding + dilation * (i - 1) + output_padding + 1. Raises
    ShapeError for shapes that do not fit, or an output_padding not below stride or dilation; DTypeError unless all have
    one dtype.
    """
    return _conv_transpose(
        input, weight, bias, (stride, padding, output_padding, dilation), groups, "conv_transpose2d", 2
    )


@public(method=False)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of conv1d: (n, in, x), (in, out / groups, j) -> (n, out, w). Raises as conv_transpose2d does."""
    return _conv_transpose(
        input, weight, bias, (stride, padding, output_padding, dilation), groups, "conv_transpose1d", 1
    )


def _conv_transpose(
    input: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Any, ...], groups: int, op: str, dims: int
) -> Tensor:
    """`settings`: stride, padding, output_padding and dilation as they were given."""
    specs = (input.spec, weight.spec, None if bias is None else bias.spec, groups)
    shape, stride, pads, dilation = _conv_transpose_plan(op, dims, *specs, *settings)
    x, kernel = _operands(input, weight, dims, op)
    out = conv2d_input_grad(x, kernel, shape, stride, pads, dilation, groups)
    if bias is not None:
        out = out + bias.reshape(shape[1], 1, 1)
    return from_images(out, input, dims)


@cached
def _conv_transpose_plan(
    op: str, dims: int, input: Spec, weight: Spec, bias: Spec | None, groups: int, *settings: Any
) -> tuple[Any, Pair, Pads, Pair]:
    """The result's shape, and stride, pads and dilation, of the 2-D op, all checked. An input without n has n 1."""
    channels = check_conv(op, input, weight, bias, as_int(groups, op, "groups"), dims, True)
    one_dtype(op, input, weight, bias)
    limits = (("stride", 1), ("padding", 0), ("output_padding", 0), ("dilation", 1))
    stride, pad, extra, dilation = (pair(v, op, w, low, dims) for v, (w, low) in zip(settings, limits))
    ones = (1,) * (2 - dims)
    size = []
    for n, k, s, p, e, d in zip(
        (*ones, *input.shape[-dims:]), (*ones, *weight.shape[2:]), stride, pad, extra, dilation
    ):
        size.append((n - 1) * s - 2 * p + effective_size(k, d) + e)
        if e >= max(s, d) or size[-1] < 0 or n < 1:
            raise ShapeError(
                f"{op}(): input {tuple(input.shape)} with weight {tuple(weight.shape)}, stride {stride}, "
                f"padding {pad}, dilation {dilation} and output_padding {extra} gives no result of a definite size; "
                "output_padding must be less than stride or dilation"
            )
    batch = input.shape[0] if input.ndim == dims + 2 else 1
    return (batch, channels, *size), stride, (pad[0], pad[0], pad[1], pad[1]), dilation
