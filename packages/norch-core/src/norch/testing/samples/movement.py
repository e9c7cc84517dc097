"""Views, copies, and ops that join, split and repeat."""

from __future__ import annotations

from typing import Any

import numpy as np

from .record import Array, Sample, case, samples, x


def _permuted(v: Array, *dims: Any) -> Array:
    return np.transpose(v, dims[0] if dims and not isinstance(dims[0], int) else dims)


def _shaped(v: Array, *shape: Any) -> Array:
    return np.reshape(v, shape[0] if shape and not isinstance(shape[0], int) else shape)


def _flattened(v: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    if not v.ndim:
        return v.reshape(1)
    first, last = start_dim % v.ndim, end_dim % v.ndim
    return v.reshape(*v.shape[:first], int(np.prod(v.shape[first : last + 1])), *v.shape[last + 1 :])


def _squeezed(v: Array, dim: Any = None) -> Array:
    if dim is None:
        return np.squeeze(v)
    dims = [d % v.ndim for d in (dim if isinstance(dim, tuple) else (dim,))]
    return np.squeeze(v, tuple(d for d in dims if v.shape[d] == 1))


def _expanded(v: Array, *shape: Any) -> Array:
    sizes = list(shape[0] if not isinstance(shape[0], int) else shape)
    lead = len(sizes) - v.ndim
    return np.broadcast_to(v, [v.shape[i - lead] if n == -1 else n for i, n in enumerate(sizes)])


def _windows(v: Array, dimension: int, size: int, step: int) -> Array:
    dim = dimension % v.ndim
    windows = np.lib.stride_tricks.sliding_window_view(v, size, dim)
    return windows[(slice(None),) * dim + (slice(None, None, step),)]


def _strided(v: Array, size: Any, stride: Any, offset: int = 0) -> Array:
    flat = v.ravel()
    places = offset + sum((np.arange(n) * s).reshape((-1,) + (1,) * (len(size) - 1 - i))
                          for i, (n, s) in enumerate(zip(size, stride, strict=True)))  # fmt: skip
    return flat[places]


VIEWS = samples(
    Sample("swapaxes", np.swapaxes, (case(x(2, 3), 0, 1),), view=True),
    Sample("transpose", np.swapaxes, (case(x(2, 3), 0, 1), case(x(2, 3, 2), -1, 0), case(x(0, 2), 0, 1)), view=True),
    Sample("t", np.transpose, (case(x(2, 3)), case(x(3)), case(x())), view=True),
    Sample("T", np.transpose, (case(x(2, 3)), case(x(2, 3, 2))), call=lambda v: v.T, view=True),
    Sample("mT", lambda v: np.swapaxes(v, -1, -2), (case(x(2, 3)), case(x(2, 3, 2))),
           call=lambda v: v.mT, view=True),
    Sample("permute", _permuted, (
        case(x(2, 3, 2), 2, 0, 1), case(x(2, 3), (1, 0)), case(x(), ()), case(x(2, 0, 3), -1, -2, 0)), view=True),
    Sample("movedim", np.moveaxis, (case(x(2, 3, 2), 0, -1), case(x(2, 3, 2), (0, 1), (2, 0))), view=True),
    Sample("reshape", _shaped, (
        case(x(2, 3), 6), case(x(2, 3), (3, -1)), case(x(2, 3, 2), 2, 1, -1), case(x(), 1, 1), case(x(1, 1), ()),
        case(x(0, 3), 3, 0), case(x(2, 0), 0, 5))),
    Sample("view", _shaped, (case(x(2, 3), 6), case(x(2, 3), (3, 2)), case(x(2, 3), -1, 1)), view=True, layouts=False),
    Sample("view_as", lambda v, o: v.reshape(o.shape), (case(x(2, 3), x(3, 2)),), grad=False, view=True,
           layouts=False),
    Sample("reshape_as", lambda v, o: v.reshape(o.shape), (case(x(2, 3), x(3, 2)),), grad=False),
    Sample("flatten", _flattened, (case(x(2, 3)), case(x(2, 3, 2), 1), case(x(2, 3, 2), 0, 1), case(x()),
           case(x(2, 0, 3), 1))),
    Sample("ravel", lambda v: v.reshape(-1), (case(x(2, 3)), case(x()), case(x(2, 0, 3)))),
    Sample("unflatten", lambda v, dim, sizes: v.reshape(*v.shape[:dim], *sizes, *v.shape[dim + 1 :]), (
        case(x(2, 6), 1, (2, 3)), case(x(6, 2), 0, (3, -1)))),
    Sample("squeeze", _squeezed, (
        case(x(1, 2, 1)), case(x(1, 2, 1), 0), case(x(1, 2, 1), 1), case(x(1, 2, 1), (0, -1)), case(x())), view=True),
    Sample("unsqueeze", np.expand_dims, (case(x(2, 3), 0), case(x(2, 3), -1), case(x(), 0), case(x(2, 0), 1)),
           view=True),
    Sample("expand", _expanded, (
        case(x(2, 1), 2, 3), case(x(3), (2, -1)), case(x(), 2, 2), case(x(2, 1, 2), -1, 3, -1), case(x(1), 0)),
        view=True),
    Sample("expand_as", lambda v, o: np.broadcast_to(v, o.shape), (case(x(2, 1), x(2, 3)),), grad=False, view=True),
    Sample("broadcast_to", np.broadcast_to, (case(x(2, 1), (2, 3)), case(x(3), (2, 3))), view=True),
    Sample("broadcast_tensors", np.broadcast_arrays, (case(x(2, 1), x(3)), case(x(2, 3), x(), x(1, 3)))),
    Sample("narrow", lambda v, dim, start, n: np.take(v, range(start % max(v.shape[dim], 1), start % max(v.shape[dim],
           1) + n), dim), (case(x(4, 2), 0, 1, 2), case(x(2, 4), -1, -3, 2), case(x(4), 0, 2, 0)), view=True),
    Sample("select", lambda v, dim, i: np.take(v, i, dim), (case(x(2, 3), 0, 1), case(x(2, 3), -1, -2)), view=True),
    Sample("diagonal", lambda v, offset=0, dim1=0, dim2=1: np.diagonal(v, offset, dim1, dim2), (
        case(x(3, 3)), case(x(2, 4), 1), case(x(3, 2), -1), case(x(2, 3, 3), 0, 1, 2), case(x(3, 2, 3), 1, -1, 0),
        case(x(2, 2), 4)), view=True),
    Sample("unfold", _windows, (case(x(5), 0, 2, 1), case(x(2, 5), 1, 3, 2), case(x(4, 2), 0, 2, 2)), view=True),
    Sample("as_strided", _strided, (case(x(2, 3), (2, 2), (3, 1)), case(x(6), (3, 2), (2, 1)),
           case(x(2, 3), (2,), (2,), 1), case(x(5), (3, 3), (1, 1)), case(x(4), (2, 2), (0, 1))), view=True,
           layouts=False),
    Sample("clone", np.copy, (case(x(2, 3)), case(x()), case(x(0, 2)))),
    Sample("contiguous", np.copy, (case(x(2, 3)), case(x()), case(x(0, 2)))),
    Sample("detach", np.copy, (case(x(2, 3)),), grad=False, view=True),
)  # fmt: skip


def _repeated(v: Array, *sizes: Any) -> Array:
    times = sizes[0] if not isinstance(sizes[0], int) else sizes
    return np.tile(v, times)


def _flipped(v: Array, *dims: Any) -> Array:
    return np.flip(v, dims[0] if len(dims) == 1 else dims)


def _split(v: Array, sizes: Any, dim: int = 0) -> list[Array]:
    if isinstance(sizes, int):
        cuts = list(range(sizes, v.shape[dim], sizes))
    else:
        cuts = [int(c) for c in np.cumsum(sizes)[:-1]]
    return [np.asarray(p) for p in np.split(v, cuts, axis=dim)]


def _chunked(v: Array, chunks: int, dim: int = 0) -> list[Array]:
    return _split(v, -(-v.shape[dim] // chunks), dim)


def _unbound(v: Array, dim: int = 0) -> list[Array]:
    return [np.take(v, i, dim) for i in range(v.shape[dim])]


def _padded(v: Array, pad: Any, mode: str = "constant", value: float | None = None) -> Array:
    width = [(0, 0)] * v.ndim
    cut = [slice(None)] * v.ndim
    for i in range(0, len(pad), 2):
        dim = v.ndim - 1 - i // 2
        width[dim] = (max(pad[i], 0), max(pad[i + 1], 0))
        cut[dim] = slice(max(-pad[i], 0), v.shape[dim] + min(pad[i + 1], 0))
    numpy_mode: Any = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    given = {} if mode != "constant" else {"constant_values": value or 0}
    return np.pad(v[tuple(cut)], width, numpy_mode, **given)


def _rolled(v: Array, shifts: Any, dims: Any = None) -> Array:
    return np.roll(v, shifts, dims)


def _grid(*vectors: Array, indexing: Any = "ij") -> list[Array]:
    return list(np.meshgrid(*vectors, indexing=indexing))


JOINING = samples(
    Sample("cat", np.concatenate, (
        case([x(2, 3), x(1, 3)]), case([x(2, 1), x(2, 2), x(2, 0)], 1), case((x(2), x(3)), -1), case([x(2, 2)]),
        case([x(0, 2), x(0, 2)]))),
    Sample("cat.empty", lambda parts: parts[1], (case([x(0), x(2, 3)]),),
           call=lambda parts: _cat(parts)),
    Sample("stack", lambda v, dim=0: np.stack(v, dim), (
        case([x(2, 3), x(2, 3)]), case([x(2), x(2)], -1), case([x(), x(), x()]), case([x(2, 0)], 1))),
    Sample("hstack", np.hstack, (case([x(2), x(3)]), case([x(2, 1), x(2, 2)]), case([x(), x()]))),
    Sample("vstack", np.vstack, (case([x(2), x(2)]), case([x(2, 1), x(1, 1)]), case([x(), x()]))),
    Sample("split", _split, (case(x(5, 2), 2), case(x(2, 5), [1, 4], 1), case(x(4), 2, -1), case(x(4), 7)), view=True),
    Sample("chunk", _chunked, (case(x(5, 2), 2), case(x(2, 6), 3, 1), case(x(3), 5)), view=True),
    Sample("unbind", _unbound, (case(x(2, 3)), case(x(2, 3), -1), case(x(2, 0), 0)), view=True),
    Sample("repeat", _repeated, (case(x(2, 3), 2, 1), case(x(3), (2, 2)), case(x(), 3), case(x(2), 1),
           case(x(2), 0))),
    Sample("tile", _repeated, (case(x(2, 3), 2), case(x(3), (2, 2)), case(x(2, 2), 1, 2))),
    Sample("repeat_interleave", lambda v, n, dim=None: np.repeat(v, n, dim), (
        case(x(2, 3), 2), case(x(2, 3), 2, 1), case(x(3), 3, 0), case(x(2), 0))),
    Sample("flip", _flipped, (case(x(2, 3), 0), case(x(2, 3), (0, 1)), case(x(2, 3), 0, -1), case(x(0, 2), 0),
           case(x(2), ()))),
    Sample("fliplr", np.fliplr, (case(x(2, 3)),)),
    Sample("flipud", np.flipud, (case(x(2, 3)), case(x(3)))),
    Sample("roll", _rolled, (
        case(x(2, 3), 1), case(x(2, 3), -1, 1), case(x(2, 3), (1, 2), (0, 1)), case(x(5), 7, 0), case(x(0, 2), 1, 0))),
    Sample("pad", _padded, (
        case(x(2, 3), (1, 2)), case(x(2, 3), (1, 0, 0, 2), value=1), case(x(2, 3), [-1, 1]), case(x(2, 4), (-1, -2)),
        case(x(2, 4), (2, 1), "reflect"), case(x(2, 3), (2, 2, 1, 0), "replicate"), case(x(4), (2, 3), "circular"),
        case(x(2, 3), (0, 0)), case(x(0, 2), (0, 0, 1, 1)))),
    Sample("meshgrid", _grid, (case(x(2), x(3)), case(x(2), x(3), indexing="xy"), case(x(2), x(1), x(2)))),
)  # fmt: skip


def _cat(parts: Any) -> Any:
    from ...ops import cat

    return cat(parts)


SAMPLES = samples(VIEWS, JOINING)
