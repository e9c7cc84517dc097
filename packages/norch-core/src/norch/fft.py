"""Discrete Fourier transforms, along one dim or several. Complex numbers are pairs of real ones: see `ComplexPair`.

Arguments that mean the same in every function:

    s: the sizes along `dim`, to which input is cut or padded with zeros; by default its own.
    norm: "backward" (only what goes back is divided by n), "forward" (only what goes forth) or "ortho" (both, by its
        root). Raises ValueError for another.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from .compat.complex_numbers import ComplexPair
from .dispatch.arguments import check_functions
from .dtype import as_dtype, get_default_dtype
from .errors import ShapeError
from .ops import arange, pad, roll
from .ops.matrix.dft import check_real, dft, dft2
from .spec import as_int, wrap_dim
from .tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

# --- Along one dim --------------------------------------------------------------------------------------------------

_NORMS = ("backward", "ortho", "forward")


def _along(
    op: str, x: Tensor, n: int | None, dim: Any, norm: str | None, sign: int, inputs: int, outputs: int, half: bool
) -> Tensor:
    """The transform along `dim` of numbers or (with `inputs` 2) their parts (..., 2), to such.

    n: the size that it is of. half: complex numbers are those up to n // 2, and stand for all.
    """
    ndim = x.spec.ndim + 1 - inputs
    at = wrap_dim(dim, ndim, op) - ndim - 1  # of rows, but for the last
    rows = x.unsqueeze(-2) if inputs == 1 else x.transpose(-1, -2)
    if at < -2:
        rows = rows.transpose(at, -1)
    have = rows.spec.shape[-1]
    given = have if n is None else as_int(n, op, "n")
    size, count, scale = _sizes(op, have, given, norm, sign, inputs, outputs, half)
    if have > size:
        rows = rows.narrow(-1, 0, size)
    out = dft(rows, None, given, sign, outputs, count, scale, half and inputs == 2)
    if at < -2:
        out = out.transpose(at, -1)
    return out.squeeze(-2) if outputs == 1 else out.transpose(-1, -2)


def _sizes(
    op: str, have: int, n: int, norm: str | None, sign: int, inputs: int, outputs: int, half: bool
) -> tuple[int, int, float]:
    """Of `_along`: how many of the numbers count, how many there will be, and what these are scaled by."""
    if n < 1:
        raise ShapeError(f"{op}(): n must be at least 1, got {n}")
    if norm not in (None, *_NORMS):
        raise ValueError(f"{op}(): norm must be one of {', '.join(_NORMS)}, got {norm!r}")
    scaled = norm == "forward" if sign < 0 else norm in (None, "backward")
    scale = 1 / sqrt(n) if norm == "ortho" else 1 / n if scaled else 1.0
    size = min(have, n // 2 + 1 if half and inputs == 2 else n)
    return size, n // 2 + 1 if half and outputs == 2 else n, scale


def _in_planes(
    op: str, x: Tensor, s: tuple[Any, Any], norm: str | None, sign: int, inputs: int, outputs: int, half: bool
) -> Tensor:
    """`_along` of the last two dims, of which that of real numbers comes first, that to real ones last."""
    rows = x.unsqueeze(-2) if inputs == 1 else x.transpose(-1, -2)
    heights, widths = rows.spec.shape[-3], rows.spec.shape[-1]
    n = (heights if s[0] is None else as_int(s[0], op, "n")), (widths if s[1] is None else as_int(s[1], op, "n"))
    height, count, height_scale = _sizes(op, heights, n[0], norm, sign, 2, 2, False)
    width, last_count, scale = _sizes(op, widths, n[1], norm, sign, inputs, outputs, half)
    for dim, most in ((-3, height), (-1, width)):
        if rows.spec.shape[dim] > most:
            rows = rows.narrow(dim, 0, most)
    doubled, last_first = half and inputs == 2, outputs == 2
    out = dft2(rows, n, sign, outputs, (count, last_count), scale, height_scale, doubled, last_first)
    return out.squeeze(-2) if outputs == 1 else out.transpose(-1, -2)


def _complex(op: str, input: Any, sign: int, n: int | None, dim: Any, norm: str | None) -> ComplexPair:
    inputs = 2 if isinstance(input, ComplexPair) else 1
    x = input.pair if inputs == 2 else check_real(op, input)
    return ComplexPair(_along(op, x, n, dim, norm, sign, inputs, 2, False))


def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """The sum over j of input[j] exp(-2 pi i j k / n), for each k of n along `dim`.

    n: the size, to which input is cut or padded with zeros. norm: "backward" (not scaled), "forward" (divided by n),
    "ortho" (by its root). input: a tensor, or a ComplexPair. Raises DTypeError unless float32 or float64, ShapeError
    for an n below 1.
    """
    return _complex("fft", input, -1, n, dim, norm)


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """Undoes `fft` of the same norm: divided by n for "backward"."""
    return _complex("ifft", input, 1, n, dim, norm)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """The first n // 2 + 1 results of `fft` of real numbers, of which the others are the conjugates."""
    return ComplexPair(_along("rfft", check_real("rfft", input), n, dim, norm, -1, 1, 2, True))


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Undoes `rfft`: n real numbers, 2 (m - 1) by default, from m. Imaginary parts of the first, and for an even n of
    the last, are not looked at.

    Raises ShapeError for an n below 1, DTypeError unless `input` is a ComplexPair or floating.
    """
    pair = input.pair if isinstance(input, ComplexPair) else pad(check_real("irfft", input).unsqueeze(-1), (0, 1))
    at = wrap_dim(dim, pair.ndim - 1, "irfft")
    size = 2 * (pair.shape[at] - 1) if n is None else as_int(n, "irfft", "n")
    if size < 1:
        raise ShapeError(f"irfft(): n must be at least 1, got {size}")
    return _along("irfft", pair, size, at, norm, 1, 2, 1, True)


_BACK = {"forward": "backward", "ortho": "ortho"}


def _conjugate(input: Any) -> Any:
    return input.conj() if isinstance(input, ComplexPair) else input


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """`fft` of n numbers, 2 (m - 1) by default, of which `input` has the first m, the others being their conjugates:
    n real numbers. Raises as `irfft` does."""
    return irfft(_conjugate(input), n, dim, _opposite("hfft", norm))


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """Undoes `hfft`: the first n // 2 + 1 results of `ifft` of real numbers."""
    return rfft(input, n, dim, _opposite("ihfft", norm)).conj()


