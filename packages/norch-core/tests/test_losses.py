"""Losses, against math and loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from composite_harness import assert_close, check, const, draw, layouts, leaf, pair_for, sigmoid, softmax_rows, softplus

import norch


def kl(x, t):
    return (t * math.log(t) if t else 0.0) - t * x


PAIRED = {
    "mse_loss": (norch.mse_loss, {}),
    "l1_loss": (norch.l1_loss, {}),
    "huber_loss": (norch.huber_loss, {"delta": 0.6}),
    "smooth_l1_loss": (norch.smooth_l1_loss, {"beta": 0.6}),
    "smooth_l1_loss_0": (norch.smooth_l1_loss, {"beta": 0}),
    "binary_cross_entropy": (norch.binary_cross_entropy, {}),
    "binary_cross_entropy_with_logits": (norch.binary_cross_entropy_with_logits, {}),
    "kl_div": (norch.kl_div, {}),
    "kl_div_log": (norch.kl_div, {"log_target": True}),
}
each_pair = pytest.mark.parametrize("name", PAIRED)

FORMULAS = {
    "smooth_l1_loss_0": lambda x, t: abs(x - t),
    "binary_cross_entropy": lambda x, t: -t * math.log(x) - (1 - t) * math.log(1 - x),
    "binary_cross_entropy_with_logits": lambda x, t: (
        t * softplus(-x, threshold=700) + (1 - t) * softplus(x, threshold=700)
    ),
    "kl_div": kl,
    "kl_div_log": lambda x, t: math.exp(t) * (t - x),
}
"""Of losses whose sample records try fewer reductions than there are; the others' values are checked there alone."""


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_paired_loss(name, reduction):
    function, args = PAIRED[name]
    a, b = pair_for(2, 3)
    losses = np.vectorize(FORMULAS[name])(a, b)
    expected = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[reduction]
    assert_close(function(const(a), const(b), reduction=reduction, **args), expected)
    for x, t in zip(layouts(a), reversed(list(layouts(b)))):
        assert_close(function(x, t, reduction=reduction, **args), expected)
    check(lambda x, t: function(x, t, reduction=reduction, **args), a, b)


@each_pair
def test_paired_loss_refuses_what_would_broadcast(name):
    function, args = PAIRED[name]
    a, b = pair_for(3)
    x, column = const(a), const(b[:, None])
    with pytest.raises(norch.ShapeError, match=r"\(3,\).*\(3, 1\).*strict=False"):
        function(x, column, **args)
    for reduction in ("none", "mean", "sum"):
        expected = function(x.expand(3, 3).clone(), column.expand(3, 3).clone(), reduction=reduction, **args)
        assert_close(function(x, column, strict=False, reduction=reduction, **args), expected.numpy())
    check(lambda x, t: function(x, t.unsqueeze(1), strict=False, **args), a, b)
    with pytest.raises(norch.ShapeError):
        function(x, const(draw(2)), strict=False, **args)
    with pytest.raises(ValueError, match="average"):
        function(x, const(b), reduction="average", **args)
    if name.startswith(("binary", "kl")):
        with pytest.raises(norch.DTypeError):
            function(x, norch.tensor([0, 1, 0]), **args)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"])
def test_losses_of_differences_take_integers_beside_floats(name):
    function, a = getattr(norch, name), draw(3)
    for dtype in (norch.int64, norch.uint8, norch.bool):
        whole = norch.tensor([0, 1, 1]).to(dtype)
        x = norch.tensor(a, requires_grad=True)
        function(x, whole).backward()
        other = norch.tensor(a, requires_grad=True)
        function(other, whole.to(other.dtype)).backward()
        assert_close(x.grad, other.grad.numpy())
        assert function(whole, x).dtype is x.dtype
    assert norch.l1_loss(norch.tensor([1, 5]), norch.tensor([3, 2]), reduction="sum").item() == 5
    assert norch.l1_loss(norch.tensor([1, 5]), norch.tensor([3, 2]), reduction="none").tolist() == [2, 3]
    with pytest.raises(norch.DTypeError, match="mean|floating"):
        function(norch.tensor([1, 5]), norch.tensor([3, 2]))


@each_pair
def test_paired_loss_of_nothing_is_nan_or_0(name):
    function, args = PAIRED[name]
    x = norch.zeros(0, 2, requires_grad=True)
    assert math.isnan(function(x, norch.zeros(0, 2), **args).item())
    assert function(x, norch.zeros(0, 2), reduction="sum", **args).item() == 0


