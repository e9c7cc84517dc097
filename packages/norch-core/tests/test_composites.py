"""Composites: values against plain NumPy and math, gradients against numerical differences, and each derivative rule
against autodiff of its decomposition."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch
from norch import ops
from norch.ops.families import by_name
from norch.testing.gradcheck import gradcheck, gradgradcheck

RNG = np.random.default_rng(7)


def draw(*shape, low=-2.0, high=2.0):
    """Numbers in a range, none within 0.05 of a kink of any op here (0, ±1, ±2, ±3)."""
    values = RNG.uniform(low, high, shape)
    near = np.abs(values - np.round(values)) < 0.05
    return np.where(near, values + 0.11, values)


def leaf(array):
    return norch.tensor(np.asarray(array, dtype=np.float64), dtype=norch.float64, requires_grad=True)


def const(array):
    array = np.asarray(array)
    return norch.tensor(array, dtype=norch.float64 if array.dtype.kind == "f" else None)


def assert_close(got, expected, bound=1e-10):
    expected = np.asarray(expected)
    assert tuple(got.shape) == expected.shape
    np.testing.assert_allclose(got.detach().double().numpy(), expected, bound, bound)


def check(function, *arrays, second=True):
    """First and second derivatives of `function` of float64 leaves."""
    assert gradcheck(function, [leaf(a) for a in arrays])
    if second:
        assert gradgradcheck(function, [leaf(a) for a in arrays])


def layouts(array):
    """The same values in memory that is contiguous, transposed, offset, and stepped over."""
    plain = const(array)
    yield plain
    if array.ndim > 1:
        yield const(np.ascontiguousarray(array.swapaxes(0, -1))).transpose(0, -1)
    yield norch.cat([plain[:1], plain])[1:]
    yield norch.stack([plain, plain + 9], -1)[..., 0]


# --- Activations ----------------------------------------------------------------------------------------------------


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v > -700 else 0.0


def softplus(v, beta=1.0, threshold=20.0):
    return v if v * beta > threshold else math.log1p(math.exp(v * beta)) / beta


def phi(v):
    return 0.5 * (1 + math.erf(v / math.sqrt(2)))


def tanh_gelu(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805

ACTIVATIONS = {
    "relu": (norch.relu, {}, lambda v: max(v, 0.0)),
    "leaky_relu": (norch.leaky_relu, {}, lambda v: v if v > 0 else 0.01 * v),
    "leaky_relu_slope": (norch.leaky_relu, {"negative_slope": -0.3}, lambda v: v if v > 0 else -0.3 * v),
    "elu": (norch.elu, {"alpha": 0.7}, lambda v: v if v > 0 else 0.7 * math.expm1(v)),
    "selu": (norch.selu, {}, lambda v: SELU_SCALE * (v if v > 0 else SELU_ALPHA * math.expm1(v))),
    "celu": (norch.celu, {"alpha": 1.7}, lambda v: v if v > 0 else 1.7 * math.expm1(v / 1.7)),
    "relu6": (norch.relu6, {}, lambda v: min(max(v, 0.0), 6.0)),
    "hardtanh": (norch.hardtanh, {"min_val": -1.5, "max_val": 0.5}, lambda v: min(max(v, -1.5), 0.5)),
    "hardsigmoid": (norch.hardsigmoid, {}, lambda v: min(max(v + 3, 0.0), 6.0) / 6),
    "hardswish": (norch.hardswish, {}, lambda v: v * min(max(v + 3, 0.0), 6.0) / 6),
    "gelu": (norch.gelu, {}, lambda v: v * phi(v)),
    "gelu_tanh": (norch.gelu, {"approximate": "tanh"}, tanh_gelu),
    "silu": (norch.silu, {}, lambda v: v * sigmoid(v)),
    "mish": (norch.mish, {}, lambda v: v * math.tanh(softplus(v))),
    "softplus": (norch.softplus, {}, softplus),
    "softplus_beta": (norch.softplus, {"beta": 2.0, "threshold": 3.1}, lambda v: softplus(v, 2.0, 3.1)),
    "softsign": (norch.softsign, {}, lambda v: v / (1 + abs(v))),
    "logsigmoid": (norch.logsigmoid, {}, lambda v: -softplus(-v, threshold=700)),
}
each_activation = pytest.mark.parametrize("name", ACTIVATIONS)


@each_activation
def test_activation_values_in_every_layout(name):
    function, args, oracle = ACTIVATIONS[name]
    values = np.concatenate([draw(2, 3, 4, low=-4, high=8), np.full((2, 3, 1), 30.0), np.full((2, 3, 1), -30.0)], -1)
    expected = np.vectorize(oracle)(values)
    for x in layouts(values):
        assert_close(function(x, **args), expected)
    assert_close(function(const(1.25), **args), oracle(1.25))
    assert tuple(function(norch.zeros(0, 3), **args).shape) == (0, 3)


@each_activation
def test_activation_gradients(name):
    function, args, _ = ACTIVATIONS[name]
    values = draw(3, 4, low=-4, high=4)
    check(lambda x: function(x, **args), values)
    check(lambda x: function(x.transpose(0, 1)[1:, ::2], **args), values, second=False)


@each_activation
@pytest.mark.parametrize(("dtype", "bound"), [(norch.float16, 4e-3), (norch.bfloat16, 4e-2), (norch.float32, 1e-5)])
def test_activation_keeps_its_dtype(name, dtype, bound):
    function, args, oracle = ACTIVATIONS[name]
    x = const(draw(20, low=-4, high=4)).to(dtype).requires_grad_()
    out = function(x, **args)
    assert out.dtype is dtype
    assert_close(out, np.vectorize(oracle)(x.detach().double().numpy()), bound)
    out.sum().backward()
    assert x.grad.dtype is dtype


@each_activation
def test_activation_far_from_zero_has_finite_gradients(name):
    function, args, _ = ACTIVATIONS[name]
    x = norch.tensor([-800.0, -90.0, 90.0, 800.0], requires_grad=True)
    function(x, **args).sum().backward()
    assert bool(norch.isfinite(x.grad).all())


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"relu"}))
def test_floating_activations_refuse_integers(name):
    function, args, _ = ACTIVATIONS[name]
    with pytest.raises(norch.DTypeError):
        function(norch.tensor([1, 2]), **args)


def test_relu_takes_integers_but_not_bools():
    assert norch.relu(norch.tensor([-1, 2])).tolist() == [0, 2]
    with pytest.raises(norch.DTypeError, match=r"relu\(\)"):
        norch.relu(norch.tensor([True]))


def test_glu():
    a = draw(3, 4)
    expected = a[:, :2] * np.vectorize(sigmoid)(a[:, 2:])
    assert_close(norch.glu(const(a)), expected)
    assert_close(norch.glu(const(a.T), 0), expected.T)
    check(norch.glu, a)
    with pytest.raises(norch.ShapeError, match=r"glu\(\).*\(3, 3\)"):
        norch.glu(norch.zeros(3, 3))


def softmax_rows(a, axis):
    out = np.empty_like(a)
    moved, view = np.moveaxis(a, axis, -1), np.moveaxis(out, axis, -1)
    for at in np.ndindex(moved.shape[:-1]):
        row = [math.exp(v - max(moved[at])) for v in moved[at]]
        view[at] = np.array(row) / sum(row)
    return out


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    a = draw(2, 3, 4) * 50
    expected = softmax_rows(a, dim)
    for x in layouts(a):
        assert_close(norch.softmax(x, dim), expected)
        assert_close(norch.log_softmax(x, dim).exp(), expected)
        assert_close(norch.softmin(-x, dim), expected)
    small = draw(2, 3, 4)
    check(lambda x: norch.softmax(x, dim), small)
    check(lambda x: norch.log_softmax(x.transpose(0, 2), dim), small)


def test_softmax_of_a_layout_with_a_dim_of_size_1_keeps_its_gradient():
    # Softmax saves its result: that must lie in memory as the rule will read it.
    check(lambda x: norch.softmax(x.transpose(1, 2), 0), draw(1, 3, 4))
    check(lambda x: norch.softmax(x.transpose(1, 2), 0) * 1, draw(1, 3, 4))
    check(lambda x: norch.log_softmax(x.expand(3, 4), 1), draw(1, 4))


@pytest.mark.parametrize("function", [norch.softmax, norch.log_softmax, norch.softmin])
def test_softmax_of_no_elements_and_of_0d(function):
    x = norch.zeros(3, 0, requires_grad=True)
    out = function(x, 1)
    assert tuple(out.shape) == (3, 0)
    out.sum().backward()
    assert tuple(x.grad.shape) == (3, 0)
    assert function(norch.tensor(2.0), 0).item() in (0.0, 1.0)
    with pytest.raises(norch.IndexError):
        function(norch.zeros(2), 1)
    with pytest.raises(norch.DTypeError):
        function(norch.tensor([1]), 0)
    assert function(norch.tensor([1]), 0, dtype=norch.float64).dtype is norch.float64


# --- linear, embedding, dropout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (0,)])
def test_linear(lead):
    x, w, b = draw(*lead, 4), draw(5, 4), draw(5)
    expected = np.zeros((*lead, 5))
    for at in np.ndindex(lead):
        for o in range(5):
            expected[(*at, o)] = sum(x[(*at, i)] * w[o, i] for i in range(4)) + b[o]
    assert_close(norch.linear(const(x), const(w), const(b)), expected)
    assert_close(norch.linear(const(x), const(w)), expected - b)
    check(norch.linear, x, w, b)
    check(norch.linear, x, w, second=False)


def test_linear_refuses():
    with pytest.raises(norch.ShapeError, match=r"linear\(\).*\(2, 3\).*\(5, 4\)"):
        norch.linear(norch.zeros(2, 3), norch.zeros(5, 4))
    with pytest.raises(norch.ShapeError, match="bias"):
        norch.linear(norch.zeros(2, 4), norch.zeros(5, 4), norch.zeros(5, 1))
    with pytest.raises(norch.DTypeError, match="float64"):
        norch.linear(norch.zeros(2, 4), norch.zeros(5, 4, dtype=norch.float64))


def test_embedding():
    w, index = draw(5, 3), np.array([[0, 4, 4], [2, 0, 4]])
    assert_close(norch.embedding(const(index), const(w)), w[index])
    check(lambda v: norch.embedding(const(index), v), w)
    x = leaf(w)
    norch.embedding(const(index), x, padding_idx=-1).sum().backward()
    expected = np.zeros((5, 3))
    for i in index.ravel():
        expected[i] += i != 4
    assert_close(x.grad, expected)
    assert gradgradcheck(lambda v: norch.embedding(const(index), v, 2), [leaf(w)])
    assert tuple(norch.embedding(norch.zeros(0, 2, dtype=norch.int64), const(w)).shape) == (0, 2, 3)
    assert tuple(norch.embedding(norch.tensor(3), const(w)).shape) == (3,)


@pytest.mark.parametrize("index", [5, -1])
def test_embedding_refuses_an_index_that_is_no_row(index):
    with pytest.raises(norch.IndexError, match=r"embedding\(\).*\[0, 5\)"):
        norch.embedding(norch.tensor([0, index]), norch.zeros(5, 3))
    with pytest.raises(norch.IndexError, match="padding_idx"):
        norch.embedding(norch.tensor([0]), norch.zeros(5, 3), padding_idx=5)
    with pytest.raises(norch.DTypeError):
        norch.embedding(norch.tensor([0.0]), norch.zeros(5, 3))


def test_dropout_keeps_the_mean_and_draws_its_mask_again():
    norch.manual_seed(3)
    x = norch.ones(20000, requires_grad=True)
    y = norch.dropout(x, 0.25)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(1 / 0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.02
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()  # the input is 1, so that the gradient is the scaled mask
    assert not any(isinstance(v, norch.Tensor) for v in y.grad_fn.values)
    assert norch.dropout(x, 0.25).tolist() != y.tolist()
    norch.manual_seed(3)
    assert norch.dropout(x.detach(), 0.25).tolist() == y.tolist()
    norch.manual_seed(3)
    assert ((norch.dropout(x.detach().half(), 0.25) == 0) == (y == 0)).all().item()


def test_dropout_of_other_layouts_and_its_edges():
    seed = norch.get_rng_state()

    def same_draw(x):
        norch.set_rng_state(seed)
        return norch.dropout(x.transpose(0, 1), 0.5)

    check(same_draw, draw(3, 4))
    x = leaf(draw(3))
    assert norch.dropout(x, 0.0) is x
    assert norch.dropout(x, 0.5, training=False) is x
    out = norch.dropout(x, 1.0)
    assert out.tolist() == [0, 0, 0]
    out.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"1\.5"):
        norch.dropout(x, 1.5)
    with pytest.raises(norch.DTypeError):
        norch.dropout(norch.tensor([1]), 0.5)


# --- Losses ---------------------------------------------------------------------------------------------------------


def huber(d, delta):
    return d * d / 2 if d < delta else delta * (d - delta / 2)


def kl(x, t):
    return (t * math.log(t) if t else 0.0) - t * x


PAIRED = {
    "mse_loss": (norch.mse_loss, {}, lambda x, t: (x - t) ** 2),
    "l1_loss": (norch.l1_loss, {}, lambda x, t: abs(x - t)),
    "huber_loss": (norch.huber_loss, {"delta": 0.6}, lambda x, t: huber(abs(x - t), 0.6)),
    "smooth_l1_loss": (norch.smooth_l1_loss, {"beta": 0.6}, lambda x, t: huber(abs(x - t), 0.6) / 0.6),
    "smooth_l1_loss_0": (norch.smooth_l1_loss, {"beta": 0}, lambda x, t: abs(x - t)),
    "binary_cross_entropy": (
        norch.binary_cross_entropy,
        {},
        lambda x, t: -t * math.log(x) - (1 - t) * math.log(1 - x),
    ),
    "binary_cross_entropy_with_logits": (
        norch.binary_cross_entropy_with_logits,
        {},
        lambda x, t: t * softplus(-x, threshold=700) + (1 - t) * softplus(x, threshold=700),
    ),
    "kl_div": (norch.kl_div, {}, kl),
    "kl_div_log": (norch.kl_div, {"log_target": True}, lambda x, t: math.exp(t) * (t - x)),
}
each_pair = pytest.mark.parametrize("name", PAIRED)


def pair_for(name, *shape):
    # Neither the difference nor the probabilities come near a kink.
    return draw(*shape, low=0.1, high=0.3), draw(*shape, low=0.4, high=0.85)


@each_pair
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_paired_loss(name, reduction):
    function, args, oracle = PAIRED[name]
    a, b = pair_for(name, 2, 3)
    losses = np.vectorize(oracle)(a, b)
    expected = {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[reduction]
    assert_close(function(const(a), const(b), reduction=reduction, **args), expected)
    for x, t in zip(layouts(a), reversed(list(layouts(b)))):
        assert_close(function(x, t, reduction=reduction, **args), expected)
    check(lambda x, t: function(x, t, reduction=reduction, **args), a, b)


@each_pair
def test_paired_loss_refuses_what_would_broadcast(name):
    function, args, oracle = PAIRED[name]
    a, b = pair_for(name, 3)
    with pytest.raises(norch.ShapeError, match=r"\(3,\).*\(3, 1\).*strict=False"):
        function(const(a), const(b[:, None]), **args)
    expected = np.vectorize(oracle)(a, b[:, None]).mean()
    assert_close(function(const(a), const(b[:, None]), strict=False, **args), expected)
    check(lambda x, t: function(x, t.unsqueeze(1), strict=False, **args), a, b)
    with pytest.raises(norch.ShapeError):
        function(const(a), const(draw(2)), strict=False, **args)
    with pytest.raises(ValueError, match="average"):
        function(const(a), const(b), reduction="average", **args)
    with pytest.raises(norch.DTypeError):
        function(const(a), norch.tensor([0, 1, 0]), **args)


@each_pair
def test_paired_loss_of_nothing_is_nan_or_0(name):
    function, args, _ = PAIRED[name]
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


# --- Losses by class ------------------------------------------------------------------------------------------------


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


def test_cross_entropy_saves_the_log_softmax_and_not_its_input():
    x = leaf(draw(3, 4))
    loss = norch.cross_entropy(x, norch.tensor([0, 1, 2]))
    node = loss.grad_fn.edges[0]
    assert node.plan.op.name == "cross_entropy"
    assert node.values[0] is None
    assert node.result is not None


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


# --- Normalisation --------------------------------------------------------------------------------------------------


def standard(a, axes, eps):
    return (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + eps)


def test_layer_norm():
    a, w, b = draw(2, 3, 4), draw(3, 4), draw(3, 4)
    expected = standard(a, (1, 2), 1e-5) * w + b
    for x in layouts(a):
        assert_close(norch.layer_norm(x, [3, 4], const(w), const(b)), expected)
    assert_close(norch.layer_norm(const(a), 4, eps=0.1), standard(a, 2, 0.1))
    check(lambda x, w, b: norch.layer_norm(x, (3, 4), w, b), a, w, b)
    check(lambda x: norch.layer_norm(x.transpose(0, 2), 2), a)
    check(lambda x, b: norch.layer_norm(x, 4, None, b), a, draw(4), second=False)
    with pytest.raises(norch.ShapeError, match=r"layer_norm\(\).*\(2, 3, 4\).*\(3,\)"):
        norch.layer_norm(const(a), 3)
    with pytest.raises(norch.ShapeError, match="weight"):
        norch.layer_norm(const(a), 4, const(w))


def test_rms_norm():
    a, w = draw(2, 3, 4), draw(4)
    assert_close(norch.rms_norm(const(a), 4, const(w), 0.1), a / np.sqrt((a * a).mean(2, keepdims=True) + 0.1) * w)
    got = norch.rms_norm(const(a), (3, 4))
    assert_close(got, a / np.sqrt((a * a).mean((1, 2), keepdims=True) + np.finfo(np.float64).eps))
    check(lambda x, w: norch.rms_norm(x, 4, w), a, w)


def test_group_norm():
    a, w, b = draw(2, 6, 3), draw(6), draw(6)
    expected = standard(a.reshape(2, 3, 6), 2, 1e-5).reshape(2, 6, 3) * w[:, None] + b[:, None]
    assert_close(norch.group_norm(const(a), 3, const(w), const(b)), expected)
    check(lambda x, w, b: norch.group_norm(x, 3, w, b), a, w, b)
    with pytest.raises(norch.ShapeError, match="6 channels"):
        norch.group_norm(const(a), 4)


def test_batch_norm_in_training_moves_the_running_statistics():
    a, w, b = draw(3, 2, 4), draw(2), draw(2)
    mean, var = const(np.zeros(2)), const(np.ones(2))
    kept = mean.buffer
    got = norch.batch_norm(const(a), mean, var, const(w), const(b), training=True, momentum=0.3)
    assert_close(got, standard(a, (0, 2), 1e-5) * w[:, None] + b[:, None])
    assert mean.buffer is kept
    assert_close(mean, 0.3 * a.mean((0, 2)))
    assert_close(var, 0.7 + 0.3 * a.var((0, 2), ddof=1))
    check(lambda x, w, b: norch.batch_norm(x, None, None, w, b, training=True), a, w, b)


def test_batch_norm_by_running_statistics():
    a, mean, var, w, b = draw(3, 2), draw(2), draw(2, low=0.1, high=2), draw(2), draw(2)
    running = const(mean), const(var)
    assert_close(norch.batch_norm(const(a), *running, const(w), const(b)), (a - mean) / np.sqrt(var + 1e-5) * w + b)
    assert_close(running[0], mean)
    check(lambda x, w, b: norch.batch_norm(x, *running, w, b), a, w, b)
    with pytest.raises(norch.ShapeError, match="running_mean"):
        norch.batch_norm(const(a), None, None)
    with pytest.raises(norch.ShapeError, match="more than one value"):
        norch.batch_norm(const(a[:1]), None, None, training=True)
    with pytest.raises(norch.ShapeError, match=r"weight \(3,\)"):
        norch.batch_norm(const(a), *running, norch.ones(3))


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16])
def test_norms_of_16_bit_floats_are_computed_in_float32(dtype):
    a = const(draw(4, 64) * 100).to(dtype)
    got = norch.layer_norm(a, 64)
    assert got.dtype is dtype
    assert_close(got, standard(a.double().numpy(), 1, 1e-5), 1e-2)


def test_normalize_and_cosine_similarity():
    a, b = draw(3, 4), draw(3, 4)
    assert_close(norch.normalize(const(a)), a / np.sqrt((a * a).sum(1, keepdims=True)))
    assert_close(norch.normalize(const(a), p=1, dim=0), a / np.abs(a).sum(0))
    assert norch.normalize(norch.zeros(1, 2)).tolist() == [[0, 0]]
    sizes = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    assert_close(norch.cosine_similarity(const(a), const(b)), (a * b).sum(1) / sizes)
    assert_close(
        norch.cosine_similarity(const(a), const(b[:1]), dim=-1), (a @ b[0]) / np.sqrt((a * a).sum(1) * (b[0] @ b[0]))
    )
    check(norch.normalize, a)
    check(norch.cosine_similarity, a, b)


# --- Convolution ----------------------------------------------------------------------------------------------------


def conv2d_loops(x, w, b, stride, pads, dilation, groups):
    x = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    n, _, h, width = x.shape
    o, c, kh, kw = w.shape
    rows = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, o, rows, columns))
    for at in np.ndindex(out.shape):
        s, f, y, z = at
        first = f // (o // groups) * c
        top, left = y * stride[0], z * stride[1]
        patch = x[s, first : first + c, top:, left:][:, :: dilation[0], :: dilation[1]][:, :kh, :kw]
        out[at] = (patch * w[f]).sum() + b[f]
    return out


CONVOLUTIONS = {
    "plain": ((2, 2, 4, 5), (3, 2, 3, 2), {}, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "strided": ((1, 2, 7, 6), (2, 2, 3, 3), {"stride": (2, 3), "padding": (1, 2)}, (2, 3), (1, 1, 2, 2), (1, 1), 1),
    "dilated": ((2, 1, 6, 5), (2, 1, 2, 3), {"dilation": (3, 2)}, (1, 1), (0, 0, 0, 0), (3, 2), 1),
    "groups": ((1, 4, 4, 4), (6, 2, 2, 2), {"groups": 2, "stride": 2}, (2, 2), (0, 0, 0, 0), (1, 1), 2),
    "depthwise": ((1, 3, 4, 4), (3, 1, 3, 3), {"groups": 3, "padding": 1}, (1, 1), (1, 1, 1, 1), (1, 1), 3),
    "same": ((1, 1, 5, 4), (2, 1, 2, 4), {"padding": "same"}, (1, 1), (0, 1, 1, 2), (1, 1), 1),
    "valid": ((1, 1, 5, 4), (2, 1, 2, 2), {"padding": "valid"}, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "pointwise": ((2, 3, 2, 2), (4, 3, 1, 1), {}, (1, 1), (0, 0, 0, 0), (1, 1), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name):
    x_shape, w_shape, args, *how = CONVOLUTIONS[name]
    x, w, b = draw(*x_shape), draw(*w_shape), draw(w_shape[0])
    expected = conv2d_loops(x, w, b, *how)
    for v in layouts(x):
        assert_close(norch.conv2d(v, const(w), const(b), **args), expected)
    assert_close(norch.conv2d(const(x[0]), const(w), **args), expected[0] - b[:, None, None])

    def loss(x, w, b):
        return norch.conv2d(x, w, b, **args).sum((2, 3))

    check(loss, x, w, b)


@pytest.mark.parametrize("name", ["strided", "dilated", "groups"])
def test_transposed_convolution_is_the_gradient(name):
    x_shape, w_shape, args, stride, pads, dilation, groups = CONVOLUTIONS[name]
    x, w = leaf(draw(*x_shape)), draw(*w_shape)
    y = norch.conv2d(x, const(w), **args)
    g = draw(*y.shape)
    y.backward(const(g))
    extra = [
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, s, p, d, k in zip(x_shape[2:], g.shape[2:], stride, pads[::2], dilation, w_shape[2:])
    ]
    got = norch.conv_transpose2d(const(g), const(w), output_padding=tuple(extra), **args)
    assert_close(got, x.grad.numpy())
    b = draw(w_shape[1] * groups)
    check(lambda g, w, b: norch.conv_transpose2d(g, w, b, output_padding=tuple(extra), **args).sum((2,)), g, w, b)


def test_transposed_convolution_with_output_padding_that_holds_another_window():
    check(
        lambda x, w: norch.conv_transpose2d(x, w, padding=1, output_padding=1, dilation=2),
        draw(1, 1, 3, 2),
        draw(1, 1, 2, 2),
    )


def test_conv1d():
    x, w, b = draw(2, 4, 7), draw(6, 2, 3), draw(6)
    expected = conv2d_loops(x[:, :, None], w[:, :, None], b, (1, 2), (0, 0, 1, 1), (1, 2), 2)[:, :, 0]
    got = norch.conv1d(const(x), const(w), const(b), stride=2, padding=1, dilation=2, groups=2)
    assert_close(got, expected)
    assert tuple(norch.conv1d(const(x[0]), const(w), groups=2, padding="same").shape) == (6, 7)
    check(lambda x, w: norch.conv1d(x, w, stride=2, groups=2).sum(2), x[:1], w, second=False)
    y = norch.conv_transpose1d(const(draw(2, 4, 3)), const(draw(4, 2, 3)), stride=2, groups=2)
    assert tuple(y.shape) == (2, 4, 7)


def test_conv2d_of_no_samples():
    w = leaf(draw(3, 2, 2, 2))
    y = norch.conv2d(norch.zeros(0, 2, 4, 4, dtype=norch.float64), w)
    assert tuple(y.shape) == (0, 3, 3, 3)
    y.sum().backward()
    assert_close(w.grad, np.zeros((3, 2, 2, 2)))


@pytest.mark.parametrize(
    ("x", "w", "args", "words"),
    [
        ((1, 2, 4, 4), (3, 3, 2, 2), {}, r"conv2d\(\).*\(1, 2, 4, 4\).*\(3, 3, 2, 2\)"),
        ((1, 2, 4, 4), (3, 1, 2, 2), {"groups": 2}, "groups 2"),
        ((1, 2, 2, 2), (3, 2, 3, 3), {}, "do not fit"),
        ((1, 2, 4, 4), (3, 2, 2, 2), {"stride": 0}, "stride"),
        ((1, 2, 4, 4), (3, 2, 2, 2), {"padding": "same", "stride": 2}, "stride 1"),
        ((2, 4), (3, 2, 2, 2), {}, "dims"),
    ],
)
def test_conv2d_refuses(x, w, args, words):
    with pytest.raises(norch.ShapeError, match=words):
        norch.conv2d(norch.zeros(x), norch.zeros(w), **args)


def test_conv2d_refuses_mixed_dtypes():
    with pytest.raises(norch.DTypeError, match="float64"):
        norch.conv2d(norch.zeros(1, 1, 2, 2), norch.zeros(1, 1, 1, 1, dtype=norch.float64))


# --- Pooling --------------------------------------------------------------------------------------------------------


def pool_loops(x, kernel, stride, padding, dilation, ceil, average=None):
    """Largest, and where it is in the plane; or the averages, by `average(values, whole window's size)`."""
    n, c, h, w = x.shape
    counts = []
    for size, k, s, p, d in zip((h, w), kernel, stride, padding, dilation):
        room = size + 2 * p - d * (k - 1) - 1
        count = (math.ceil(room / s) if ceil else room // s) + 1
        counts.append(count - 1 if ceil and (count - 1) * s >= size + p else count)
    out, where = np.zeros((n, c, *counts)), np.zeros((n, c, *counts), int)
    for at in np.ndindex(out.shape):
        tops = [i * s - p for i, s, p in zip(at[2:], stride, padding)]
        seen = [
            (x[at[0], at[1], y, z], y * w + z)
            for y in range(tops[0], tops[0] + dilation[0] * kernel[0], dilation[0])
            for z in range(tops[1], tops[1] + dilation[1] * kernel[1], dilation[1])
            if 0 <= y < h and 0 <= z < w
        ]
        if average is None:
            out[at], where[at] = max(seen, key=lambda pair: pair[0])
        else:
            whole = math.prod(min(top + k, size + p) - top for top, k, size, p in zip(tops, kernel, (h, w), padding))
            out[at] = average([v for v, _ in seen], whole)
    return out, where


POOLS = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 2), (2, 1), (1, 1), (1, 1), False),
    ((3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 3), (3, 2), (0, 1), (1, 1), True),
]


@pytest.mark.parametrize("how", [*POOLS, ((2, 2), (1, 2), (0, 0), (2, 3), False)])
def test_max_pool2d(how):
    kernel, stride, padding, dilation, ceil = how
    x = RNG.permutation(2 * 2 * 6 * 7).reshape(2, 2, 6, 7) / 7.0
    expected, where = pool_loops(x, *how)
    for v in layouts(x):
        got, indices = norch.max_pool2d(v, *how, return_indices=True)
        assert_close(got, expected)
        assert indices.dtype is norch.int64
        assert indices.tolist() == where.tolist()
    assert_close(norch.max_pool2d(const(x[0]), *how), expected[0])
    check(lambda x: norch.max_pool2d(x, *how), x[:1])


def test_max_pool2d_of_integers_nan_and_infinities():
    whole = norch.tensor([[[[-5, -3], [-9, -4]]]])
    assert norch.max_pool2d(whole, 2, padding=1).tolist() == [[[[-5, -3], [-9, -4]]]]
    x = norch.full((1, 1, 2, 2), -math.inf, requires_grad=True)
    out, indices = norch.max_pool2d(x, 2, 2, 1, return_indices=True)
    assert indices.tolist() == [[[[0, 1], [2, 3]]]]
    out.sum().backward()
    assert x.grad.tolist() == [[[[1, 1], [1, 1]]]]
    assert math.isnan(norch.max_pool2d(norch.tensor([[[1.0, math.nan]]]), (1, 2)).item())


@pytest.mark.parametrize("how", POOLS)
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_avg_pool2d(how, count_include_pad):
    kernel, stride, padding, _, ceil = how
    x = draw(2, 2, 6, 7)
    expected, _ = pool_loops(x, *how, lambda seen, whole: sum(seen) / (whole if count_include_pad else len(seen)))

    def pool(x):
        return norch.avg_pool2d(x, kernel, stride, padding, ceil, count_include_pad)

    for v in layouts(x):
        assert_close(pool(v), expected)
    check(pool, x[:1])


def test_avg_pool2d_divisor_and_defaults():
    x = draw(1, 1, 4, 4)
    assert_close(norch.avg_pool2d(const(x), 2), x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)))
    assert_close(norch.avg_pool2d(const(x), 4, divisor_override=5), x.sum((2, 3), keepdims=True) / 5)


def test_pools_of_one_dim():
    x = draw(2, 3, 7)
    expected, where = pool_loops(x[:, :, None], (1, 3), (1, 2), (0, 1), (1, 1), False)
    got, indices = norch.max_pool1d(const(x), 3, 2, 1, return_indices=True)
    assert_close(got, expected[:, :, 0])
    assert indices.tolist() == where[:, :, 0].tolist()
    expected, _ = pool_loops(x[:, :, None], (1, 3), (1, 3), (0, 0), (1, 1), False, lambda seen, whole: sum(seen) / 3)
    assert_close(norch.avg_pool1d(const(x[0]), 3), expected[0, :, 0])
    check(lambda x: norch.avg_pool1d(x, 3, 2, 1, True), x, second=False)


@pytest.mark.parametrize("size", [1, 3, 5, (2, 4), (None, 6), (0, 2)])
def test_adaptive_avg_pool2d(size):
    x = draw(2, 2, 6, 4)
    rows, columns = (
        (size, size) if isinstance(size, int) else (n or x.shape[2 + i] if n is None else n for i, n in enumerate(size))
    )
    expected = np.zeros((2, 2, rows, columns))
    for y, z in np.ndindex(rows, columns):
        top, bottom = y * 6 // rows, -(-(y + 1) * 6 // rows)
        left, right = z * 4 // columns, -(-(z + 1) * 4 // columns)
        expected[:, :, y, z] = x[:, :, top:bottom, left:right].mean((2, 3))
    assert_close(norch.adaptive_avg_pool2d(const(x), size), expected)
    assert_close(norch.adaptive_avg_pool2d(const(x[0]), size), expected[0])
    if expected.size:
        check(lambda x: norch.adaptive_avg_pool2d(x, size), x[:1])


def test_pools_refuse():
    x = norch.zeros(1, 1, 4, 4)
    with pytest.raises(norch.ShapeError, match="half"):
        norch.max_pool2d(x, 2, padding=2)
    with pytest.raises(norch.ShapeError, match="do not fit"):
        norch.avg_pool2d(x, 5)
    with pytest.raises(norch.ShapeError, match="dims"):
        norch.max_pool2d(norch.zeros(4, 4), 2)
    with pytest.raises(norch.DTypeError):
        norch.avg_pool2d(norch.zeros(1, 1, 4, 4, dtype=norch.int64), 2)


# --- Attention ------------------------------------------------------------------------------------------------------


def attention_loops(q, k, v, allowed, scale):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        seen = [j for j in range(len(k)) if allowed[i][j] > -math.inf]
        logits = [q[i] @ k[j] * scale + allowed[i][j] for j in seen]
        weights = [math.exp(s - max(logits)) for s in logits]
        for w, j in zip(weights, seen):
            out[i] += w / sum(weights) * v[j]
    return out


@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float", "scale"])
def test_attention(kind):
    q, k, v = draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 2)
    allowed, args = np.zeros((3, 5)), {}
    if kind == "causal":
        allowed, args = np.where(np.arange(5) > np.arange(3)[:, None], -math.inf, 0.0), {"is_causal": True}
    elif kind == "bool":
        mask = RNG.random((3, 5)) < 0.6
        mask[1] = False  # this query may look nowhere
        allowed, args = np.where(mask, 0.0, -math.inf), {"attn_mask": const(mask)}
    elif kind == "float":
        allowed = draw(3, 5)
        args = {"attn_mask": const(allowed)}
    elif kind == "scale":
        args = {"scale": 0.7}
    scale = args.get("scale", 0.5)
    expected = np.stack([attention_loops(q[b], k[b], v[b], allowed, scale) for b in range(2)])
    got = norch.scaled_dot_product_attention(const(q), const(k), const(v), **args)
    assert_close(got, expected)
    check(lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, **args), q, k, v)
    # Batch dims broadcast.
    check(lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, **args), q, k[:1], v[0], second=False)


def test_attention_mask_has_a_gradient():
    q, k, v, mask = draw(2, 3), draw(4, 3), draw(4, 2), draw(2, 4)
    check(norch.scaled_dot_product_attention, q, k, v, mask)


def test_attention_with_dropout_and_grouped_heads():
    q, k, v = draw(1, 4, 3, 2), draw(1, 2, 3, 2), draw(1, 2, 3, 2)
    got = norch.scaled_dot_product_attention(const(q), const(k), const(v), enable_gqa=True)
    wide = [np.repeat(a, 2, 1) for a in (k, v)]
    assert_close(got, norch.scaled_dot_product_attention(const(q), *map(const, wide)).numpy())
    out = norch.scaled_dot_product_attention(const(q), *map(const, wide), dropout_p=1.0)
    assert not out.any().item()
    with pytest.raises(norch.ShapeError, match="not both"):
        norch.scaled_dot_product_attention(const(q), const(q), const(q), norch.ones(3, 3), is_causal=True)
    with pytest.raises(norch.ShapeError, match="do not fit"):
        norch.scaled_dot_product_attention(const(q), const(q[..., :1]), const(q))


# --- Every rule against its decomposition ---------------------------------------------------------------------------


def windows(kernel, stride=(1, 1), dilation=(1, 1)):
    from norch.ops.windows import Windows

    return Windows(kernel, stride, dilation)


def conv_args():
    return ((2, 1), (1, 0, 1, 1), (1, 2), 2)


CLASSES = np.array([2, 0, -100])
# Arguments for each composite with a rule: arrays of floats are operands that want a gradient.
SAMPLES = {
    **{
        name: [draw(3, 4, low=-4, high=4)]
        for name in ("relu", "silu", "mish", "softsign", "logsigmoid", "contiguous")
    },
    "leaky_relu": [draw(3, 4), 0.2],
    "elu": [draw(3, 4), 0.7, 1.1, 1.3],
    "hardtanh": [draw(3, 4), -1.5, 0.5],
    "clamp": [draw(3, 4), -1.5, 0.5],
    "gelu": [draw(3, 4), "tanh"],
    "softplus": [draw(3, 4), 2.0, 1.3],
    "softmax": [draw(3, 4), 0],
    "log_softmax": [draw(3, 4), 1],
    "linear": [draw(2, 3, 4), draw(5, 4), draw(5)],
    "embedding": [np.array([0, 2, 2]), draw(3, 2), 0],
    "embedding_grad": [draw(3, 2), np.array([0, 2, 2]), 4, 2],
    "dropout": [draw(3, 4), 0.5, 11, 12],
    "mse_loss": [*pair_for("", 2, 3), "mean"],
    "l1_loss": [*pair_for("", 2, 3), "none"],
    "huber_loss": [*pair_for("", 2, 3), "sum", 0.3],
    "smooth_l1_loss": [*pair_for("", 2, 3), "mean", 0.3],
    "binary_cross_entropy": [*pair_for("", 2, 3)],
    "binary_cross_entropy_with_logits": [*pair_for("", 2, 3), draw(3, low=1.1, high=1.9)],
    "kl_div": [*pair_for("", 2, 3), False],
    "nll_loss": [draw(3, 4), CLASSES, None, -100, "mean"],
    "cross_entropy": [draw(3, 4), CLASSES, -100, "mean"],
    "layer_norm": [draw(3, 4), (4,), draw(4), draw(4), 1e-5],
    "rms_norm": [draw(3, 4), (4,), draw(4), 1e-5],
    "group_norm": [draw(2, 4, 3), 2, draw(4), draw(4), 1e-5],
    "batch_norm": [draw(3, 4, 2), draw(4), draw(4), 1e-5],
    "conv2d": [draw(2, 4, 5, 6), draw(2, 2, 2, 3), draw(2), *conv_args()],
    "conv2d_input_grad": [draw(2, 2, 3, 4), draw(2, 2, 2, 3), (2, 4, 5, 6), *conv_args()],
    "conv2d_weight_grad": [draw(2, 2, 3, 4), draw(2, 4, 5, 6), (2, 2, 2, 3), *conv_args()],
    "max_pool2d": [draw(1, 2, 5, 6), windows((3, 2), (2, 1)), (1, 1, 0, 1)],
    "sum_pool2d": [draw(1, 2, 5, 6), windows((3, 2), (2, 1)), (1, 1, 0, 1)],
    "sum_pool2d_grad": [draw(1, 2, 3, 6), (1, 2, 5, 6), windows((3, 2), (2, 1)), (1, 1, 0, 1)],
    "scaled_dot_product_attention": [draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 2), draw(3, 5), False, 0.5],
}  # fmt: skip
# Written in place on detached memory: there is no autodiff of their decomposition.
OPAQUE = {"functional_scatter", "functional_scatter_add", "contiguous", "embedding_grad"}
# Constants by the rule's own choice: nll_loss gives its weight no gradient.
RULED = sorted(n for n, op in by_name().items() if op.kind == "composite" and op.rules is not None)


def first(result):
    return result[0] if isinstance(result, tuple) else result


def test_every_composite_with_a_rule_has_a_sample():
    assert set(RULED) - set(SAMPLES) <= OPAQUE


@pytest.mark.parametrize("name", [n for n in RULED if n not in OPAQUE])
@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_rule_agrees_with_autodiff_of_the_decomposition(name, layout):
    from norch.dispatch import run

    op = by_name()[name]
    leaves, made = [], []
    for value in SAMPLES[name]:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            if layout == "transposed" and value.ndim > 1:
                leaves.append(leaf(np.ascontiguousarray(value.swapaxes(0, -1))))
                made.append(lambda x=leaves[-1]: x.transpose(0, -1))
            else:
                leaves.append(leaf(value))
                made.append(lambda x=leaves[-1]: x)
        else:
            made.append(lambda v=value: const(v) if isinstance(v, np.ndarray) else v)

    def gradients(call):
        y = first(call(*[m() for m in made]))
        seed = const(np.random.default_rng(1).uniform(-1, 1, tuple(y.shape))).requires_grad_()
        found = norch.autograd.grad(y, leaves, seed, create_graph=True)
        total = sum((g * g).sum() for g in found)
        return y, found, norch.autograd.grad(total, [*leaves, seed], materialize_grads=True, allow_unused=True)

    y, ruled, ruled_twice = gradients(lambda *args: run(op, *args))
    z, parts, parts_twice = gradients(op.decompose)
    assert y.spec.shape == z.spec.shape
    assert y.spec.dtype is z.spec.dtype
    for got, expected in zip((y, *ruled, *ruled_twice), (z, *parts, *parts_twice), strict=True):
        assert_close(got, expected.detach().numpy(), 1e-9)


@pytest.mark.parametrize("name", RULED)
def test_composite_runs_with_gradients_off(name):
    if name not in SAMPLES:
        pytest.skip("called through scatter")
    from norch.dispatch import run

    args = [const(v) if isinstance(v, np.ndarray) else v for v in SAMPLES[name]]
    result = run(by_name()[name], *args)
    for out, spec in zip(
        result if isinstance(result, tuple) else (result,), (result if isinstance(result, tuple) else (result,))
    ):
        assert out.grad_fn is None
        assert out.base is None
        assert spec.shape == out.shape


def test_ops_are_reachable_by_their_torch_names():
    for name in ("relu", "cross_entropy", "conv2d", "scaled_dot_product_attention", "layer_norm", "embedding"):
        assert getattr(norch, name) is getattr(ops, name)
