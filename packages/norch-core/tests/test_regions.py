"""Means over regions of images: the composite with a gradient of its own, beside its parts."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck, gradgradcheck
from norch.ops.nn.regions import _means, _roi_align


def regions(count: int, images: int) -> norch.Tensor:
    rng = np.random.default_rng(1)
    corners = rng.uniform(-2, 9, (count, 2))
    numbers = rng.integers(0, images, (count, 1))
    return norch.tensor(np.concatenate([numbers, corners, corners + rng.uniform(-1, 6, (count, 2))], 1))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize(("images", "count"), [(1, 5), (3, 8), (2, 0)])
def test_the_gradient_is_that_of_the_parts(images: int, count: int, ratio: int, aligned: bool) -> None:
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((images, 2, 6, 7)), norch.tensor(rng.standard_normal((count, 2, 2, 3)))
    found = []
    for means in (_roi_align, _means):
        given = norch.tensor(x).requires_grad_()
        out = means(given, regions(count, images), (2, 3), 0.5, ratio, aligned)
        found.append((out.detach(), *norch.autograd.grad(out, given, g)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.cpu().numpy(), other.cpu().numpy(), rtol=1e-12, atol=1e-12)


def test_it_is_differentiable_twice() -> None:
    x, boxes = norch.tensor(np.random.default_rng(0).standard_normal((2, 2, 4, 5))).requires_grad_(), regions(3, 2)
    for check in (gradcheck, gradgradcheck):
        assert check(lambda x: _roi_align(x, boxes, (2, 2), 1.0, 2, True) ** 2, (x,))
