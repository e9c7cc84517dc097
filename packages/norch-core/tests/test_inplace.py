"""In-place ops and assignment: what tensors, bases and views hold afterwards, and the gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import norch
from norch import AutogradError
from norch.autograd import gradcheck, gradgradcheck

Tensor = norch.Tensor


def square() -> Tensor:
    return norch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def test_assignment_then_a_view_changed_in_place() -> None:
    x = square()
    y = x * 2
    y[0] = 5
    view = y.t()
    view.mul_(3)
    assert y.tolist() == [[15, 15], [18, 24]]
    assert view.tolist() == [[15, 18], [15, 24]]
    y.sum().backward()
    assert x.grad.tolist() == [[0, 0], [6, 6]]


def test_assigned_tensors_get_their_gradients() -> None:
    x, v = square(), norch.tensor([7.0, 8.0], requires_grad=True)
    y = x * 2
    y[0] = v
    (y * norch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [[0, 0], [6, 8]]
    assert v.grad.tolist() == [1, 2]


def test_a_constant_becomes_part_of_the_graph() -> None:
    v = norch.tensor(3.0, requires_grad=True)
    y = norch.zeros(3)
    before = y[1:]
    y[1] = v * 2
    assert y.requires_grad
    assert before.requires_grad  # a view made while y was a constant
    assert not y.is_leaf
    (before * 5).sum().backward()
    assert v.grad.item() == 10


def test_a_copy_of_a_leaf_is_no_leaf() -> None:
    leaf = norch.ones(3, requires_grad=True)
    h = norch.zeros(3)
    h.copy_(leaf)
    assert not h.is_leaf
    h.mul_(2)
    h.register_hook(lambda g: g * 10)  # of h alone
    (h + leaf).sum().backward()
    assert h.grad is None
    assert leaf.grad.tolist() == [21, 21, 21]


def test_views_see_each_other() -> None:
    x = square()
    y = x * 1
    row, column, whole = y[0], y[:, 0], y.view(-1)
    row.add_(10)
    column.mul_(2)
    assert y.tolist() == [[22, 12], [6, 4]]
    assert whole.tolist() == [22, 12, 6, 4]
    (whole * norch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [[2, 2], [6, 4]]


def test_base_changed_after_the_view_was_made() -> None:
    x = square()
    y = x * 1
    row = y[1]
    y.mul_(10)
    assert row.tolist() == [30, 40]
    row.sum().backward()
    assert x.grad.tolist() == [[0, 0], [10, 10]]


def test_view_of_a_view() -> None:
    x = norch.arange(24.0).requires_grad_()
    y = x * 1
    inner = y.view(2, 3, 4)[1].t()[1:, ::2]
    inner.fill_(0.0)
    y.view(4, 6)[0].mul_(3)
    y.sum().backward()
    expected = np.ones((2, 3, 4))
    expected[1, ::2, 1:] = 0
    expected.reshape(4, 6)[0] *= 3
    np.testing.assert_array_equal(x.grad.numpy(), expected.reshape(-1))


def test_detached_shares_memory_but_not_the_graph() -> None:
    x = square()
    y = x * 1
    y.detach().mul_(2)
    assert y.tolist() == [[2, 4], [6, 8]]
    y.sum().backward()
    assert x.grad.tolist() == [[1, 1], [1, 1]]


def test_leaves_change_under_no_grad_only() -> None:
    x = square()
    for change in (lambda: x.add_(1), lambda: x.__setitem__(0, 1.0), lambda: x[0].zero_(), lambda: x.t().mul_(2)):
        with pytest.raises(AutogradError, match="leaf"):
            change()
    with norch.no_grad():
        x.add_(1)
        x[0] = 0
    assert x.tolist() == [[0, 0], [4, 5]]
    assert x.is_leaf
    assert x.requires_grad
    x.data.fill_(7)
    x.detach()[0, 0] = 1
    assert x.tolist() == [[1, 7], [7, 7]]


def test_a_view_made_without_grad_must_not_change_what_is_tracked() -> None:
    y = square() * 1
    with norch.no_grad():
        view = y[0]
    with pytest.raises(AutogradError, match="no_grad"):
        view.mul_(2)
    with norch.no_grad():
        view.mul_(2)
    assert y[0].tolist() == [2, 4]


INPLACE: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda y: y.add_(2),
    "add_ alpha": lambda y: y.add_(norch.ones(2, dtype=norch.float64), alpha=3),
    "sub_": lambda y: y.sub_(0.5),
    "mul_": lambda y: y.mul_(3),
    "mul_ self": lambda y: y.mul_(y),
    "div_": lambda y: y.div_(y + 4),
    "pow_": lambda y: y.pow_(2),
    "neg_": lambda y: y.neg_(),
    "exp_": lambda y: y.exp_(),
    "tanh_": lambda y: y.tanh_(),
    "sigmoid_": lambda y: y.sigmoid_(),
    "relu_": lambda y: y.relu_(),
    "sqrt_": lambda y: y.sqrt_(),
    "clamp_": lambda y: y.clamp_(1.5, 3.5),
    "zero_": lambda y: y.zero_(),
    "fill_": lambda y: y.fill_(4),
    "copy_": lambda y: y.copy_(y.t() * 2),
    "masked_fill_": lambda y: y.masked_fill_(y > 2.5, 0.0),
    "row": lambda y: y[1].mul_(y[0].clone()),
    "column": lambda y: y[:, 1].add_(y[0]),
    "diagonal": lambda y: y.diagonal().exp_(),
    "transposed": lambda y: y.t().mul_(y.clone()),
    "flat": lambda y: y.view(-1)[::2].div_(3),
    "as_strided": lambda y: y.as_strided((2,), (3,)).sin_(),
    "list": lambda y: y.__setitem__([1, 0], y * 2),
    "mask": lambda y: y.__setitem__(y > 2, y.sum()),
    "reversed": lambda y: y.__setitem__((slice(None), slice(None, None, -1)), y * 2),
    "+=": lambda y: y.__setitem__(0, y[0].__iadd__(y[1])),
    "index_put_": lambda y: y.index_put_((norch.tensor([0, 0]),), y * 1, accumulate=True),
    "index_add_": lambda y: y.index_add_(0, norch.tensor([1, 1]), y * 3),
}


@pytest.mark.parametrize("name", INPLACE)
def test_gradients_of_in_place_ops(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 1.5 + 0.25
        INPLACE[name](y)
        return y * y

    x = norch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=norch.float64, requires_grad=True)
    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,), fast_mode=True)


def test_in_place_ops_return_the_tensor_itself() -> None:
    x = norch.tensor([[1.0, 2.0], [3.0, 4.0]])
    pointer, y = x.data_ptr(), x
    y += 1
    y -= norch.ones(2)
    y *= 2
    y /= 4
    y **= 2
    assert y is x
    assert x.data_ptr() == pointer
    assert x.tolist() == [[0.25, 1], [2.25, 4]]
    assert x.add_(1) is x


@pytest.mark.parametrize("recorded", [True, False])
def test_copies_within_one_buffer(device: str, recorded: bool) -> None:
    """As if the source had been copied first, recorded or not."""
    x = norch.arange(6.0, device=device).requires_grad_(recorded)

    def copied(change: Callable[[Tensor], object]) -> list[float]:
        y = x * 1
        change(y)
        result: list[float] = y.tolist()
        return result

    assert copied(lambda y: y[1:].copy_(y[:-1])) == [0, 0, 1, 2, 3, 4]
    assert copied(lambda y: y[:-1].copy_(y[1:])) == [1, 2, 3, 4, 5, 5]
    assert copied(lambda y: y.__setitem__(slice(2, None), y[:4])) == [0, 1, 0, 1, 2, 3]
    assert copied(lambda y: y.copy_(y.view(2, 3).t().reshape(6))) == [0, 3, 1, 4, 2, 5]
    assert copied(lambda y: y[:4].view(2, 2).copy_(y[:4].view(2, 2).t())) == [0, 2, 1, 3, 4, 5]
    assert copied(lambda y: y[:4].view(2, 2).copy_(y[:4].view(2, 2).flip(0).t())) == [2, 0, 3, 1, 4, 5]
    assert copied(lambda y: y[:3].copy_(y[4])) == [4, 4, 4, 3, 4, 5]
    assert copied(lambda y: y.copy_(y)) == [0, 1, 2, 3, 4, 5]


def test_retain_grad_follows_the_tensor() -> None:
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    assert y.grad.tolist() == [12, 24]
    assert x.grad.tolist() == [72, 144]
    z = norch.tensor([1.0, 2.0], requires_grad=True) * 2
    z.retain_grad()
    z[0].mul_(3)
    z[1] = 5.0
    (z * z).sum().backward()
    assert z.grad.tolist() == [12, 10]


def test_retain_grad_follows_a_view() -> None:
    base = norch.ones(3, 2, requires_grad=True) * 2
    view = base.view(6)
    view.retain_grad()
    with norch.no_grad():
        view.mul_(3)
    view.sum().backward()
    assert view.grad is not None
    assert view.grad.tolist() == [1.0] * 6

    base = norch.ones(3, 2, requires_grad=True) * 2
    view = base.view(6)
    view.retain_grad()
    base.mul_(3)
    (view * 2).sum().backward()
    assert view.grad is not None
    assert view.grad.tolist() == [2.0] * 6


def test_a_view_of_a_constant_that_is_multiplied_by_a_leaf() -> None:
    x = norch.ones(2, 2, requires_grad=True)
    y = norch.full((2, 2), 2.0)
    row = y[0]
    y.mul_(x)
    assert row.requires_grad
    (row * 3).sum().backward()
    assert x.grad.tolist() == [[6, 6], [0, 0]]


STEPS = ["row", "column", "transpose", "flat", "mul", "add", "tanh", "set", "use"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.integers(0, 7)), min_size=3, max_size=9))
def test_random_programs_of_views_and_changes(program: list[tuple[str, int, int]]) -> None:
    def function(x: Tensor) -> Tensor:
        tensors = [x * 1.0, norch.full((2, 2), 0.5, dtype=norch.float64)]
        for step, i, j in program:
            t, other = tensors[i % len(tensors)], tensors[j % len(tensors)]
            if step == "row" and t.ndim:
                tensors.append(t[0])
            elif step == "column" and t.ndim:
                tensors.append(t[..., -1])
            elif step == "transpose" and t.ndim == 2:
                tensors.append(t.t())
            elif step == "flat" and t.is_contiguous():
                tensors.append(t.view(-1))
            elif step == "mul":
                t.mul_(other.sum() * 0.1 + 1)
            elif step == "add":
                t.add_(other.mean())
            elif step == "tanh":
                t.tanh_()
            elif step == "set" and t.ndim:
                t[0] = other.sum() * 0.3
            elif step == "use":
                tensors.append(t * 2 - 1)
        total = tensors[0].sum()
        for t in tensors[1:]:
            total = total + (t * t).sum()
        return total

    x = norch.tensor([[0.1, -0.4], [0.3, 0.2]], dtype=norch.float64, requires_grad=True)
    assert gradcheck(function, (x,))


def test_recorded_add_needs_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that keeps nothing for its gradient writes over its operand, recorded or not."""
    w, v = norch.randn(5, 7, requires_grad=True), norch.randn(7, requires_grad=True)
    x = w * 2
    backend = norch.device("cpu").backend
    ran: list[str] = []
    compiled = type(backend).compile
    monkeypatch.setattr(type(backend), "compile", lambda self, op, *rest: ran.append(op) or compiled(self, op, *rest))
    x += w
    x -= v
    assert "copy" not in ran
    (x * x).sum().backward()
    exact = 3 * w.detach() - v.detach()
    assert norch.allclose(w.grad, 6 * exact, atol=1e-5)
    assert norch.allclose(v.grad, -2 * exact.sum(0), atol=1e-5)