def test_mean_of_float16_losses_does_not_overflow():
    x = norch.full((1000,), 100.0, dtype=norch.float16, requires_grad=True)
    loss = norch.mse_loss(x, norch.zeros(1000, dtype=norch.float16))
    assert loss.dtype is norch.float16
    assert abs(loss.item() - 10000) < 10
    loss.backward()
    assert abs(x.grad[0].item() - 0.2) < 1e-3


def test_losses_with_extreme_input():
    chances = norch.tensor([0.0, 1.0], requires_grad=True)
    loss = norch.binary_cross_entropy(chances, norch.tensor([1.0, 0.0]), reduction="none")
    assert loss.tolist() == [100, 100]
    loss.sum().backward()
    assert bool(norch.isfinite(chances.grad).all())
    logits = norch.tensor([-1000.0, 1000.0], requires_grad=True)
    loss = norch.binary_cross_entropy_with_logits(logits, norch.tensor([1.0, 0.0]), reduction="none")
    assert loss.tolist() == [1000, 1000]
    loss.sum().backward()
    assert logits.grad.tolist() == [-1, 1]
    assert norch.kl_div(norch.tensor([-1.0]), norch.tensor([0.0])).item() == 0


def test_weights_of_binary_losses():
    x, t = draw(2, 3), draw(2, 3, low=0.1, high=0.9)
    w, positive = draw(3, low=0.1, high=0.9), draw(3, low=1.1, high=1.9)
    expected = np.zeros((2, 3))
    for i, j in np.ndindex(2, 3):
        s = sigmoid(x[i, j])
        expected[i, j] = -w[j] * (positive[j] * t[i, j] * math.log(s) + (1 - t[i, j]) * math.log(1 - s))

    def with_logits(x, t, w, positive):
        return norch.binary_cross_entropy_with_logits(x, t, w, pos_weight=positive)

    assert_close(with_logits(*map(const, (x, t, w, positive))), expected.mean())
    check(with_logits, x, t, w, positive)
    s = 1 / (1 + np.exp(-x))
    got = norch.binary_cross_entropy(const(s), const(t), const(w), reduction="sum")
    assert_close(got, (w * -(t * np.log(s) + (1 - t) * np.log(1 - s))).sum())
    with pytest.raises(norch.ShapeError, match="weight"):
        norch.binary_cross_entropy(const(s), const(t), norch.ones(4, 2, 3))
    with pytest.raises(norch.ShapeError, match="pos_weight"):
        with_logits(const(x), const(t), None, norch.ones(4, 2, 3))


def test_kl_div_batchmean():
    x, t = draw(2, 3), draw(2, 3, low=0.1, high=0.9)
    assert_close(norch.kl_div(const(x), const(t), reduction="batchmean"), (t * (np.log(t) - x)).sum() / 2)


# --- By class ----------------------------------------------------------------------------------------------------


def cross_entropy_loops(x, target, weight, ignore, reduction, smoothing):
    """(n, classes, d) input."""
    n, classes, d = x.shape
    weight = np.ones(classes) if weight is None else weight
    losses, total = np.zeros((n, d)), 0.0
    for i in range(n):
        for k in range(d):
            row = x[i, :, k]
            logs = row - max(row) - math.log(sum(math.exp(v - max(row)) for v in row))
            if target.dtype.kind == "f":
                goal = target[i, :, k] * (1 - smoothing) + smoothing / classes
                losses[i, k], total = -(logs * goal * weight).sum(), n * d
                continue
            t = target[i, k]
            if t != ignore:
                spread = -(logs * weight).sum() * smoothing / classes
                losses[i, k] = -logs[t] * weight[t] * (1 - smoothing) + spread
                total += weight[t]
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / total}[reduction]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("kind", ["plain", "weight", "smooth", "both", "chances", "weighted chances"])
def test_cross_entropy(kind, reduction):
    x = draw(3, 4, 2)
    target = np.array([[0, 3], [1, 1], [2, 0]])
    if "chances" in kind:
        target = softmax_rows(draw(3, 4, 2), 1)
    weight = np.array([0.5, 1.5, 0.25, 2.0]) if kind in ("weight", "both", "weighted chances") else None
    smoothing = 0.3 if kind in ("smooth", "both", "weighted chances") else 0.0
    expected = cross_entropy_loops(x, target, weight, 1, reduction, smoothing)

    def loss(x):
        return norch.cross_entropy(
            x,
            const(target),
            None if weight is None else const(weight),
            ignore_index=1 if target.dtype.kind == "i" else -100,
            reduction=reduction,
            label_smoothing=smoothing,
        )

    for v in layouts(x):
        assert_close(loss(v), expected)
    check(loss, x)
    check(lambda x: loss(x.transpose(0, 2)), x.transpose(2, 1, 0), second=False)


