"""Where the largest elements of windows are, of which some lie in the padding."""

from __future__ import annotations

import numpy as np
import pytest

import norch

WINDOWS = [  # kernel_size, stride, padding, dilation
    ((3, 1), (2, 1), (1, 0), (2, 1)),
    ((2, 3), 1, (1, 1), (1, 2)),
    (3, 2, 1, 1),
    ((1, 4), (1, 2), (0, 2), (1, 3)),
]


def largest(plane: np.ndarray, kernel: tuple[int, int], step, pad, gap) -> list[list[int]]:
    """Plainly, window by window: the first of the largest elements."""
    h, w = plane.shape
    counts = [
        (n + 2 * p - g * (k - 1) - 1) // s + 1 for n, k, s, p, g in zip((h, w), kernel, step, pad, gap, strict=True)
    ]
    found = []
    for i in range(counts[0]):
        rows = range(i * step[0] - pad[0], h + kernel[0] * gap[0], gap[0])[: kernel[0]]
        found.append([])
        for j in range(counts[1]):
            columns = range(j * step[1] - pad[1], w + kernel[1] * gap[1], gap[1])[: kernel[1]]
            places = [(y, x) for y in rows for x in columns if 0 <= y < h and 0 <= x < w]
            best = max(places, key=lambda at: plane[at])  # the first of equal ones
            found[-1].append(best[0] * w + best[1])
    return found


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", ["uint8", "-inf"])
def test_elements_as_small_as_padding(kind: str, windows) -> None:
    plane = np.where(np.random.default_rng(1).random((9, 11)) < 0.2, 3.0, 0.0)
    plane = plane.astype(np.uint8) if kind == "uint8" else np.where(plane > 0, plane, -np.inf).astype(np.float32)
    pair = [(v, v) if isinstance(v, int) else v for v in windows]
    x = norch.tensor(plane[None, None])
    with norch.no_grad():
        values, indices = norch.max_pool2d(x, *windows, return_indices=True)
    assert indices[0, 0].tolist() == largest(plane, *pair)
    assert values[0, 0].tolist() == plane.reshape(-1)[indices[0, 0].numpy()].tolist()
    if kind == "-inf":
        x.requires_grad_()
        (grad,) = norch.autograd.grad(norch.max_pool2d(x, *windows).nan_to_num(0).sum(), x)
        assert grad.sum().item() == (values > 0).sum().item()


def test_values_and_indices_are_a_plain_tuple() -> None:
    x = norch.rand(1, 2, 4, 4)
    assert type(norch.max_pool2d(x, 2, return_indices=True)) is tuple
    assert type(norch.max_pool2d(x, 4, return_indices=True)) is tuple
    assert type(norch.max_pool3d(x, 2, return_indices=True)) is tuple
