"""Functions that make complex numbers of real ones, take them apart and ask about them, under PyTorch's names."""

from __future__ import annotations

import math
from functools import cache
from sys import getrefcount
from typing import Any

from ..autograd import is_grad_enabled
from ..dispatch.arguments import check_functions, describe
from ..dtype import get_default_dtype
from ..errors import DTypeError, ShapeError
from ..ops import cos, sin, where
from ..ops.creation import zeros
from ..spec import Spec
from ..tensor import Tensor
from .complex_numbers import ComplexPair, joined


def view_as_complex(input: Tensor) -> ComplexPair:
    """The numbers whose parts are the last dim, of size 2: no copy. Raises ShapeError for another size, DTypeError
    unless floating.
    """
    if not input.ndim or input.shape[-1] != 2:
        raise ShapeError(f"view_as_complex(): expected a last dim of size 2, got shape {tuple(input.shape)}")
    if not input.is_floating_point():
        raise DTypeError(f"view_as_complex(): expected a floating dtype, got {input.dtype}")
    return ComplexPair(input)


def view_as_real(input: Any) -> Tensor:
    """The parts of complex numbers as a last dim of size 2: no copy. Numbers whose memory nothing else holds have their
    parts side by side from then on, as in PyTorch, where `view` takes them.
    """
    numbers = _pair("view_as_real", input)
    pair = numbers.pair
    cut = pair.requires_grad and (pair.is_leaf or not is_grad_enabled())
    in_pieces = type(pair.spec) is Spec and not pair.spec.is_contiguous and pair.spec.strides[-1] != 1
    if in_pieces and not cut:
        (of_pair, of_memory), has_base = _alone(), pair.base is not None
        del pair
        found = _holders(numbers)
        if found[0] <= of_pair and found[1] < of_memory + has_base:
            object.__setattr__(numbers, "pair", numbers.pair.contiguous())
    return numbers.pair


def _holders(numbers: ComplexPair) -> tuple[int, int]:
    return getrefcount(numbers.pair), getrefcount(numbers.pair.buffer)


@cache
def _alone() -> tuple[int, int]:
    """What `_holders` gives of a view that nothing else holds."""
    return _holders(joined(zeros(2), zeros(2)))


def _pair(op: str, input: Any) -> ComplexPair:
    if not isinstance(input, ComplexPair):
        raise DTypeError(f"{op}(): expected a ComplexPair, got {describe(input)}")
    return input


def complex(real: Tensor, imag: Tensor) -> ComplexPair:
    """real + i imag, elementwise, of tensors of one floating dtype. Raises DTypeError for others."""
    if real.dtype is not imag.dtype or not real.is_floating_point():
        raise DTypeError(f"complex(): expected tensors of one floating dtype, got {real.dtype} and {imag.dtype}")
    return joined(real, imag)


def polar(abs: Tensor, angle: Tensor) -> ComplexPair:
    """abs (cos(angle) + i sin(angle))."""
    return joined(abs * cos(angle), abs * sin(angle))


def real(input: Any) -> Tensor:
    """The real parts; of a tensor itself."""
    return input.real if isinstance(input, ComplexPair) else input


def imag(input: Any) -> Tensor:
    """The imaginary parts, elementwise. Raises DTypeError for what has none."""
    return _pair("imag", input).imag


def conj(input: Any) -> Any:
    """The complex conjugates; of a tensor itself."""
    return input.conj() if isinstance(input, ComplexPair) else input


def conj_physical(input: Any) -> Any:
    """The complex conjugates; of a tensor itself."""
    return conj(input)


def resolve_conj(input: Any) -> Any:
    """`input`, a tensor or a ComplexPair: neither is a conjugate that waits to be computed."""
    return input


def resolve_neg(input: Any) -> Any:
    """`input`, a tensor or a ComplexPair: neither is a negative that waits to be computed."""
    return input


def is_conj(input: Any) -> bool:
    """False, for whatever `input`: conjugates are computed at once."""
    return False


def is_neg(input: Any) -> bool:
    """False, for whatever `input`: negatives are computed at once."""
    return False


def angle(input: Any) -> Tensor:
    """The angle in the complex plane: for real numbers 0, or pi where negative."""
    if isinstance(input, ComplexPair):
        return input.angle()
    x = input if input.is_floating_point() else input.to(get_default_dtype())
    return where(x < 0, math.pi, x.abs().clamp(max=0))


def is_complex(input: Any) -> bool:
    """Whether `input` is a ComplexPair: no tensor is complex. Raises TypeError for what is neither."""
    return isinstance(input, ComplexPair) or bool(input.is_complex())


check_functions(globals())
