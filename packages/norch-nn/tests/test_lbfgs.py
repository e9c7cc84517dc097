"""L-BFGS: on functions whose minimum is known, and its line search."""

import math

import numpy as np
import pytest

import norch
from norch import nn, optim
from norch.optim.lbfgs import _Point, strong_wolfe


def minimise(loss, params, steps, **options):
    optimizer = optim.LBFGS(params, **options)
    calls = []

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        calls.append(1)
        return value

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    assert optimizer.state[params[0]]["func_evals"] == len(calls)
    return losses, len(calls)


def rosenbrock(p):
    return ((1 - p[:-1]) ** 2 + 100 * (p[1:] - p[:-1] ** 2) ** 2).sum()


def test_finds_the_valley_of_rosenbrock():
    p = nn.Parameter(norch.tensor([-1.2, 1.0], dtype=norch.float64))
    _, calls = minimise(lambda: rosenbrock(p), [p], 10, line_search_fn="strong_wolfe", max_iter=20)
    np.testing.assert_allclose(p.tolist(), [1.0] * 2, rtol=1e-4)
    assert calls < 80


def test_a_quadratic_of_several_parameters():
    a, b = nn.Parameter(norch.ones(2, 3).double()), nn.Parameter(norch.ones(4).double())
    unused = nn.Parameter(norch.ones(2).double())
    scale = norch.arange(1.0, 7.0).double().reshape(2, 3)
    losses, _ = minimise(lambda: (a * a * scale).sum() + ((b - 2) ** 2).sum(), [a, b, unused], 8)
    assert losses[0] == pytest.approx(25.0)
    np.testing.assert_allclose(a.tolist(), np.zeros((2, 3)), atol=1e-5)
    np.testing.assert_allclose(b.tolist(), [2.0] * 4, rtol=1e-5)
    assert unused.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_float32(line_search):
    p = nn.Parameter(norch.tensor([3.0, -2.0]))
    minimise(lambda: ((p - 1) ** 2).sum(), [p], 3, line_search_fn=line_search)
    np.testing.assert_allclose(p.tolist(), [1.0, 1.0], rtol=1e-5)


def test_limits_of_a_step():
    p = nn.Parameter(norch.tensor([-1.2, 1.0], dtype=norch.float64))
    optimizer = optim.LBFGS([p], max_iter=4, max_eval=3)
    calls = []

    def closure():
        optimizer.zero_grad()
        calls.append(1)
        loss = rosenbrock(p)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert len(calls) == 3
    p.grad = None
    with norch.no_grad():
        p.fill_(1.0)
    del calls[:]
    assert optimizer.step(closure).item() == 0.0
    assert len(calls) == 1  # optimal at once
    with pytest.raises(ValueError, match="closure"):
        optimizer.step()


def test_history_is_bounded():
    p = nn.Parameter(norch.tensor([-1.2, 1.0, 0.3], dtype=norch.float64))
    optimizer = optim.LBFGS([p], max_iter=15, history_size=3, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(p)
        loss.backward()
        return loss

    optimizer.step(closure)
    state = optimizer.state[p]
    assert [len(state[key]) for key in ("old_dirs", "old_stps", "ro")] == [3, 3, 3]


def test_one_group_only():
    a, b = nn.Parameter(norch.ones(1)), nn.Parameter(norch.ones(1))
    with pytest.raises(ValueError, match="one group"):
        optim.LBFGS([{"params": [a]}, {"params": [b]}])


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 10.0, 50.0])
@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
        (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),
        (lambda t: math.exp(-t) + 0.2 * t, lambda t: -math.exp(-t) + 0.2),
        (lambda t: (t - 2) ** 4 + math.sin(3 * t), lambda t: 4 * (t - 2) ** 3 + 3 * math.cos(3 * t)),
    ],
)
def test_points_meet_the_strong_wolfe_conditions(f, slope, first):
    start = _Point(0.0, f(0.0), slope(0.0), None)
    if start.slope > 0:
        f, slope = (lambda t, g=f: g(-t)), (lambda t, g=slope: -g(-t))
        start = _Point(0.0, f(0.0), slope(0.0), None)
    found, probes = strong_wolfe(lambda t: _Point(t, f(t), slope(t), None), start, first, 1.0, 1e-9, 25)
    assert found.loss <= start.loss + 1e-4 * found.at * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)
    assert probes <= 26


def test_no_gradient_and_no_tolerance():
    p = nn.Parameter(norch.tensor([3.0, -2.0]))
    optimizer = optim.LBFGS([p], lr=0.1, tolerance_grad=-1.0, line_search_fn="strong_wolfe")
    assert optimizer.step(lambda: norch.tensor(10.0)) == 10.0
    assert p.tolist() == [3.0, -2.0]