def test_cross_entropy_of_one_sample_and_of_batches():
    x = draw(4)
    assert_close(norch.cross_entropy(const(x), norch.tensor(2)), -np.log(softmax_rows(x, 0)[2]))
    assert_close(norch.cross_entropy(const(x[None]), norch.tensor([2])), -np.log(softmax_rows(x, 0)[2]))
    check(lambda v: norch.cross_entropy(v, norch.tensor(2)), x)
    assert math.isnan(norch.cross_entropy(const(x[None]), norch.tensor([-100])).item())


def test_ignore_index_is_for_class_indices():
    x = norch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"cross_entropy\(\): ignore_index=0"):
        norch.cross_entropy(x, x.softmax(1), ignore_index=0)


def test_cross_entropy_saves_the_log_softmax_and_not_its_input():
    x = leaf(draw(3, 4))
    loss = norch.cross_entropy(x, norch.tensor([0, 1, 2]))
    node = loss.grad_fn.edges[0]
    assert node.plan.op.name == "cross_entropy"
    assert node.saved_inputs[0] is None
    assert node.saved_outputs is not None


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_may_be_changed_in_place_before_the_backward_pass(reduction):
    x, target = leaf(draw(3, 4)), norch.tensor([0, 1, 2])
    loss = norch.cross_entropy(x, target, reduction=reduction)
    loss += 1
    loss *= 2
    loss.sum().backward()
    expected = x.detach().softmax(1) - norch.one_hot(target, 4)
    assert_close(x.grad, (expected * (2 / 3 if reduction == "mean" else 2)).numpy())


def test_nll_loss():
    logs, weight = draw(3, 4), np.array([0.5, 1.5, 0.25, 2.0])
    target = np.array([3, -100, 1])
    got = norch.nll_loss(const(logs), const(target), const(weight))
    assert_close(got, -(logs[0, 3] * 2 + logs[2, 1] * 1.5) / 3.5)
    got = norch.nll_loss(const(logs), const(target), reduction="none")
    assert_close(got, [-logs[0, 3], 0, -logs[2, 1]])
    for reduction in ("none", "mean", "sum"):
        check(lambda x, r=reduction: norch.nll_loss(x, const(target), const(weight), reduction=r), logs)
    with pytest.raises(ValueError, match="average"):
        norch.nll_loss(const(logs), const(target), reduction="average")


@pytest.mark.parametrize("function", [norch.nll_loss, norch.cross_entropy])
@pytest.mark.parametrize("weight", [None, [1.0, 1.0, 1.0, 1.0]])
def test_losses_by_class_refuse(function, weight):
    x, weight = norch.zeros(3, 4), None if weight is None else norch.tensor(weight)
    for wrong in (4, -1, -5):
        with pytest.raises(norch.IndexError, match=rf"{function.__name__}\(\).*\[0, 4\)"):
            function(x, norch.tensor([0, 1, wrong]), weight)
    for shape in ((3, 1), (4,), ()):
        with pytest.raises(norch.ShapeError, match=function.__name__):
            function(x, norch.zeros(shape, dtype=norch.int64), weight)
    with pytest.raises(norch.DTypeError):
        function(x, norch.tensor([True, False, True]), weight)
    with pytest.raises(norch.ShapeError, match="weight"):
        function(x, norch.tensor([0, 1, 2]), norch.ones(3))


@pytest.mark.parametrize("dtype", [norch.uint8, norch.int8, norch.int32])
def test_targets_of_dtypes_that_ignore_index_does_not_fit(dtype):
    x = norch.randn(5, 4)
    target = norch.tensor([0, 1, 3, 2, 1], dtype=dtype)
    weight = norch.tensor([1.0, 2.0, 3.0, 4.0])  # weighted losses are decomposed on any backend
    want = norch.cross_entropy(x, target.long(), weight, ignore_index=1000)
    assert norch.cross_entropy(x, target, weight, ignore_index=1000).item() == want.item()


@pytest.mark.parametrize("given", [norch.float32, norch.float64])
@pytest.mark.parametrize("wanted", [norch.float32, norch.float64])
def test_the_loss_of_logits_has_the_dtype_of_the_target(given, wanted):
    x = norch.tensor([0.5, -2.0], dtype=given, requires_grad=True)
    y = norch.tensor([1.0, 0.0], dtype=wanted)
    weight = norch.ones(2, dtype=norch.float64)
    loss = norch.binary_cross_entropy_with_logits(x, y, weight)
    loss.backward()
    assert (loss.dtype, x.grad.dtype) == (wanted, given)
    assert loss.item() == pytest.approx(np.log1p(np.exp([-0.5, -2.0])).mean(), rel=1e-6)
