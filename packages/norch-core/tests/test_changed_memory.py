"""Marks of memory that something else than an op has changed."""

from __future__ import annotations

import pytest

import norch
from norch import AutogradError
from norch.autograd import graph


def leaf(*values: float) -> norch.Tensor:
    return norch.tensor(values or (1, 2), dtype=norch.float32, requires_grad=True)


@pytest.mark.parametrize(("by", "name"), [((), "increment_version"), (("all_reduce",), "all_reduce")])
def test_a_saved_tensor_that_was_changed_elsewhere_is_refused(by: tuple[str, ...], name: str) -> None:
    x, w = leaf(), leaf()
    y = x * w
    version = x._version
    graph.increment_version(x, *by)
    assert x._version > version
    assert x.detach()[:1]._version == x._version
    with pytest.raises(AutogradError, match=f"mul needs .*{name} has changed it in place"):
        y.sum().backward()


def test_several_tensors_are_marked_at_once() -> None:
    x, w = norch.ones(2), norch.ones(2)
    norch.autograd.graph.increment_version([x, w.view(2)])
    assert 0 < x._version < w._version
    norch.autograd.graph.increment_version(iter(()))


def test_values_that_come_back_are_no_change() -> None:
    x, w = leaf(), leaf()
    y = x * w
    version = x._version
    with norch.autograd._unsafe_preserve_version_counter(x), norch.no_grad():
        x.mul_(2).div_(2)
    assert x._version == version
    y.sum().backward()
    assert w.grad.tolist() == x.tolist()


def test_a_mark_does_not_cut_the_graph() -> None:
    x = leaf()
    y = x * 2
    view = y[:1]
    graph.increment_version(y)
    (y.sum() + view.sum()).backward()
    assert x.grad.tolist() == [4, 2]


def test_an_assignment_to_elements_of_data_is_no_change():
    """As solvers of differential equations fill their memory, while a gradient needs what they filled before."""
    x = norch.ones(2, requires_grad=True)
    memory = norch.zeros(3, 2)
    memory.data[0] = 2.0
    first = (memory[:1] * x).sum()
    for index, value in ((1, 3.0), ((slice(2, None),), norch.tensor([4.0, 5.0])), (norch.tensor([1]), 6.0)):
        memory.data[index] = value
    first.backward()
    assert x.grad.tolist() == [2, 2]
    assert memory.tolist() == [[2, 2], [6, 6], [4, 5]]
    last = (memory * x).sum()
    memory[0] = 0.0
    with pytest.raises(norch.AutogradError, match="__setitem__"):
        last.backward()


def test_an_assignment_to_elements_of_data_that_an_op_has_saved_is_a_change():
    x = norch.ones(2, requires_grad=True)
    kept = norch.ones(2).data
    kept[0] = 2.0
    kept[1] = 3.0
    y = (x * kept).sum()
    kept[0] = 5.0
    with pytest.raises(norch.AutogradError, match="__setitem__"):
        y.backward()


def test_a_recorded_step_sees_an_assignment_to_elements_of_data():
    memory = norch.zeros(3)

    @norch.capture
    def step(x):
        memory.data[1] = x.sum()
        return memory * 2

    for i in range(5):
        assert step(norch.full((2,), float(i))).tolist() == [0, 4 * i, 0]
        assert memory.tolist() == [0, 2 * i, 0]


def test_draws_of_data_are_no_change():
    """As Bayesian layers draw their noise into one tensor in every step of a recurrence."""
    w, noise = norch.ones(3, requires_grad=True), norch.zeros(3)
    first = (w * noise.data.uniform_(2, 2)).sum()
    second = (w * noise.data.normal_(5, 0)).sum()
    assert (first.item(), second.item()) == (6, 15)
    (first + second).backward()
    assert w.grad.tolist() == [10, 10, 10]  # of the last draws, as in PyTorch
    y = (w * noise).sum()
    noise.normal_()
    with pytest.raises(norch.AutogradError, match="normal_"):
        y.backward()
