"""Weights of few bits: their quantisation, and the linear layer on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...dispatch.arguments import check_functions
from ...dtype import float16, float32, int8, uint8
from ...errors import DTypeError, ShapeError
from ...spec import Spec
from ..elementwise.arithmetic import where
from ..families import composite, floating
from ..shape.bitcast import bitcast
from ..shape.joining import cat
from .linear import _linear, linear_input_grad

if TYPE_CHECKING:
    from ...tensor import Tensor

BLOCK = 32
"""The weights that share a scale in GGUF's formats."""
_BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}
"""A block's: a scale in float16, then 32 numbers of 8 bits, or 16 bytes whose low halves are the first 16 numbers."""
FORMATS = ("int8", *_BLOCK_BYTES)


class QuantizedWeight(NamedTuple):
    """What `quantize_weight` gives: the weight, and its scales where they are not part of it."""

    weight: Tensor
    scale: Tensor | None


def _row_bytes(format: str, features: int) -> int:
    return features // BLOCK * _BLOCK_BYTES[format]


def _format_of(op: str, weight: Spec, scale: Spec | None, features: int) -> str:
    """The format of a weight for `features` inputs."""
    shown = f"{op}(): weight {weight.dtype} {tuple(weight.shape)}"
    if weight.dtype not in (int8, uint8):
        raise DTypeError(f"{shown} is not quantised: expected int8, or uint8 for blocks; see quantize_weight()")
    if not weight.ndim:
        raise ShapeError(f"{shown} has no rows")
    if weight.dtype is uint8:
        if scale is not None:
            raise DTypeError(f"{shown} holds its scales in its blocks, and takes no others")
        for format in _BLOCK_BYTES:
            if features % BLOCK == 0 and weight.shape[-1] == _row_bytes(format, features):
                return format
        raise ShapeError(
            f"{shown} does not fit {features} features: a row of so many, which must be a multiple of {BLOCK}, takes "
            f"{features // BLOCK} blocks of 34 bytes (Q8_0) or 18 (Q4_0)"
        )
    if scale is None:
        raise DTypeError(f"{shown} needs the scale of each of its rows")
    if not scale.dtype.is_floating_point:
        raise DTypeError(f"{op}(): scale must be floating, got {scale.dtype}")
    if weight.shape[-1] != features or tuple(scale.shape) != tuple(weight.shape[:-1]):
        raise ShapeError(
            f"{shown} and scale {tuple(scale.shape)} do not fit {features} features: expected (..., {features}) and "
            "(...)"
        )
    return "int8"


# --- Quantising -----------------------------------------------------------------------------------------------------


