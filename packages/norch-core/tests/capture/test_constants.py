"""What a program computes once, when it is made: calls that fill a few bytes with one number."""

import numpy as np
import pytest

import norch


def replayed(step, *args):
    """The calls of the captured step before they are fused. Each of its runs gives what `step` gives, then too."""
    _replayed(step, args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("norch.capturing.programs.rewrite", lambda calls, temporaries: calls)
        return _replayed(step, args)


def _replayed(step, args):
    captured = norch.capture(step, fullgraph=True)
    for _ in range(7):
        expected, got = step(*args), captured(*args)
        assert [t.tolist() for t in expected] == [t.tolist() for t in got]
    (entry,) = captured.entries.values()
    ((program, _),) = entry.programs
    return program.calls


def fills(calls):
    return [call for call in calls if call.op == "fill"]


def data(*shape):
    return norch.tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("scale", [1.0, -2.0])
def test_backward_starts_with_a_gradient_that_is_there(scale):
    leaf = data(3).requires_grad_()

    def step(x):
        leaf.grad = None
        ((leaf * x).tanh().sum() * scale).backward()
        return (leaf.grad.clone(),)

    assert not fills(replayed(step, data(3)))


def test_what_is_added_to_is_filled_each_time():
    def step(x):
        total = norch.zeros(3)
        for _ in range(2):
            total.add_(x)
        return (total.sum(), total * 2)

    assert fills(replayed(step, data(3)))


def test_what_is_written_through_a_view_is_filled_each_time():
    def step(x):
        total = norch.ones(2, 3)
        total[0] = x
        total[1].mul_(x)
        return (total * 1.5,)

    assert fills(replayed(step, data(3)))


def test_what_is_returned_is_filled_each_time():
    def step(x):
        zeros = norch.zeros(3)
        return (zeros, x + zeros)

    assert fills(replayed(step, data(3)))
    out = norch.capture(step)
    for _ in range(4):
        zeros, _ = out(data(3))
        zeros += 1
    assert zeros.tolist() == [1, 1, 1]


def test_large_fills_are_not_kept():
    def step(x):
        return (x + norch.full((1000,), 0.25),)

    assert fills(replayed(step, data(1000)))


def test_a_number_that_changes_is_filled_each_time():
    step = norch.capture(lambda x, number: norch.full((3,), number) * x)
    x = data(3)
    for number in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5):
        assert step(x, number).tolist() == (number * x).tolist()
    (entry,) = step.entries.values()
    assert entry.programs
