"""Losses and their gradients, against float64 NumPy, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from rows_harness import FLOATS, LAYOUTS, assert_close, draw, exact, gradient, tensor

import norch

INTEGERS = [norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8]
REDUCTIONS = ["mean", "sum", "none"]


def log_softmax(v):
    shifted = v - v.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def reduced(losses, counted, reduction):
    if reduction == "none":
        return losses
    return losses.sum() / counted.sum() if reduction == "mean" else losses.sum()


def oracle(logs, classes, reduction, ignored=-100):
    """The loss, and what it changes with each element of logs."""
    counted = classes != ignored
    losses, slopes = np.zeros(len(classes)), np.zeros(logs.shape)
    for i, c in enumerate(classes):
        if counted[i]:
            losses[i] = -logs[i, c]
            slopes[i, c] = -1 / (counted.sum() if reduction == "mean" else 1)
    return reduced(losses, counted, reduction), slopes


def check(name, x, target, reduction, ignored=-100, dtype=norch.float32):
    v, classes = exact(x), target.numpy().astype(np.int64)
    logs = log_softmax(v) if name == "cross_entropy" else v
    expected, slopes = oracle(logs, classes, reduction, ignored)
    if name == "cross_entropy":
        slopes = slopes - np.exp(logs) * slopes.sum(1, keepdims=True)

    def function(t):
        return getattr(norch, name)(t, target, ignore_index=ignored, reduction=reduction)

    assert_close(function(x), expected, dtype, 16)
    g = draw(*np.shape(expected), low=0.5, high=1.5, seed=4)
    given = norch.tensor(g, dtype=dtype)
    wide = exact(given)[:, None] if reduction == "none" else exact(given)
    assert_close(gradient(function, x, given), wide * slopes, dtype, 8)


both = pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])


@both
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (64, 10), (33, 65), (5, 300), (700, 129)])
def test_shapes(name, reduction, shape):
    target = np.random.default_rng(1).integers(0, shape[1], shape[0])
    check(name, tensor(draw(*shape)), norch.tensor(target), reduction)
    target[::3] = -100
    if shape[0] > 1:
        check(name, tensor(draw(*shape)), norch.tensor(target), reduction)


@both
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_layouts_and_dtypes(name, reduction):
    target = np.random.default_rng(1).integers(0, 9, 12)
    for layout in LAYOUTS:
        for dtype in FLOATS:
            check(name, tensor(draw(12, 9), dtype, layout), norch.tensor(target), reduction, dtype=dtype)
    for dtype in INTEGERS:
        check(name, tensor(draw(12, 9)), norch.tensor(target, dtype=dtype), reduction, ignored=3)
    spread = norch.tensor(np.repeat(target, 2))[::2]
    check(name, tensor(draw(12, 9)), spread, reduction)
    check(name, tensor(draw(12, 9)), norch.tensor(4).expand(12), reduction)


@both
def test_expanded_gradient_of_each_loss(name):
    x = tensor(draw(6, 5)).requires_grad_()
    target = norch.tensor([0, 1, 2, 3, 4, 0])
    getattr(norch, name)(x, target, reduction="none").sum().backward()
    (found,) = norch.autograd.grad(getattr(norch, name)(x, target, reduction="sum"), x)
    np.testing.assert_allclose(x.grad.numpy(), found.numpy(), 1e-6, 1e-6)


@both
def test_a_single_row(name):
    v = draw(5)
    function = getattr(norch, name)
    x = tensor(v).requires_grad_()
    loss = function(x, norch.tensor(3))
    logs = log_softmax(exact(x)[None])[0] if name == "cross_entropy" else exact(x)
    assert loss.item() == pytest.approx(-logs[3], rel=1e-5)
    loss.backward()
    picked = np.eye(5)[3]
    assert_close(x.grad, np.exp(logs) - picked if name == "cross_entropy" else -picked)


@both
def test_all_ignored_and_none_at_all(name):
    function = getattr(norch, name)
    x = norch.zeros(3, 4, requires_grad=True)
    loss = function(x, norch.tensor([1, 1, 1]), ignore_index=1)
    assert np.isnan(loss.item())
    loss.backward()
    assert x.grad.tolist() == [[0] * 4] * 3
    assert np.isnan(function(norch.zeros(0, 4), norch.zeros(0, dtype=norch.int64)).item())
    assert function(norch.zeros(0, 4), norch.zeros(0, dtype=norch.int64), reduction="sum").item() == 0


@both
@pytest.mark.parametrize("wrong", [4, -1, 2**40])
def test_targets_out_of_range(name, wrong):
    with pytest.raises(norch.IndexError, match=rf"{name}\(\).*\[0, 4\)"):
        getattr(norch, name)(norch.zeros(3, 4), norch.tensor([0, wrong, 1]))


def test_large_logits():
    x = norch.tensor([[1000.0, 0.0], [-1000.0, 0.0]], requires_grad=True)
    loss = norch.cross_entropy(x, norch.tensor([1, 1]), reduction="none")
    assert loss.tolist() == [1000, 0]
    loss.sum().backward()
    assert x.grad.tolist() == [[1, -1], [0, 0]]


def test_second_derivative():
    from norch.testing.gradcheck import gradgradcheck

    target = norch.tensor([2, 0, 1])
    x = norch.tensor(draw(3, 4), dtype=norch.float64, requires_grad=True)
    assert gradgradcheck(lambda t: norch.cross_entropy(t, target), [x], fast_mode=True)


# --- mse_loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (64, 10), (41, 300)])
def test_mse(reduction, shape):
    for dtype in FLOATS:
        a, b = [tensor(draw(*shape, low=-1, high=1, seed=i), dtype) for i in (0, 1)]
        difference = exact(a) - exact(b)
        assert_close(norch.mse_loss(a, b, reduction=reduction),
                     reduced(difference**2, np.ones(shape), reduction), dtype, 4)  # fmt: skip
        a.requires_grad_()
        b.requires_grad_()
        loss = norch.mse_loss(a, b, reduction=reduction)
        seed = norch.full_like(loss, 1.5)
        for_a, for_b = norch.autograd.grad(loss, (a, b), seed)
        expected = 3 * difference / (difference.size if reduction == "mean" else 1)
        assert_close(for_a, expected, dtype, 4)
        assert_close(for_b, -expected, dtype, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mse_of_layouts(layout):
    a, b = tensor(draw(6, 8), layout=layout), tensor(draw(6, 8, seed=1))
    for p, q in ((a, b), (b, a), (a, a + 1)):
        difference = exact(p) - exact(q)
        assert_close(norch.mse_loss(p, q), (difference**2).mean())
        assert_close(gradient(lambda t, q=q: norch.mse_loss(t, q), p, norch.tensor(1.0)), difference / 24)


def test_mse_does_not_depend_on_the_threads():
    a, b = tensor(draw(500, 400)), tensor(draw(500, 400, seed=1))
    before, results = norch.get_num_threads(), []
    try:
        for threads in (1, 3):
            norch.set_num_threads(threads)
            results.append(norch.mse_loss(a, b).item())
    finally:
        norch.set_num_threads(before)
    assert results[0] == results[1] == pytest.approx(((exact(a) - exact(b)) ** 2).mean(), rel=1e-6)


def test_mse_edges():
    assert np.isnan(norch.mse_loss(norch.zeros(0), norch.zeros(0)).item())
    assert np.isnan(norch.mse_loss(norch.tensor([1.0, float("nan")]), norch.zeros(2)).item())
    assert norch.mse_loss(norch.zeros(2, dtype=norch.float64), norch.ones(2)).dtype is norch.float64
    with pytest.raises(ValueError, match="average"):
        norch.mse_loss(norch.zeros(2), norch.zeros(2), reduction="average")


# --- huber_loss and smooth_l1_loss ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("limit", [0.3, 1.0, 100.0])
def test_clipped_losses(limit, reduction, layout):
    for dtype in FLOATS:
        for shape in ((1, 1), (5, 7), (41, 300)):
            a = tensor(draw(*shape, low=-1, high=1), dtype, layout=layout)
            b = tensor(draw(*shape, low=-1, high=1, seed=1), dtype)
            size = abs(exact(a) - exact(b))
            huber = np.where(size < limit, size**2 / 2, limit * (size - limit / 2))
            weights = np.ones(shape)
            assert_close(norch.huber_loss(a, b, reduction, limit), reduced(huber, weights, reduction), dtype, 16)
            smooth = reduced(huber / limit, weights, reduction)
            assert_close(norch.smooth_l1_loss(a, b, reduction, limit), smooth, dtype, 16)


@pytest.mark.parametrize("loss", [norch.huber_loss, norch.smooth_l1_loss])
def test_clipped_losses_at_edges(loss):
    zero = norch.zeros(3)
    assert np.isnan(loss(zero[:0], zero[:0]).item())
    assert np.isnan(loss(norch.tensor([1.0, float("nan"), 0.0]), zero, "sum").item())
    assert loss(norch.tensor([1.0, -float("inf"), 0.0]), zero, "sum").item() == float("inf")
    assert loss(norch.tensor([3e38, -4.0, 0.0]), zero, "sum").item() == pytest.approx(3e38)