def _opposite(op: str, norm: str | None) -> str:
    """The norm that scales what goes back as this one scales what goes forth."""
    if norm not in (None, *_NORMS):
        raise ValueError(f"{op}(): norm must be one of {', '.join(_NORMS)}, got {norm!r}")
    return _BACK.get(norm or "backward", "forward")


# --- Along several dims ---------------------------------------------------------------------------------------------


def _dims(op: str, input: Any, s: Any, dim: Any) -> tuple[list[int], list[int | None]]:
    ndim = input.ndim
    s = (s,) if isinstance(s, int) else s
    if dim is None:
        dims = list(range(ndim)) if s is None else list(range(ndim - len(s), ndim))
    else:
        dims = [wrap_dim(d, ndim, op) for d in (dim if isinstance(dim, tuple | list) else (dim,))]
    sizes: list[int | None] = [None] * len(dims) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(dims) or len(set(dims)) != len(dims) or min(dims, default=0) < 0:
        raise ShapeError(f"{op}(): s {s} and dim {dim} do not fit shape {tuple(input.shape)}")
    return dims, sizes


def _is_plane(input: Any, dims: list[int]) -> bool:
    """Whether the last of `dims` are those of an image, row by row."""
    return dims[-2:] == [input.ndim - 2, input.ndim - 1]


