"""conv2d and its gradients, tap by tap in NumPy."""

import numpy as np

import norch

BOUNDS = {"float64": 1e-11, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}


def draw(*shape, seed=0):
    """Numbers that every floating dtype holds exactly."""
    return np.random.default_rng(seed).integers(-8, 9, shape) / 4.0


def tensor(array, dtype="float64", **how):
    return norch.tensor(np.asarray(array, np.float64), dtype=getattr(norch, dtype), **how)


def close(got, expected, dtype="float64"):
    assert got.dtype is getattr(norch, dtype)
    assert tuple(got.shape) == expected.shape
    found = got.detach().double().numpy()
    np.testing.assert_allclose(found, expected, atol=BOUNDS[dtype] * max(1, np.abs(expected).max(initial=0)), rtol=0)


def taps(x, w, stride, pads, dilation, groups):
    """(padded x, for each tap: where in the kernel, which elements of padded x, by group)."""
    x = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation)]
    places = []
    for i, j in np.ndindex(*w.shape[2:]):
        ends = [at * d + (m - 1) * s + 1 for at, d, m, s in zip((i, j), dilation, counts, stride)]
        slices = [slice(at * d, end, s) for at, d, end, s in zip((i, j), dilation, ends, stride)]
        places.append(((i, j), (slice(None), slice(None), *slices)))
    return x, places, counts


def by_group(array, groups, dim):
    shape = array.shape
    return array.reshape(*shape[:dim], groups, shape[dim] // groups if groups else 0, *shape[dim + 1 :])


def flat(images):
    """With the pixels in one dim, the last."""
    return images.reshape(*images.shape[:3], images.shape[3] * images.shape[4])


def conv2d(x, w, b, stride, pads, dilation, groups):
    x, places, counts = taps(x, w, stride, pads, dilation, groups)
    out = np.zeros((x.shape[0], groups, w.shape[0] // groups, *counts))
    for (i, j), where in places:
        here = by_group(x[where], groups, 1)
        out += (by_group(w[:, :, i, j], groups, 0) @ flat(here)).reshape(out.shape)
    return out.reshape(x.shape[0], w.shape[0], *counts) + b[:, None, None]


def gradients(g, x, w, stride, pads, dilation, groups):
    """Of the input, the weight and the bias."""
    size = x.shape[2:]
    x, places, _ = taps(x, w, stride, pads, dilation, groups)
    dx, dw, parts = np.zeros_like(x), np.zeros_like(w), by_group(g, groups, 1)
    for (i, j), where in places:
        each = by_group(w[:, :, i, j], groups, 0).swapaxes(1, 2) @ flat(parts)
        dx[where] += each.reshape(dx[where].shape)
        weights = (flat(parts) @ flat(by_group(x[where], groups, 1)).swapaxes(2, 3)).sum(0)
        dw[:, :, i, j] = weights.reshape(dw.shape[:2])
    return dx[:, :, pads[0] : pads[0] + size[0], pads[2] : pads[2] + size[1]], dw, g.sum((0, 2, 3))
