"""Products beyond matmul, sums of products with an input, distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import float32, int8, uint8
from .record import Array, Operand, Sample, case, exactly, samples, x


def _plus(product: Any) -> Any:
    """beta * input + alpha * product, in the dtype of the operands."""
    return lambda v, a, b, beta=1, alpha=1: beta * v + alpha * product(a, b)


def _dot(a: Array, b: Array, dims: Any = 2) -> Array:
    return np.tensordot(a, b, dims)


def _blocks(*parts: Array) -> Array:
    rows = [np.atleast_2d(p) for p in parts]
    out = np.zeros((sum(r.shape[0] for r in rows), sum(r.shape[1] for r in rows)), np.result_type(*rows))
    i = j = 0
    for r in rows:
        out[i : i + r.shape[0], j : j + r.shape[1]] = r
        i, j = i + r.shape[0], j + r.shape[1]
    return out


def _distances(a: Array, b: Array, p: float = 2.0) -> Array:
    return np.asarray(np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], p, -1))


def _pairs(a: Array, p: float = 2.0) -> Array:
    first, second = np.triu_indices(len(a), 1)
    return np.asarray(np.linalg.norm(a[first] - a[second], p, -1))


def _renormed(v: Array, p: float, dim: int, maxnorm: float) -> Array:
    size = np.sum(np.abs(v) ** p, tuple(d for d in range(v.ndim) if d != dim), keepdims=True) ** (1 / p)
    return v * np.where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


def _whole(*shape: int, most: int = 127) -> Array:
    """Whole numbers up to `most`, which is among each 32 of a row: rounding these to 8 bits gives them back."""
    values = (np.arange(np.prod(shape)) * 37 % (2 * most + 1) - most).reshape(shape)
    values[..., ::32] = most
    return values


_SCALES = (np.arange(8) % 4 - 1.5).astype(np.float16)


def _blocks_of(rows: int, features: int, columns: int) -> Operand:
    """Blocks of Q8_0 or Q4_0, by their size."""
    count, size = rows * features // 32, columns * 32 // features
    scales = _SCALES[:count].view(np.uint8).reshape(count, 2)
    numbers = _whole(count, size - 2, most=3) if size == 34 else _whole(count, size - 2) + 128
    return exactly(np.concatenate([scales, numbers.astype(np.uint8)], 1).reshape(rows, columns), uint8)


def _numbers(features: int, w: Array, scale: Any = None) -> Array:
    """What a quantised weight stands for."""
    if scale is not None:
        return w * scale[..., None]
    blocks = w.astype(np.uint8).reshape(*w.shape[:-1], features // 32, -1)
    stored = blocks[..., 2:]
    if blocks.shape[-1] == 34:
        numbers = stored.view(np.int8).astype(float)
    else:
        numbers = np.concatenate([stored & 15, stored >> 4], -1).astype(float) - 8
    return (blocks[..., :2].copy().view(np.float16).astype(float) * numbers).reshape(*w.shape[:-1], features)


def _quantized_linear(v: Array, w: Array, scale: Any = None, bias: Any = None) -> Array:
    return v @ _numbers(v.shape[-1], w, scale).T + (0 if bias is None else bias)


_SCALE = exactly([0.5, -0.25, 2], float32)


def _dft(v: Array, *args: Any) -> Array:
    """By the sums of its definition. Without a window it is the second argument that is None."""
    window, n, sign, outputs, count, scale, doubled = args
    inputs, size = v.shape[-2:]
    z = v[..., 0, :] + 1j * v[..., 1, :] if inputs == 2 else v[..., 0, :] * (1 if window is None else window)
    twice = np.array([1 if not doubled or 2 * k in (0, n) else 2 for k in range(n)])
    z = z * twice[:size] if (inputs, outputs) == (2, 1) else z
    found = z @ np.exp(sign * 2j * np.pi * np.outer(np.arange(size), np.arange(count)) / n) * scale
    if outputs == 1:
        return (found.real * (1 if window is None or inputs == 1 else window))[..., None, :]
    found = found * twice[:count] if inputs == 1 else found
    return np.stack([found.real, found.imag], -2)


# Between elements, of all sizes above: there a derivative is the same from both sides.
_PLACES = (np.arange(24).reshape(2, 3, 2, 2) * 7 % 24 - 11.15) / 10.0
_PLACES_IN_VOLUMES = (np.arange(36).reshape(2, 1, 3, 2, 3) * 5 % 36 - 17.15) / 15.0


def _sampled(v: Array, grid: Array, mode: str, padding_mode: str, align: bool) -> Array:
    """Sums over all elements, each weighted by how near it is."""
    weights = []
    for d, n in enumerate(v.shape[2:]):
        number = grid[..., -1 - d]
        place = (number + 1) / 2 * (n - 1) if align else ((number + 1) * n - 1) / 2
        if mode == "bicubic":
            weights.append(_cubic_weights(place, n, padding_mode))
            continue
        if padding_mode == "border":
            place = np.clip(place, 0, n - 1)
        away = np.abs((np.rint(place) if mode == "nearest" else place)[..., None] - np.arange(n))
        weights.append(np.maximum(1 - away, 0))
    of_volumes = "ncdhw,nijkd,nijkh,nijkw->ncijk"
    return np.asarray(np.einsum(of_volumes if v.ndim == 5 else "nchw,nijh,nijw->ncij", v, *weights))


def _cubic_weights(place: Array, n: int, padding_mode: str) -> Array:
    """Those of n elements for each place (Keys, 1981, with a = -0.75)."""
    a, weights = -0.75, np.zeros((*place.shape, n))
    for k in range(-1, 3):
        tap = np.floor(place) + k
        d = np.abs(place - tap)
        weight = np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a)
        tap = np.clip(tap, 0, n - 1) if padding_mode == "border" else tap
        weights += weight[..., None] * (tap[..., None] == np.arange(n))
    return weights


def _resampled(v: Array, dim: int, count: int) -> Array:
    """The averages of parts of a dim."""
    n, lines = v.shape[dim], np.moveaxis(v, dim, -1)
    out = [lines[..., i * n // count : -(-(i + 1) * n // count)].mean(-1) for i in range(count)]
    return np.stack(out, dim)


SAMPLES = samples(
    Sample("quantized_linear", _quantized_linear, (
        case(exactly(_whole(2, 5)), exactly(_whole(3, 5, most=3), int8), _SCALE),
        case(exactly(_whole(1, 1, 33)), exactly(_whole(3, 33, most=3), int8), _SCALE, x(3)),
        case(exactly(_whole(1, 32)), _blocks_of(2, 32, 34), None, x(2)),
        case(exactly(_whole(64)), _blocks_of(2, 64, 36)),
        case(x(0, 32), _blocks_of(3, 32, 18)),
    ), "float", strict=False, loose=8),
    Sample("dft", _dft, (
        case(x(2, 2, 6), None, 6, -1, 2, 6, 1.0, False), case(x(2, 2, 1, 8), x(8), 8, -1, 2, 5, 0.5, False),
        case(x(3, 2, 5), x(8), 8, 1, 1, 8, 0.125, True), case(x(1, 5), None, 7, 1, 2, 4, 1.0, True),
        case(x(2, 2, 3), None, 4, -1, 1, 3, 1.0, False), case(x(0, 1, 4), None, 4, 1, 2, 4, 1.0, False),
    ), "float", strict=False, loose=32, call=lambda *args: _transformed(*args)),
    Sample("grid_sample2d", _sampled, (
        case(x(2, 3, 4, 5), exactly(_PLACES), "bilinear", "zeros", False),
        case(x(2, 1, 3, 2), exactly(_PLACES), "bilinear", "border", True),
        case(x(2, 9, 4, 3), exactly(_PLACES), "nearest", "zeros", False),
    ), "float", strict=False, loose=32, call=lambda *args: _grid_sampled(*args)),
    Sample("grid_sample2d_bicubic", _sampled, (
        case(x(2, 3, 4, 5), exactly(_PLACES), "bicubic", "zeros", False),
        case(x(2, 1, 3, 2), exactly(_PLACES), "bicubic", "border", True),
    ), "float", strict=False, loose=32, call=lambda *args: _grid_sampled(*args)),
    Sample("grid_sample3d", _sampled, (
        case(x(2, 3, 4, 2, 3), exactly(_PLACES_IN_VOLUMES), "bilinear", "zeros", False),
        case(x(2, 1, 3, 4, 2), exactly(_PLACES_IN_VOLUMES), "bilinear", "border", True),
        case(x(2, 9, 2, 4, 3), exactly(_PLACES_IN_VOLUMES), "nearest", "zeros", False),
    ), "float", strict=False, loose=32, call=lambda *args: _grid_sampled(*args)),
    Sample("resample", _resampled, (
        case(x(2, 3, 5), 2, 3), case(x(2, 3, 5), 2, 11), case(x(4, 3), 0, 7), case(x(1, 2, 7, 9), 2, 4),
        case(x(0, 2), 1, 3),
    ), "float", strict=False, loose=8, call=lambda *args: _of_parts(*args)),
    Sample("tensordot", _dot, (case(x(2, 3, 2), x(3, 2, 2)), case(x(2, 3), x(2, 2), ([0], [1])),
           case(x(2), x(3), 0)), "number", strict=False, loose=8),
    Sample("inner", np.inner, (case(x(2, 3), x(4, 3)), case(x(3), x(2, 3)), case(x(), x(3))), "number", strict=False,
           loose=8),
    Sample("vdot", np.vdot, (case(x(4), x(4)),), "number", strict=False, loose=8),
    Sample("kron", np.kron, (case(x(2, 2), x(1, 3)), case(x(2), x(2, 2)), case(x(), x(2))), "number", strict=False),
    Sample("chain_matmul", lambda *m: np.linalg.multi_dot(m), (case(x(2, 3), x(3, 4), x(4, 1)), case(x(2, 2), x(2, 2))),
           "number", strict=False, loose=16),
    Sample("matrix_power", np.linalg.matrix_power, (case(x(2, 2), 3), case(x(2, 2), 1), case(x(3, 2, 2), 2)),
           "number", strict=False, loose=16),
    Sample("matrix_power.zero", np.linalg.matrix_power, (case(x(2, 2), 0),), "number", strict=False, grad=False,
           call=lambda v, n: v.matrix_power(n)),
    Sample("addmv", _plus(np.matmul), (case(x(2), x(2, 3), x(3)), case(x(2), x(2, 3), x(3), beta=2, alpha=3)), "number",
           strict=False, loose=8),
    Sample("addr", _plus(np.outer), (case(x(2, 3), x(2), x(3)), case(x(3), x(2), x(3), beta=2, alpha=3)), "number",
           strict=False, loose=4),
    Sample("baddbmm", _plus(np.matmul), (case(x(2, 2, 2), x(2, 2, 3), x(2, 3, 2)),
           case(x(2), x(2, 2, 3), x(2, 3, 2), beta=2, alpha=3)), "number", strict=False, loose=8),
    Sample("addbmm", _plus(lambda a, b: np.matmul(a, b).sum(0)), (
        case(x(2, 2), x(2, 2, 3), x(2, 3, 2)), case(x(2), x(2, 2, 3), x(2, 3, 2), beta=2, alpha=3)), "number",
        strict=False, loose=16),
    Sample("block_diag", _blocks, (case(x(2, 3), x(2), x()), case(x(2, 2)), case(x(0, 2), x(1, 1)))),
    Sample("cdist", _distances, (case(x(3, 2), x(2, 2)), case(x(2, 3, 2), x(2, 2), 1.0), case(x(2, 3), x(2, 3), 3.0),
           case(x(2, 2), x(3, 2), np.inf)), "float", strict=False, loose=8),
    Sample("cdist.product", _distances, (case(x(3, 2), x(2, 2)),), "float", strict=False, loose=100,
           call=lambda a, b: _by_product(a, b)),
    Sample("pdist", _pairs, (case(x(4, 2)), case(x(3, 3), 1.0)), "float", strict=False, loose=8),
    Sample("renorm", _renormed, (case(x(2, 3), 2, 0, 1.5), case(x(2, 2, 2), 1, 1, 3.0)),
           "float", strict=False, loose=8),
)  # fmt: skip


def _by_product(a: Any, b: Any) -> Any:
    from ...ops import cdist

    return cdist(a, b, compute_mode="use_mm_for_euclid_dist")


def _transformed(*args: Any) -> Any:
    from ...ops.matrix.dft import dft

    return dft(*args)


def _of_parts(v: Any, dim: int, count: int) -> Any:
    from ...ops.nn.resampling import parts, resampled

    return resampled(v, dim, parts(v.shape[dim], count, v.dtype, v.device))


def _grid_sampled(*args: Any) -> Any:
    from ...ops.nn.sampling import grid_sample2d, grid_sample2d_bicubic, grid_sample3d

    if args[0].ndim == 5:
        return grid_sample3d(*args)
    return (grid_sample2d_bicubic if args[2] == "bicubic" else grid_sample2d)(*args)
