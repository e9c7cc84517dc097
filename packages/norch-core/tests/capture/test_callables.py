"""What can be captured: functions, methods, lambdas, partials and callable objects; copies and pickles of it."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest

import norch


@norch.capture
def decorated(x):
    """What it says."""
    return x * 2


def plain(x):
    return x * 2


@norch.capture(fullgraph=True)
def whole(x):
    return x + 1


class Scale:
    lock = entries = function = running = "an attribute of its own"

    def __init__(self, factor, device="cpu"):
        self.factor = norch.full((2,), float(factor), device=device)
        self.function = self.entries = "of the object"

    def __call__(self, x):
        return x * self.factor

    @norch.capture
    def scaled(self, x):
        return x * self.factor

    def method(self, x):
        return x * self.factor


def used(run, device, expected=2.0, calls=6):
    for _ in range(calls):
        assert run(norch.ones(2, device=device)).tolist() == [expected] * 2


def test_kinds_of_functions(device):
    for function in (
        plain,
        lambda x: x * 2,
        functools.partial(norch.mul, other=2),
        functools.partial(lambda k, x: x * k, 2),
        Scale(2, device),
        Scale(2, device).method,
    ):
        run = norch.capture(function)
        used(run, device)
        assert run.report().replayed == 3, run.report()
        assert str(run.report())


def test_decorators_keep_names(device):
    assert decorated.__name__ == "decorated"
    assert decorated.__doc__ == "What it says."
    assert decorated.__wrapped__(norch.ones(2)).tolist() == [2.0, 2.0]
    used(decorated, device)
    used(whole, device)


def test_a_method_of_a_class(device):
    two, three = Scale(2, device), Scale(3, device)
    for _ in range(6):
        used(two.scaled, device, 2.0, 1)
        used(three.scaled, device, 3.0, 1)
    assert Scale.scaled.report().replayed >= 6


def test_pickles_and_copies(device):
    used(decorated, device)
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    run = norch.capture(plain)
    used(run, device)
    for other in (pickle.loads(pickle.dumps(run)), copy.copy(run), copy.deepcopy(run)):
        assert other is not run
        assert other.function is plain
        assert other.report().replayed == 0
        used(other, device)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(norch.capture(lambda x: x))


def test_a_deep_copy_has_the_copied_model(device):
    model = Scale(2, device)
    run = norch.capture(model.method)
    used(run, device)
    other = copy.deepcopy(run)
    other.function.__self__.factor.fill_(5)
    used(other, device, 5.0)
    used(run, device, 2.0)


def test_captured_twice(device):
    run = norch.capture(norch.capture(plain))
    used(run, device)