def quantize_weight(weight: Tensor, format: str = "int8") -> QuantizedWeight:
    """A weight (..., in) in 8 or 4 bits a number, as `quantized_linear` takes it, and the scales of its rows.

    format: "int8": int8 (..., in), and float32 (...), by which a row is multiplied: its largest magnitude / 127.
    "q8_0", "q4_0": GGUF's blocks of 32 numbers as llama.cpp stores them, uint8 (..., in / 32 * 34 or 18), without
    scales of their own.

    Raises DTypeError unless floating, ShapeError for blocks where in is no multiple of 32, ValueError for another
    format.
    """
    if format not in FORMATS:
        raise ValueError(f"quantize_weight(): format must be one of {', '.join(FORMATS)}, got {format!r}")
    floating("quantize_weight", weight.spec)
    shape = weight.spec.shape
    if not shape or (format != "int8" and shape[-1] % BLOCK):
        raise ShapeError(
            f"quantize_weight(): a weight of shape {tuple(shape)} cannot be {format}: its last dim must be "
            + (f"a multiple of {BLOCK}" if format != "int8" else "the inputs of a layer")
        )
    x = weight.detach().to(float32)
    if format == "int8":
        scale = x.abs().amax(-1) / 127 if shape[-1] else x.new_zeros(shape[:-1])
        return QuantizedWeight((x * _inverse(scale).unsqueeze(-1)).round().to(int8), scale)
    blocks = x.reshape(*shape[:-1], shape[-1] // BLOCK, BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True)
    if format == "q8_0":
        scale = largest / 127
        whole = blocks * _inverse(scale)
        # Halves away from 0, as in C.
        rounded = (((whole.abs() * 2).floor() + 1) * 0.5).floor() * whole.sign()
        parts = [bitcast(rounded.to(int8), uint8)]
    else:
        # The number of the largest magnitude becomes -8.
        at = blocks.abs().argmax(-1, keepdim=True)
        scale = blocks.gather(-1, at) / -8
        levels = (blocks * _inverse(scale) + 8.5).floor().clamp(0, 15).to(uint8)
        parts = [levels[..., :16] | (levels[..., 16:] << 4)]
    packed = cat([bitcast(scale.to(float16), uint8), *parts], -1)
    return QuantizedWeight(packed.reshape(*shape[:-1], _row_bytes(format, shape[-1])), None)


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale, and 0 where there is nothing but zeros."""
    return where(scale == 0, 0.0, 1 / scale)


def dequantize_weight(weight: Tensor, scale: Tensor | None = None, *, features: int) -> Tensor:
    """The numbers that a quantised weight stands for: float32 (..., features) from what `quantize_weight` gives.

    features: how many numbers a row has, which decides between blocks of 8 and of 4 bits. Raises DTypeError and
    ShapeError where weight and scale do not fit it.
    """
    format = _format_of("dequantize_weight", weight.spec, None if scale is None else scale.spec, features)
    if scale is not None:
        return weight.to(float32) * scale.to(float32).unsqueeze(-1)
    lead = tuple(weight.spec.shape[:-1])
    blocks = weight.reshape(*lead, features // BLOCK, _BLOCK_BYTES[format])
    of_block = bitcast(blocks[..., :2].contiguous(), float16).to(float32)
    stored = blocks[..., 2:]
    if format == "q8_0":
        numbers = bitcast(stored, int8).to(float32)
    else:
        numbers = cat([stored & 15, stored >> 4], -1).to(float32) - 8
    return (numbers * of_block).reshape(*lead, features)


# --- The layer ------------------------------------------------------------------------------------------------------


def _infer(input: Spec, weight: Spec, scale: Spec | None, bias: Spec | None) -> Spec:
    floating("quantized_linear", input, bias)
    if bias is not None and bias.dtype is not input.dtype:
        raise DTypeError(f"quantized_linear(): input of {input.dtype} and bias of {bias.dtype}; convert one")
    if not input.ndim or weight.ndim != 2:
        raise ShapeError(
            f"quantized_linear(): expected input (..., in) and a weight of 2 dims, got {tuple(input.shape)} and "
            f"{tuple(weight.shape)}"
        )
    _format_of("quantized_linear", weight, scale, input.shape[-1])
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(f"quantized_linear(): bias {tuple(bias.shape)} does not fit weight {tuple(weight.shape)}")
    return input.like((*input.shape[:-1], weight.shape[0]))


def _input_rule(g: Tensor, input_spec: Spec, weight: Tensor, scale: Tensor | None) -> Tensor:
    numbers = dequantize_weight(weight, scale, features=input_spec.shape[-1])
    return linear_input_grad(g, numbers.to(g.dtype))


@composite(_infer, {"input": _input_rule, "bias": lambda g: g}, name="quantized_linear", native="floating")
def _quantized_linear(input: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    numbers: Any = dequantize_weight(weight, scale, features=input.spec.shape[-1])
    return _linear(input, numbers.to(input.dtype), bias)


def quantized_linear(input: Tensor, weight: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """input @ w.T + bias for the w that a weight stands for: (..., in), (out, ...), (out), (out) -> (..., out).

    weight, scale: what `quantize_weight` gives of (out, in), or the blocks of a GGUF file. Backends may round each 32
    numbers of `input` to 8 bits, as llama.cpp does: their error is then up to 1/254 of the largest of these. Only input
    and bias get gradients.

    Raises DTypeError unless the weight is quantised, input floating and bias of its dtype, ShapeError for shapes that
    do not fit.
    """
    return _quantized_linear(input, weight, scale, bias)


check_functions(globals())