def _several(op: str, input: Any, s: Any, dim: Any, norm: str | None, one: Any, first: Any = None) -> ComplexPair:
    """`one` along all dims but the last, which `first` is done along before."""
    dims, sizes = _dims(op, input, s, dim)
    if not dims:
        return (
            input if isinstance(input, ComplexPair) else ComplexPair(pad(check_real(op, input).unsqueeze(-1), (0, 1)))
        )
    out: ComplexPair
    if _is_plane(input, dims):
        inputs = 2 if isinstance(input, ComplexPair) and not first else 1
        x = input.pair if inputs == 2 else check_real(op, input)
        plane = sizes[-2], sizes[-1]
        out = ComplexPair(_in_planes(op, x, plane, norm, -1 if one is fft else 1, inputs, 2, first is not None))
        dims, sizes = dims[:-1], sizes[:-1]
    else:
        out = (first or one)(input, sizes[-1], dims[-1], norm)
    for at, size in zip(reversed(dims[:-1]), reversed(sizes[:-1]), strict=True):
        out = one(out, size, at, norm)
    return out


def fftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """`fft` along each of `dim`, all by default, of the sizes `s`."""
    return _several("fftn", input, s, dim, norm, fft)


def ifftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """`ifft` along each of `dim`."""
    return _several("ifftn", input, s, dim, norm, ifft)


def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """`rfft` along the last of `dim`, then `fft` along the others."""
    return _several("rfftn", input, s, dim, norm, fft, rfft)


def irfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """Undoes `rfftn`: `ifft` along all of `dim` but the last, then `irfft`. Raises as `fftn` does."""
    dims, sizes = _dims("irfftn", input, s, dim)
    out, last = input, sizes[-1]
    in_planes = _is_plane(input, dims) and isinstance(input, ComplexPair)
    for at, size in zip(dims[: -2 if in_planes else -1], sizes, strict=False):
        out = ifft(out, size, at, norm)
    if not in_planes:
        return irfft(out, last, dims[-1], norm)
    last = 2 * (input.shape[-1] - 1) if last is None else last
    return _in_planes("irfftn", out.pair, (sizes[-2], last), norm, 1, 2, 1, True)


def fft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`fftn` along two dims, the last by default."""
    return fftn(input, s, dim, norm)


def ifft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`ifftn` along two dims, the last by default."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`rfftn` along two dims, the last by default."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along two dims, the last by default."""
    return irfftn(input, s, dim, norm)


def hfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """`fft` along all of `dim` but the last, then `hfft`. Raises as `irfftn` does."""
    return irfftn(_conjugate(input), s, dim, _opposite("hfftn", norm))


def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """Undoes `hfftn`: `ihfft` along the last of `dim`, then `ifft` along the others."""
    return rfftn(input, s, dim, _opposite("ihfftn", norm)).conj()


def hfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfftn` along two dims, the last by default."""
    return hfftn(input, s, dim, norm)


def ihfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`ihfftn` along two dims, the last by default."""
    return ihfftn(input, s, dim, norm)


# --- Frequencies ----------------------------------------------------------------------------------------------------


def _frequencies(op: str, first: int, count: int, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    return arange(first, first + count, dtype=chosen, device=device) * (1 / (n * d))


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of `fft`'s results for samples `d` apart: 0, 1, ..., -1, over n d."""
    found = roll(_frequencies("fftfreq", -(n // 2), n, n, d, dtype, device), -(n // 2))
    return found.requires_grad_() if requires_grad else found


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of `rfft`'s n // 2 + 1 results, for samples that are `d` apart: a vector."""
    found = _frequencies("rfftfreq", 0, n // 2 + 1, n, d, dtype, device)
    return found.requires_grad_() if requires_grad else found


def _shifted(op: str, input: Any, dim: Any, back: bool) -> Any:
    dims, _ = _dims(op, input, None, dim)
    halves = [(input.shape[d] + back) // 2 for d in dims]
    return input.roll(halves, dims) if dims else input


def fftshift(input: Any, dim: Any = None) -> Any:
    """The frequency 0 moved to the middle of each of `dim`."""
    return _shifted("fftshift", input, dim, False)


def ifftshift(input: Any, dim: Any = None) -> Any:
    """Undoes `fftshift`."""
    return _shifted("ifftshift", input, dim, True)


check_functions(globals())
