"""What layers are made of: linear, normalization, convolution, pooling, embedding, attention."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...dtype import bool_
from .activation import softmax
from .record import Array, Sample, case, exactly, index, samples, x


def _linear(v: Array, w: Array, b: Any = 0) -> Array:
    return v @ w.T + b


def _bilinear(a: Array, c: Array, w: Array, b: Any = 0) -> Array:
    return np.einsum("...i,kij,...j->...k", a, w, c) + b


def _pixel_shuffle(v: Array, r: int) -> Array:
    *lead, c, h, w = v.shape
    cut = v.reshape(*lead, c // (r * r), r, r, h, w)
    return np.moveaxis(cut, (-4, -3), (-3, -1)).reshape(*lead, c // (r * r), h * r, w * r)


def _pixel_unshuffle(v: Array, r: int) -> Array:
    *lead, c, h, w = v.shape
    cut = v.reshape(*lead, c, h // r, r, w // r, r)
    return np.moveaxis(cut, (-3, -1), (-4, -3)).reshape(*lead, c * r * r, h // r, w // r)


def _channel_shuffle(v: Array, groups: int) -> Array:
    order = np.arange(v.shape[1]).reshape(groups, -1).T.reshape(-1)
    return np.asarray(v[:, order])


# --- Normalization --------------------------------------------------------------------------------------------------


def _standard(v: Array, axes: Any, eps: float) -> Array:
    return (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + eps)


def _layer_norm(v: Array, shape: Any, w: Any = 1, b: Any = 0, eps: float = 1e-5) -> Array:
    count = len(shape) if isinstance(shape, tuple | list) else 1
    return _standard(v, tuple(range(-count, 0)), eps) * w + b


def _rms_norm(v: Array, shape: Any, w: Any = 1, eps: float = 1e-5) -> Array:
    count = len(shape) if isinstance(shape, tuple | list) else 1
    return v / np.sqrt((v * v).mean(tuple(range(-count, 0)), keepdims=True) + eps) * w


def _by_channel(values: Any, v: Array) -> Any:
    return values.reshape(-1, *(1,) * (v.ndim - 2)) if isinstance(values, np.ndarray) else values


def _group_norm(v: Array, groups: int, w: Any = 1, b: Any = 0, eps: float = 1e-5) -> Array:
    rows = v.reshape(v.shape[0], groups, -1)
    return _standard(rows, 2, eps).reshape(v.shape) * _by_channel(w, v) + _by_channel(b, v)


def _batch_norm(v: Array, mean: Any, var: Any, w: Any = 1, b: Any = 0, training: bool = False, **options: Any) -> Array:
    eps = options.get("eps", 1e-5)
    if training:
        out = _standard(v, (0, *range(2, v.ndim)), eps)
    else:
        out = (v - _by_channel(mean, v)) / np.sqrt(_by_channel(var, v) + eps)
    return np.asarray(out * _by_channel(w, v) + _by_channel(b, v))


def _normalize(v: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    return np.asarray(v / np.maximum(np.linalg.norm(v, p, dim, keepdims=True), eps))


def _cosine(a: Array, b: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    sizes = [np.maximum(np.sqrt((v * v).sum(dim)), eps) for v in (a, b)]
    return np.asarray((a * b).sum(dim) / (sizes[0] * sizes[1]))


NORMALIZATION = samples(
    Sample("layer_norm", _layer_norm, (
        case(x(2, 3), (3,)), case(x(2, 3, 2), (3, 2), x(3, 2), x(3, 2)), case(x(2, 3), 3, x(3), eps=0.1)),
        "float", loose=32),
    Sample("rms_norm", _rms_norm, (case(x(2, 3), (3,), x(3), 1e-5), case(x(2, 3, 2), (3, 2), x(3, 2), 0.1)),
           "float", loose=16),
    Sample("group_norm", _group_norm, (case(x(2, 4), 2), case(x(2, 4, 2), 2, x(4), x(4))), "float",
           loose=32),
    Sample("batch_norm", _batch_norm, (
        case(x(2, 3), x(3), x(3, low=0.5, high=2)), case(x(2, 3, 2), x(3), x(3, low=0.5, high=2), x(3), x(3))),
           "float", loose=16, grad=False),
    Sample("batch_norm.training", lambda v, w=1, b=0: _batch_norm(v, None, None, w, b, True), (
        case(x(3, 2)), case(x(2, 3, 2), x(3), x(3)), case(x(2, 2, 1, 2))), "float", loose=64,
        call=lambda v, *a: _ops().batch_norm(v, None, None, *a, training=True)),
    Sample("normalize", _normalize, (case(x(2, 3)), case(x(2, 3), 1.0, 0)), "float", loose=8),
    Sample("cosine_similarity", _cosine, (case(x(2, 3), x(2, 3)), case(x(2, 3), x(3), -1)), "float",
           loose=8),
)  # fmt: skip


def _ops() -> Any:
    from ... import ops

    return ops


# --- Convolution and pooling, one window at a time ------------------------------------------------------------------


def _two(value: Any) -> tuple[int, int]:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def _conv2d(
    v: Array, w: Array, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    if v.ndim == 3:
        return _conv2d(v[None], w, b, stride, padding, dilation, groups)[0]
    (sh, sw), (dh, dw) = _two(stride), _two(dilation)
    out_channels, channels, kh, kw = w.shape
    extent = dh * (kh - 1), dw * (kw - 1)
    pads = [(r // 2, r - r // 2) for r in extent] if padding == "same" else [(p, p) for p in _two(padding)]
    v = np.pad(v, [(0, 0), (0, 0), *pads])
    rows, columns = (v.shape[2] - extent[0] - 1) // sh + 1, (v.shape[3] - extent[1] - 1) // sw + 1
    out = np.zeros((v.shape[0], out_channels, rows, columns))
    per = out_channels // groups
    for n, o, i, j in np.ndindex(out.shape):
        first = o // per * channels
        part = v[
            n, first : first + channels, i * sh : i * sh + extent[0] + 1 : dh, j * sw : j * sw + extent[1] + 1 : dw
        ]
        out[n, o, i, j] = (part * w[o]).sum() + (0 if b is None else b[o])
    return out


def _conv_transpose2d(
    v: Array, w: Array, b: Any = None, stride: Any = 1, padding: Any = 0, extra: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Array:  # fmt: skip
    if v.ndim == 3:
        return _conv_transpose2d(v[None], w, b, stride, padding, extra, groups, dilation)[0]
    s, p, e, d = _two(stride), _two(padding), _two(extra), _two(dilation)
    channels, per, kh, kw = w.shape
    size = [(v.shape[2 + i] - 1) * s[i] + d[i] * ((kh, kw)[i] - 1) + 1 + max(e[i], p[i]) for i in (0, 1)]
    out = np.zeros((v.shape[0], per * groups, *size))
    for n, c, i, j in np.ndindex(v.shape):
        first = c // (channels // groups) * per
        for y, z in itertools.product(range(kh), range(kw)):
            out[n, first : first + per, i * s[0] + y * d[0], j * s[1] + z * d[1]] += v[n, c, i, j] * w[c, :, y, z]
    wanted = [(v.shape[2 + i] - 1) * s[i] - 2 * p[i] + d[i] * ((kh, kw)[i] - 1) + e[i] + 1 for i in (0, 1)]
    out = out[:, :, p[0] : p[0] + wanted[0], p[1] : p[1] + wanted[1]]
    return out if b is None else out + b.reshape(-1, 1, 1)


def _pooled(largest: bool) -> Any:
    def oracle(v: Array, kernel: Any, stride: Any = None, padding: Any = 0, **options: Any) -> Array:
        k, p, d = _two(kernel), _two(padding), _two(options.get("dilation", 1))
        s = k if stride is None else _two(stride)
        sizes = v.shape[-2:]
        divide = math.ceil if options.get("ceil_mode") else math.floor
        out_sizes = [divide((sizes[i] + 2 * p[i] - d[i] * (k[i] - 1) - 1) / s[i]) + 1 for i in (0, 1)]
        # A window must start within the input or the padding before it.
        out_sizes = [n - 1 if (n - 1) * s[i] >= sizes[i] + p[i] else n for i, n in enumerate(out_sizes)]
        out = np.zeros((*v.shape[:-2], *out_sizes))
        for i, j in np.ndindex(*out_sizes):
            at = [range(o * s[a] - p[a], o * s[a] - p[a] + d[a] * (k[a] - 1) + 1, d[a]) for a, o in ((0, i), (1, j))]
            inside = [[q for q in r if 0 <= q < n] for r, n in zip(at, sizes, strict=True)]
            padded = [[q for q in r if q < n + p[a]] for a, (r, n) in enumerate(zip(at, sizes, strict=True))]
            part = v[..., np.array(inside[0])[:, None], np.array(inside[1])]
            if largest:
                out[..., i, j] = part.max((-1, -2))
            else:
                counted = padded if options.get("count_include_pad", True) else inside
                over = options.get("divisor_override") or len(counted[0]) * len(counted[1])
                out[..., i, j] = part.sum((-1, -2)) / over
        return out

    return oracle


def _pool1d(largest: bool) -> Any:
    def oracle(v: Array, kernel: int, stride: Any = None, padding: int = 0, **options: Any) -> Array:
        step = (1, kernel if stride is None else stride)
        return np.asarray(_pooled(largest)(v[..., None, :], (1, kernel), step, (0, padding), **options)[..., 0, :])

    return oracle


def _adaptive(v: Array, size: Any) -> Array:
    wanted = [n if m is None else m for n, m in zip(v.shape[-2:], _two(size), strict=True)]
    out = np.zeros((*v.shape[:-2], *wanted))
    for place in np.ndindex(*wanted):
        part = [slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place, v.shape[-2:], wanted, strict=True)]
        out[(..., *place)] = v[(..., *part)].mean((-1, -2))
    return out


def _conv1d(
    v: Array, w: Array, b: Any = None, stride: int = 1, padding: Any = 0, dilation: int = 1, groups: int = 1
) -> Any:
    pads = padding if isinstance(padding, str) else (0, padding)
    return _conv2d(v[..., None, :], w[:, :, None], b, (1, stride), pads, (1, dilation), groups)[..., 0, :]


def _conv_transpose1d(v: Array, w: Array, b: Any = None, stride: int = 1, padding: int = 0, extra: int = 0) -> Any:
    return _conv_transpose2d(v[..., None, :], w[:, :, None], b, (1, stride), (0, padding), (0, extra))[..., 0, :]


WINDOWS = samples(
    Sample("conv2d", _conv2d, (
        case(x(1, 2, 3, 3), x(2, 2, 2, 2)),
        case(x(2, 1, 3, 4), x(2, 1, 2, 3), x(2), 1, 1),
        case(x(1, 2, 4, 4), x(2, 1, 2, 2), x(2), (2, 1), (1, 0), 1, 2),
        case(x(1, 1, 4, 4), x(1, 1, 2, 2), None, 1, 0, 2),
        case(x(1, 3, 3), x(1, 1, 2, 2)),
        case(x(1, 1, 3, 3), x(1, 1, 3, 2), None, 1, "same"),
    ), "float", strict=False, loose=16),
    Sample("conv1d", _conv1d, (
        case(x(2, 2, 4), x(2, 2, 3)), case(x(1, 2, 5), x(2, 1, 2), x(2), 2, 1, 1, 2)), "float", strict=False, loose=16),
    Sample("conv_transpose2d", _conv_transpose2d, (
        case(x(1, 2, 2, 2), x(2, 1, 2, 2)),
        case(x(1, 2, 2, 3), x(2, 1, 2, 2), x(2), (2, 1), (1, 0), (1, 0), 2),
    ), "float", strict=False, loose=16),
    Sample("conv_transpose1d", _conv_transpose1d, (
        case(x(1, 2, 3), x(2, 1, 2)), case(x(1, 1, 3), x(1, 2, 3), x(2), 2, 1, 1)), "float", strict=False, loose=16),
    Sample("max_pool2d", _pooled(True), (
        case(x(1, 2, 4, 4), 2), case(x(1, 5, 4), (3, 2), (1, 2), (1, 1)), case(x(1, 1, 5, 5), 2, ceil_mode=True),
        case(x(1, 1, 5, 5), 2, 1, dilation=2)), "float", strict=False),
    Sample("max_pool1d", _pool1d(True), (case(x(1, 2, 5), 2), case(x(1, 6), 3, 2, 1)), "float",
           strict=False),
    Sample("avg_pool2d", _pooled(False), (
        case(x(1, 2, 4, 4), 2), case(x(1, 4, 4), (3, 2), (1, 2), (1, 1)),
        case(x(1, 1, 4, 4), 3, 2, 1, count_include_pad=False), case(x(1, 1, 5, 5), 2, ceil_mode=True),
        case(x(1, 1, 4, 4), 2, divisor_override=3)), "float", strict=False, loose=4),
    Sample("avg_pool1d", _pool1d(False), (case(x(1, 2, 5), 2), case(x(1, 6), 3, 2, 1)), "float",
           strict=False, loose=4),
    Sample("adaptive_avg_pool2d", _adaptive, (
        case(x(1, 2, 4, 4), 2), case(x(1, 5, 4), (2, 3)), case(x(1, 1, 3, 4), (None, 2))), "float",
        loose=8),
    Sample("adaptive_avg_pool1d", lambda v, n: _adaptive(v[..., None, :], (1, n))[..., 0, :], (
        case(x(1, 2, 5), 2), case(x(1, 4), 4)), "float", loose=8),
)  # fmt: skip


# --- Embedding and attention ----------------------------------------------------------------------------------------


def _attention(q: Array, k: Array, v: Array, allowed: Any = None, **options: Any) -> Array:
    scale = options.get("scale") or 1 / math.sqrt(q.shape[-1])
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if options.get("is_causal"):
        allowed = np.tril(np.ones(scores.shape[-2:], bool))
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf) if allowed.dtype == bool else scores + allowed
    return softmax(scores, -1) @ v


SAMPLES = samples(
    Sample("bilinear", _bilinear, (
        case(x(2, 3), x(2, 4), x(5, 3, 4), x(5)), case(x(3), x(2), x(2, 3, 2)),
        case(x(2, 2, 1), x(2, 2, 3), x(1, 1, 3)),
    ), "float", strict=False, loose=8),
    Sample("pixel_shuffle", _pixel_shuffle, (case(x(2, 8, 2, 3), 2), case(x(9, 1, 2), 3), case(x(0, 4, 1, 2), 2))),
    Sample("pixel_unshuffle", _pixel_unshuffle, (case(x(2, 2, 4, 6), 2), case(x(1, 3, 6), 3), case(x(0, 1, 2, 4), 2))),
    Sample("channel_shuffle", _channel_shuffle, (case(x(2, 6, 3), 3), case(x(1, 4, 2, 2), 2))),
    Sample("linear", _linear, (
        case(x(2, 3), x(2, 3)), case(x(2, 3), x(2, 3), x(2)), case(x(3), x(2, 3), x(2)),
        case(x(2, 2, 3), x(1, 3), x(1)), case(x(0, 3), x(2, 3), x(2))), "float", strict=False, loose=4),
    NORMALIZATION,
    WINDOWS,
    Sample("embedding", lambda i, w: w[i], (
        case(index([[0, 2], [2, 1]]), x(3, 2)), case(index(1), x(3, 2)), case(index(np.zeros(0, int)), x(3, 2))),
        "float", strict=False),
    Sample("embedding_sum", lambda i, w, padding=None: (w[i] * (i != padding)[..., None]).sum(-2), (
        case(index([[0, 2, 0], [2, 1, 1]]), x(3, 2)), case(index([1, 0, 2]), x(3, 2), 0),
        case(index(np.zeros((2, 0), int)), x(3, 2))), "float", strict=False, loose=4),
    Sample("scaled_dot_product_attention", _attention, (
        case(x(2, 3), x(2, 3), x(2, 2)),
        case(x(2, 2, 3), x(2, 3, 3), x(2, 3, 2), is_causal=True),
        case(x(2, 3), x(2, 3), x(2, 3), x(2, 2), scale=0.5),
        case(x(1, 2, 3), x(1, 2, 3), x(1, 2, 3), exactly([[True, False], [True, True]], bool_)),
    ), "float", loose=16),
    Sample("dropout", lambda v, p, training: v, (case(x(2, 3), 0.5, False), case(x(2, 3), 0.0, True)), "float"),
)  # fmt: skip
