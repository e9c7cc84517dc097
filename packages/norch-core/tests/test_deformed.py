"""Windows moved by offsets: the composite with gradients of its own, beside its parts."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck, gradgradcheck
from norch.ops.nn.deformed import _columns, _deform_columns

RNG = np.random.default_rng(0)


def operands(parts: int, has_mask: bool) -> list[norch.Tensor | None]:
    image = RNG.standard_normal((2, 4, 5, 6))
    offset = RNG.uniform(-3, 3, (2, 2 * parts * 6, 5, 3))
    mask = RNG.uniform(0, 2, (2, parts * 6, 5, 3)) if has_mask else None
    return [None if x is None else norch.tensor(x).requires_grad_() for x in (image, offset, mask)]


HOW = (3, 2), (1, 2), (1, 0), (1, 1)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_gradients_are_those_of_the_parts(parts: int, has_mask: bool) -> None:
    given = operands(parts, has_mask)
    leaves = [x for x in given if x is not None]
    grad = norch.tensor(RNG.standard_normal((2, 24, 15)))
    found = []
    for columns in (_deform_columns, _columns):
        out = columns(*given, *HOW)
        found.append((out.detach(), *norch.autograd.grad(out, leaves, grad)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.cpu().numpy(), other.cpu().numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("has_mask", [False, True])
def test_they_are_differentiable_twice(has_mask: bool) -> None:
    given = [x for x in operands(1, has_mask) if x is not None]

    def columns(*operands: norch.Tensor) -> norch.Tensor:
        image, offset, *mask = operands
        return _deform_columns(image, offset, mask[0] if mask else None, *HOW)

    for check in (gradcheck, gradgradcheck):
        assert check(columns, tuple(given), fast_mode=True)


def test_only_what_is_asked_for() -> None:
    image, offset, mask = operands(1, True)
    assert norch.autograd.grad(_deform_columns(image, offset.detach(), mask.detach(), *HOW).sum(), image)[0].any()
    assert norch.autograd.grad(_deform_columns(image.detach(), offset, mask.detach(), *HOW).sum(), offset)[0].any()
