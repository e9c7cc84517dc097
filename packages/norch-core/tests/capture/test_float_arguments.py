"""Floats that a step is called with: numbers of its kernels, new at each call; and what Python decides by them."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from capture_harness import image, numbers, replays, same_bits

import norch
from norch.dispatch.traced import ARGUMENT, Trace, Traced, evaluate, traced

STEPS = {
    "factor": lambda x, t: x * t,
    "expression": lambda x, t: (1 - t) * x + -t / (x * x + 1) - t**2,
    "temperature": lambda x, t: (x / t).softmax(-1),
    "comparison": lambda x, t: norch.where(x > t, x, t) + (t >= x),
    "alpha": lambda x, t: norch.add(x, x * x, alpha=t),
    "clamp": lambda x, t: x.clamp(-t, t),
    "in place": lambda x, t: x.clone().sub_(x * x, alpha=t).mul_(t).add_(t),
    "tensor of it": lambda x, t: x * norch.tensor(t, device=x.device) + norch.full((5,), t, device=x.device),
    "assigned": lambda x, t: _assigned(x.clone(), t),
    "integers": lambda x, t: x.to(norch.int64) * t,
    "random": lambda x, t: norch.empty(5, device=x.device).uniform_(-t, t) + x,
    "sampled": lambda x, t: norch.bernoulli(norch.full((5,), t / 10, device=x.device)) + x,
}
BY_VALUE = {
    "int": lambda x, t: x * int(t),
    "text": lambda x, t: x * float(f"{t:.1f}"),
    "shape": lambda x, t: norch.arange(0, 3, t, device=x.device).sum() + x,
    "root": lambda x, t: x * math.sqrt(t),
    "array": lambda x, t: x * norch.tensor(np.array([t, 2 * t, 1, 2, 3], np.float32)).to(x.device),
    "attribute": lambda x, t: norch.leaky_relu(x, t),
    "result": lambda x, t: t * 2,
}


def _assigned(x, t):
    x[:2] = t
    return x


def case(device, step, feed):
    def make():
        return step, lambda i: (norch.tensor(numbers(i, 4, 5), device=device), *feed(i)), lambda: ()

    return make


@pytest.mark.parametrize("name", STEPS)
def test_each_call_has_its_own(device, name):
    captured = same_bits(case(device, STEPS[name], lambda i: (0.37 + 0.1 * i,)), 12)
    assert replays(captured) >= 8
    assert captured.report().recorded == 2


@pytest.mark.parametrize("name", BY_VALUE)
def test_what_python_must_know_has_a_program_for_each(device, name):
    count = 9 if name == "root" else 12  # only the second recording shows it
    captured = same_bits(case(device, BY_VALUE[name], lambda i: (0.5 + 0.25 * (i % 2),)), 20, count)
    assert any("for each float by itself" in why for why in captured.report().captured_again)


def test_python_that_decides_by_it_decides_in_each_call(device):
    def step(x, t):
        return x * t if t < 1 else x - max(t, 1.5)

    captured = same_bits(case(device, step, lambda i: (0.3 + 0.11 * i,)), 24, replayed=17)
    assert len(captured.report().programs) == 3


def test_one_that_stays_is_waited_for_and_one_that_changes_later_is_no_constant(device):
    captured = same_bits(case(device, lambda x, t: x * t, lambda i: (0.5 if i < 6 else 0.1 * i,)), 16, replayed=11)
    assert len(captured.report().programs) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_another_signature(device, value):
    same_bits(case(device, lambda x, t: x.clamp(max=t), lambda i: (value if i % 2 else 0.5 + i,)), 16, replayed=10)


def test_errors_are_those_of_eager_code(device):
    step = norch.capture(lambda x, t: x * (1 / t))
    x = norch.ones(3, device=device)
    for i in range(1, 7):
        step(x, 0.5 * i)
    with pytest.raises(ZeroDivisionError):
        step(x, 0.0)
    assert step(x, 4.0).tolist() == [0.25] * 3
    power = norch.capture(lambda x, t: x * t**0.5)
    for i in range(1, 7):
        power(x, 0.5 * i)
    assert replays(power) == 3
    assert power(x, -1.0).imag.tolist() == [1.0] * 3


def test_a_step_that_trains(device):
    def make():
        w = norch.tensor(numbers(9, 5, 3), device=device, requires_grad=True)

        def step(x, lr, t):
            w.grad = None
            loss = ((x @ w) / t).logsumexp(-1).mean() + ((x @ w) * norch.rand(3, device=device)).sum() * t
            loss.backward()
            with norch.no_grad():
                w.sub_(w.grad, alpha=lr)
            return loss.detach(), w.grad

        return step, lambda i: (norch.tensor(numbers(i, 4, 5), device=device), 0.1 / (i + 1), 1 + 0.1 * i), lambda: w

    captured = same_bits(make, 12)
    assert replays(captured) == 9


def test_a_backward_pass_outside_of_the_step(device):
    found = []
    for wrap in (lambda step: step, norch.capture):
        w = norch.tensor(numbers(9, 5, 3), device=device, requires_grad=True)
        step = wrap(lambda x, t, w=w: (x @ w / t).softmax(-1) * t**2 + (x @ w).abs() ** t)
        seen = []
        for i in range(14):
            w.grad = None
            out = step(norch.tensor(numbers(i, 4, 5), device=device), 1.2 + 0.1 * i)
            (out * out).sum().backward()
            seen.append((image(out.detach()), image(w.grad)))
        found.append(seen)
    assert found[0] == found[1]
    assert replays(step) >= 9


def test_numbers_that_leave_a_recording_are_floats():
    kept = []

    @norch.capture
    def step(x, t):
        kept.append(t)
        return x * t

    for i in range(4):
        step(norch.ones(2), 0.5 + i)
    assert kept[:3] == [0.5, 1.5, 2.5]
    for t in kept:
        assert type(t + 1) is type(-t) is float
        assert type(pickle.loads(pickle.dumps(t))) is float
        assert copy.deepcopy(t) == t
        assert norch.tensor(t).dtype is norch.float32
        assert norch.tensor([t, 1]).dtype is norch.float32


def test_expressions_are_what_python_computes():
    trace = Trace()
    with trace:
        x, y = (traced(v, (ARGUMENT, i), trace) for i, v in enumerate((0.7, -2.25)))
        made = [
            *(x + y, 3 - x, x * 2, 2 / y, y // x, 7 % y, 2**x, abs(y), +x, -y, min(x, y), max(1.5, x)),
            *(x * x - y / (x + 1), sum([x, y, x])),
        ]
    assert all(type(m) is Traced for m in made[:10])
    a, b = 0.7, -2.25
    plain = [
        *(a + b, 3 - a, a * 2, 2 / b, b // a, 7 % b, 2**a, abs(b), +a, -b, min(a, b), max(1.5, a)),
        *(a * a - b / (a + 1), sum([a, b, a])),
    ]
    for m, value in zip(made, plain, strict=True):
        assert float.__float__(float(m)) == value
        assert evaluate(getattr(m, "expression", m), [a, b]) == value
    assert all(evaluate(e, [a, b]) is outcome for e, outcome in trace.decisions.items())
    assert not all(evaluate(e, [b, a]) is outcome for e, outcome in trace.decisions.items())
    assert trace.pinned is None
