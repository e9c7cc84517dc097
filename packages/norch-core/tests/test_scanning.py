"""Scans by associative functions, beside loops: _higher_order_ops.associative_scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch
from norch._higher_order_ops.associative_scan import associative_scan  # type: ignore[import-not-found]
from norch.testing.gradcheck import gradcheck


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def recurrence(left: Any, right: Any) -> Any:
    """h = a * h + b, as state-space models have it."""
    return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_sums_are_cumsum(size: int, mode: str) -> None:
    x = norch.tensor(numbers(2, size, 3))
    for dim, at in ((1, x), (-2, x), (0, x.movedim(1, 0)), (-1, x.mT)):
        found = associative_scan(lambda a, b: a + b, at, dim, combine_mode=mode)
        assert norch.allclose(found, at.cumsum(dim))
        backwards = associative_scan(lambda a, b: a + b, at, dim, reverse=True, combine_mode=mode)
        assert norch.allclose(backwards, at.flip(dim).cumsum(dim).flip(dim))


@pytest.mark.parametrize("reverse", [False, True])
def test_trees_and_gradients(reverse: bool) -> None:
    a, b = numbers(2, 6, 3), numbers(2, 6, 3, seed=1)
    state, expected = np.zeros((2, 3)), np.zeros((2, 6, 3))
    for t in reversed(range(6)) if reverse else range(6):
        state = expected[:, t] = a[:, t] * state + b[:, t]
    tensors = [norch.tensor(x, requires_grad=True) for x in (a, b)]
    for mode in ("pointwise", "generic"):

        def scan(a: Any, b: Any, mode: str = mode) -> Any:
            return associative_scan(recurrence, {"a": a, "b": b}, 1, reverse=reverse, combine_mode=mode)["b"]

        np.testing.assert_allclose(scan(*tensors).detach().numpy(), expected, rtol=1e-12)
        gradcheck(scan, tensors)


def test_a_generic_function_sees_one_part() -> None:
    x = norch.tensor(numbers(5, 2, 2))
    found = associative_scan(lambda a, b: a @ b, x, 0, combine_mode="generic")
    expected = x[0]
    for i in range(5):
        expected = expected @ x[i] if i else expected
        assert norch.allclose(found[i], expected)


def test_what_does_not_fit() -> None:
    x = norch.ones(3, 2)
    with pytest.raises(ValueError, match="combine_mode"):
        associative_scan(lambda a, b: a, x, 0, combine_mode="other")
    with pytest.raises(ValueError, match="at least one"):
        associative_scan(lambda a, b: a, [], 0)
    with pytest.raises(TypeError, match="tensors"):
        associative_scan(lambda a, b: a, [1], 0)
    with pytest.raises(norch.ShapeError, match="along dim 0"):
        associative_scan(lambda a, b: a, [x, x[:2]], 0)
    with pytest.raises(ValueError, match="structure"):
        associative_scan(lambda a, b: (a, b), x, 0)
    with pytest.raises(IndexError):
        associative_scan(lambda a, b: a, x, 2)


def test_it_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.associative_scan import associative_scan as theirs  # type: ignore[import-not-found]

    arrays = {"a": numbers(2, 7, 3), "b": numbers(2, 7, 3, seed=1)}
    for reverse in (False, True):
        expected = theirs(
            recurrence, {k: torch.tensor(x) for k, x in arrays.items()}, 1, reverse=reverse, combine_mode="generic"
        )
        found = associative_scan(recurrence, {k: norch.tensor(x) for k, x in arrays.items()}, 1, reverse=reverse)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key].numpy(), value.numpy(), rtol=1e-12)