@pytest.mark.parametrize("recorded", [False, True])
def test_relu_over_its_operand(recorded: bool) -> None:
    w = norch.randn(5, 7, requires_grad=recorded)
    x = w * 2
    place = x.data_ptr()
    assert norch.relu_(x) is x
    assert x.data_ptr() == place
    assert norch.equal(x.detach(), (w.detach() * 2).relu())
    if recorded:
        (x * 3).sum().backward()
        assert norch.equal(w.grad, 6 * (w.detach() > 0).to(w.dtype))
        w.grad = None
        y = norch.relu_(w * 2)
        y.add_(1)
        if norch.relu.op.into_plans[w.spec, w.spec].kernel is None:  # its parts were computed, and the result copied
            y.sum().backward()
            assert norch.equal(w.grad, 2 * (w.detach() > 0).to(w.dtype))
        else:  # what relu_ saved was changed
            with pytest.raises(AutogradError, match="relu"):
                y.sum().backward()


@pytest.mark.parametrize("made", [lambda x: x.repeat(1, 1), lambda x: x.tile(1, 1)], ids=["repeat", "tile"])
@pytest.mark.parametrize("view", [lambda v: v.transpose(0, 0), lambda v: v.view(1), lambda v: v[0]])
def test_the_shape_of_a_result_is_changed_after_a_view_of_it_was_made(made, view):
    """A view follows its base, which is the result: PyTorch's repeat is no view either."""
    x = norch.tensor(3.0, requires_grad=True)
    result = made(x)
    assert result.base is None
    seen = view(result)
    result.t_()
    assert norch.autograd.grad(seen.sum(), [result], retain_graph=True)[0].tolist() == [[1.0]]
    assert norch.autograd.grad(seen.sum(), [x])[0].item() == 1.0


@pytest.mark.parametrize("shape", [(17, 1), (1, 17), (3, 5), (5, 3)])
def test_the_trace_of_an_expanded_leaf(device, shape):
    a = norch.zeros(1, 1, device=device).expand(shape)
    a.requires_grad_()
    (grad,) = norch.autograd.grad(a.trace(), [a])
    assert grad.tolist() == [[float(i == j) for j in range(shape[1])] for i in range(shape[0])]


def test_the_gradient_of_a_slice_whose_base_is_used_in_another_layout():
    w = norch.tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    x = norch.ones(3, 2, requires_grad=True)
    base = norch.zeros(3, 4) + x.sum()
    base[:, 1:3] = x * 2
    (slope,) = norch.autograd.grad((base.T * w).sum(), x, create_graph=True)
    hidden = w.T[:, [0, 3]].sum()
    np.testing.assert_allclose(slope.detach().numpy(), (w.T[:, 1:3] * 2 + hidden).numpy())
    assert not norch.autograd.grad(slope.sum() + x.sum(), x)[0].sub(1).any()
