"""Convolution and pooling of volumes, one window at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .record import Array, Sample, case, samples, x


def _three(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * 3


def _conv3d(
    v: Array, w: Array, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    if v.ndim == 4:
        return _conv3d(v[None], w, b, stride, padding, dilation, groups)[0]
    steps, gaps, kernel = _three(stride), _three(dilation), w.shape[2:]
    extent = [d * (k - 1) for d, k in zip(gaps, kernel)]
    pads = [(r // 2, r - r // 2) for r in extent] if padding == "same" else [(p, p) for p in _three(padding)]
    v = np.pad(v, [(0, 0), (0, 0), *pads])
    counts = [(n - e - 1) // s + 1 for n, e, s in zip(v.shape[2:], extent, steps)]
    out = np.zeros((v.shape[0], w.shape[0], *counts))
    per = w.shape[0] // groups
    for n, o, *at in np.ndindex(out.shape):
        first = o // per * w.shape[1]
        window = tuple(slice(i * s, i * s + e + 1, d) for i, s, e, d in zip(at, steps, extent, gaps))
        part = v[(n, slice(first, first + w.shape[1]), *window)]
        out[(n, o, *at)] = (part * w[o]).sum() + (0 if b is None else b[o])
    return out


def _conv_transpose3d(
    v: Array, w: Array, b: Any = None, stride: Any = 1, padding: Any = 0, extra: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Array:  # fmt: skip
    if v.ndim == 4:
        return _conv_transpose3d(v[None], w, b, stride, padding, extra, groups, dilation)[0]
    steps, pads, more, gaps = (_three(value) for value in (stride, padding, extra, dilation))
    extent = [d * (k - 1) for d, k in zip(gaps, w.shape[2:])]
    whole = [(n - 1) * s + e + 1 + m for n, s, e, m in zip(v.shape[2:], steps, extent, more)]
    per = w.shape[1]
    out = np.zeros((v.shape[0], per * groups, *whole))
    for n, c, *at in np.ndindex(v.shape):
        first = c // (v.shape[1] // groups) * per
        window = tuple(slice(i * s, i * s + e + 1, d) for i, s, e, d in zip(at, steps, extent, gaps))
        out[(n, slice(first, first + per), *window)] += v[(n, c, *at)] * w[c]
    out = out[(slice(None), slice(None), *(slice(p, size - p) for p, size in zip(pads, whole)))]
    return out if b is None else out + b[:, None, None, None]


def _pooled(largest: bool) -> Any:
    def pool(
        v: Array, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Array:  # fmt: skip
        sizes, pads, gaps = _three(kernel), _three(padding), _three(dilation)
        steps = sizes if stride is None else _three(stride)
        counts = []
        for n, k, s, p, d in zip(v.shape[-3:], sizes, steps, pads, gaps):
            span = n + 2 * p - d * (k - 1) - 1
            count = -(-span // s) + 1 if ceil_mode else span // s + 1
            counts.append(count - 1 if (count - 1) * s >= n + p else count)
        out = np.zeros((*v.shape[:-3], *counts))
        for at in np.ndindex(*counts):
            starts = [i * s - p for i, s, p in zip(at, steps, pads)]
            places = [
                [i for i in range(a, a + d * (k - 1) + 1, d) if 0 <= i < n]
                for a, k, d, n in zip(starts, sizes, gaps, v.shape[-3:])
            ]
            part = v[(..., *np.ix_(*places))]
            if largest:
                out[(..., *at)] = part.max((-3, -2, -1))
                continue
            counted = [min(a + k, n + p) - a for a, k, n, p in zip(starts, sizes, v.shape[-3:], pads)]
            seen = np.prod(counted) if count_include_pad else np.prod([len(p) for p in places])
            out[(..., *at)] = part.sum((-3, -2, -1)) / (divisor_override or seen)
        return out

    return pool


def _averages(v: Array, kernel: Any, stride: Any = None, padding: Any = 0, *rest: Any, **options: Any) -> Array:
    found: Array = _pooled(False)(v, kernel, stride, padding, 1, *rest, **options)
    return found


def _adaptive(v: Array, size: Any) -> Array:
    counts = [n if m is None else m for n, m in zip(v.shape[-3:], _three(size))]
    out = np.zeros((*v.shape[:-3], *counts))
    for at in np.ndindex(*counts):
        parts = (slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, v.shape[-3:], counts))
        out[(..., *at)] = v[(..., *parts)].mean((-3, -2, -1))
    return out


def _late(name: str) -> Any:
    """The function, which is loaded when it is first called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from ...ops.nn import volumes

        return getattr(volumes, name)(*args, **kwargs)

    return call


SAMPLES = samples(
    Sample("conv3d", _conv3d, (
        case(x(1, 2, 2, 3, 3), x(2, 2, 2, 2, 2)),
        case(x(2, 1, 3, 2, 3), x(2, 1, 3, 2, 1), x(2), 1, 1),
        case(x(1, 2, 3, 4, 2), x(2, 1, 2, 2, 1), x(2), (1, 2, 1), (1, 0, 1), (2, 1, 1), 2),
        case(x(1, 2, 2, 2), x(1, 1, 2, 1, 2)),
        case(x(1, 1, 3, 2, 2), x(1, 1, 2, 3, 1), None, 1, "same"),
        case(x(1, 2, 2, 2, 2), x(3, 2, 1, 1, 1)),
    ), "float", strict=False, loose=16, call=_late("conv3d")),
    Sample("conv_transpose3d", _conv_transpose3d, (
        case(x(1, 2, 2, 1, 2), x(2, 1, 2, 2, 1)),
        case(x(1, 2, 2, 2, 2), x(2, 1, 3, 2, 2), x(2), (2, 1, 2), (1, 0, 1), (1, 0, 1), 2),
        case(x(1, 2, 2, 2, 1), x(2, 1, 1, 1, 1)),
    ), "float", strict=False, loose=16, call=_late("conv_transpose3d")),
    Sample("max_pool3d", _pooled(True), (
        case(x(1, 2, 4, 2, 4), 2), case(x(1, 3, 4, 3), (3, 2, 1), (1, 2, 2), (1, 1, 0)),
        case(x(1, 1, 3, 3, 5), 2, ceil_mode=True), case(x(1, 1, 5, 3, 3), 2, 1, dilation=2)), "float", strict=False,
        call=_late("max_pool3d")),
    Sample("avg_pool3d", _averages, (
        case(x(1, 2, 4, 2, 4), 2), case(x(1, 3, 4, 3), (3, 2, 1), (1, 2, 2), (1, 1, 0)),
        case(x(1, 1, 4, 3, 4), 3, 2, 1, count_include_pad=False), case(x(1, 1, 3, 5, 3), 2, ceil_mode=True),
        case(x(1, 1, 2, 4, 4), 2, divisor_override=3)), "float", strict=False, loose=8, call=_late("avg_pool3d")),
    Sample("adaptive_avg_pool3d", _adaptive, (
        case(x(1, 2, 4, 2, 4), 2), case(x(1, 3, 5, 4), (2, 2, 3)), case(x(1, 1, 3, 4, 2), (None, 2, 1))), "float",
        loose=8, call=_late("adaptive_avg_pool3d")),
)  # fmt: skip
