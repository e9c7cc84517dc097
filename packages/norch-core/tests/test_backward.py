"""What one backward pass does: where gradients go, what is freed, what is refused, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import norch
from norch import AutogradError, ShapeError, Tensor
from norch.autograd import grad
from norch.autograd.graph import Node
from norch.autograd.passes import leading_to

Call = Callable[[Tensor], Tensor]


def leaf(*values: float) -> Tensor:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


# --- Accumulation ---------------------------------------------------------------------------------------------------


def test_gradients_accumulate_into_the_tensor_that_is_there() -> None:
    x = leaf(1, 2)
    (x * 3).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first
    assert first.tolist() == [5, 7]
    x.grad = norch.zeros(2, dtype=norch.float64)
    given = x.grad
    (x * 3).sum().backward()
    assert given.tolist() == [3, 3]


def test_a_recorded_backward_pass_accumulates_into_a_new_tensor() -> None:
    x = leaf(1, 2)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    (x**2).sum().backward(create_graph=True)
    assert first.tolist() == [3, 12]
    assert x.grad.tolist() == [5, 16]
    (second,) = grad(x.grad.sum(), x)
    assert second.tolist() == [8, 14]
    (x * 10).sum().backward()
    assert x.grad.tolist() == [15, 26]


def test_gradients_of_a_view_accumulate_into_its_base() -> None:
    x = norch.ones(2, 3, dtype=norch.float64, requires_grad=True)
    for _ in range(2):
        (x[0] * 2 + x[1, ::2].sum() + x.t()[2, 1]).sum().backward()
    assert x.grad.tolist() == [[4, 4, 4], [6, 0, 12]]


VIEWS: dict[str, tuple[Call, list[float]]] = {
    "element": (lambda x: x[1], [0, 1, 0]),
    "part": (lambda x: x[1:], [0, 1, 1]),
    "stepped": (lambda x: x[::2], [1, 0, 1]),
    "expanded": (lambda x: x.expand(2, 3), [2, 2, 2]),
    "windows": (lambda x: x.unfold(0, 2, 1), [1, 2, 1]),
    "reshaped": (lambda x: x.view(3, 1).t(), [1, 1, 1]),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("how", ["first", "second", "hook", "both"])
def test_a_view_of_a_leaf_that_has_a_gradient_already(name: str, how: str) -> None:
    """Whether its part can be added where it is or not, and hooks see the whole gradient."""
    view, expected = VIEWS[name]
    x = leaf(1, 2, 3)
    seen: list[list[float]] = []
    start = 0.0
    if how != "first":
        x.grad, start = norch.ones(3, dtype=norch.float64), 1.0
    if how == "hook":
        x.register_hook(lambda g: seen.append(g.tolist()))
    y = view(x).sum() * 2
    if how == "both":
        y = y + view(x * 1).sum() + view(x).sum()
    y.backward()
    times = 4 if how == "both" else 2
    assert x.grad.tolist() == [start + times * v for v in expected]
    assert seen == ([[2 * v for v in expected]] if how == "hook" else [])


def test_a_gradient_is_in_memory_of_its_own() -> None:
    """Whoever holds the gradient of a result, or of a part of it, does not see the leaf's change."""
    for view in (lambda x: x.view(2, 1), lambda x: x.t(), lambda x: x + 0, lambda x: norch.cat([x, x.detach()])[:2]):
        x = leaf(1, 2)
        y = view(x)
        held: list[Tensor] = []
        y.register_hook(held.append)
        y.retain_grad()
        (y * 3).sum().backward()
        before = y.grad.tolist()
        x.grad.add_(1)
        assert y.grad.tolist() == held[0].tolist() == before
        (x * 1).sum().backward()
        assert y.grad.tolist() == before
        assert x.grad.tolist() == [5, 5]


def test_no_gradient_is_computed_that_is_not_asked_for() -> None:
    x, y = leaf(1, 4), leaf(3, 2)
    loss = norch.l1_loss(x, y, "sum")
    with norch.profiler.profile() as ops:
        (found,) = grad(loss, x, retain_graph=True)
    assert found.tolist() == [-1, 1]
    assert "neg" not in {event.key for event in ops.key_averages()}  # which is y's
    assert [g.tolist() for g in grad(loss, (x, y))] == [[-1, 1], [1, -1]]


def test_a_gradient_holds_no_more_memory_than_it_needs() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    constant = norch.zeros(1000, dtype=norch.float64)
    (norch.cat([x, constant, y]) * 2).sum().backward()
    x.expand(500, 2).sum().backward()
    for part in (x, y):
        assert part.grad.untyped_storage().nbytes() == 16
        part.grad.zero_()
    z = leaf(1, 2)
    z.sum().backward()  # the same number for all: one element, expanded
    z.grad[0] = 5
    assert z.grad.tolist() == [5, 1]


def test_one_result_of_several_is_enough() -> None:
    for chosen, expected in (((0,), [1, 1]), ((1,), [2, 2]), ((0, 1, 0), [4, 4])):
        x = leaf(1, 2)
        parts = norch.stack([x, x * 2]).unbind()
        sum(parts[i] for i in chosen).sum().backward()
        assert x.grad.tolist() == expected
    x = leaf(3, 1, 2)
    values, indices = x.sort()
    (values * 2 + values * norch.arange(3.0)).sum().backward()  # the same result twice
    assert x.grad.tolist() == [4, 2, 3]
    assert not indices.requires_grad
    x = leaf(3, 1, 2)
    values, _ = x.sort()
    values[0].backward()
    assert x.grad.tolist() == [0, 1, 0]


def test_an_operand_used_twice_in_one_op() -> None:
    x = leaf(2, 3)
    (x * x).sum().backward()
    (x + x).sum().backward()
    (x / x).sum().backward()
    assert x.grad.tolist() == [4 + 2, 6 + 2]
    y = leaf(2, 3)
    (y @ y).backward()
    assert y.grad.tolist() == [4, 6]


def test_younger_nodes_run_first() -> None:
    """A node waits for every op that used its result, whatever the order of recording of their other operands."""
    x = leaf(1)
    seen: list[str] = []

    def watched(value: Tensor, name: str) -> Tensor:
        value.register_hook(lambda g: seen.append(f"{name} {g.item():g}"))
        return value

    a = watched(x * 2, "a")
    b = watched(a * 3, "b")
    c = watched(a * 5, "c")
    d = watched(c * b, "d")
    watched(d + a, "e").backward()
    assert seen == ["e 1", "d 1", "c 6", "b 10", "a 61"]
    assert x.grad.item() == 122


# --- grad() ---------------------------------------------------------------------------------------------------------


def test_grad_of_an_output_itself_and_of_the_same_input_twice() -> None:
    x = leaf(1, 2)
    y = x * 3
    seed = norch.tensor([1.0, 10.0], dtype=norch.float64)
    by_y, by_x, again = grad(y, (y, x, x), seed)
    assert by_y.tolist() == [1, 10]
    assert by_x.tolist() == again.tolist() == [3, 30]
    assert x.grad is None


def test_grad_of_a_result_and_of_what_it_came_from() -> None:
    x = leaf(1, 2)
    y = x * 3
    z = (y * y).sum()
    by_y, by_x = grad(z, [y, x])
    assert by_y.tolist() == [6, 12]
    assert by_x.tolist() == [18, 36]


def test_grad_runs_hooks_but_those_of_other_leaves() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    calls: list[str] = []
    x.register_hook(lambda g: calls.append("x"))
    w.register_hook(lambda g: calls.append("w"))
    assert grad((x * w).sum(), x)[0].tolist() == [3, 4]
    assert calls == ["x"]


def test_unused_inputs_as_none_or_zeros() -> None:
    x, unused = leaf(1, 2), norch.ones(3, requires_grad=True)
    with pytest.raises(AutogradError, match=r"do not depend on input 1; pass allow_unused=True"):
        grad(x.sum(), (x, unused))
    assert grad(x.sum(), (x, unused), allow_unused=True)[1] is None
    zeros = grad(x.sum(), (x, unused), materialize_grads=True)[1]
    assert zeros.tolist() == [0, 0, 0]
    assert zeros.dtype is norch.float32
    with pytest.raises(AutogradError, match="an input does not require grad"):
        grad(x.sum(), norch.ones(2))


# --- What is freed --------------------------------------------------------------------------------------------------

FREED: dict[str, tuple[Call, str]] = {
    "mul": (lambda x: x * x, "mul"),
    "exp": (lambda x: x.exp(), "exp"),
    "matmul": (lambda x: x @ x, "matmul"),
    "softmax": (lambda x: x.softmax(0), "softmax"),
    "where": (lambda x: norch.where(x > 1, x, -x), "where"),
    "gather": (lambda x: x.gather(0, norch.tensor([1, 0])), "gather"),
    "index": (lambda x: x[[1, 0]], "index"),
    "sort": (lambda x: x.sort()[0], "sort"),
}


@pytest.mark.parametrize("name", FREED)
def test_a_second_backward_pass_names_the_op_whose_saved_tensors_are_gone(name: str) -> None:
    function, op = FREED[name]
    x = leaf(1, 2)
    y = function(x)
    y.sum().backward(retain_graph=True)
    first = x.grad.tolist()
    y.sum().backward()
    assert x.grad.tolist() == [2 * v for v in first]
    with pytest.raises(AutogradError, match=rf"what \w*{op}\w* saved .* is gone: .*retain_graph=True"):
        y.sum().backward()
    assert x.grad.tolist() == [2 * v for v in first]


def test_an_op_that_saves_nothing_can_be_differentiated_again() -> None:
    x = leaf(1, 2)
    y = x + 1
    y.sum().backward()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["backward", "grad"])
def test_seeds_that_do_not_fit(caller: str) -> None:
    x = leaf(1, 2)

    def run(outputs: Any, seeds: Any = None) -> None:
        if caller == "grad":
            grad(outputs, x, seeds)
        else:
            norch.autograd.backward(outputs, seeds)

    refused: list[tuple[Any, Any, type[Exception], str]] = [
        (x * 2, None, AutogradError, r"only for a scalar, not for shape \(2,\)"),
        ([x * 2, x.sum()], None, AutogradError, r"only for a scalar, not for shape \(2,\)"),
        (x * 2, norch.ones(3), ShapeError, r"gradient of shape \(3,\) for a tensor of shape \(2,\)"),
        (x * 2, norch.ones(2, 1), ShapeError, r"gradient of shape \(2, 1\)"),
        ([x.sum(), x.sum()], [norch.ones(())], AutogradError, "2 tensors but 1 gradients"),
        (x.sum(), [norch.ones(()), norch.ones(())], AutogradError, "1 tensors but 2 gradients"),
        (x.detach().sum(), None, AutogradError, r"a tensor of shape \(\) does not require grad"),
    ]
    for outputs, seeds, error, message in refused:
        with pytest.raises(error, match=rf"{caller}\(\): .*{message}"):
            run(outputs, seeds)
    assert x.grad is None


def test_a_seed_takes_the_dtype_of_its_tensor() -> None:
    x = leaf(1, 2)
    for seed in (norch.ones(2, dtype=norch.float16), norch.tensor([1, 1]), norch.tensor([True, True])):
        x.grad = None
        (x * 2).backward(seed)
        assert x.grad.dtype is norch.float64
        assert x.grad.tolist() == [2, 2]


def test_one_element_of_any_rank_needs_no_seed() -> None:
    x = leaf(3)
    for shape in ((), (1,), (1, 1, 1)):
        x.grad = None
        (x * 2).reshape(shape).backward()
        assert x.grad.tolist() == [2]


# --- What it leaves behind ------------------------------------------------------------------------------------------


def test_the_mode_of_recording_is_put_back() -> None:
    x = leaf(1, 2)
    modes: list[bool] = []
    y = x * 2
    y.register_hook(lambda g: modes.append(norch.is_grad_enabled()))
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    assert modes == [False, True]
    assert norch.is_grad_enabled()
    with norch.no_grad():
        y.sum().detach()
        norch.autograd.backward(y, norch.ones(2, dtype=norch.float64))
        assert not norch.is_grad_enabled()


@pytest.mark.parametrize("recording", [True, False])
def test_an_exception_in_a_hook_comes_through(recording: bool) -> None:
    x = leaf(1, 2)
    y = x * 2

    def broken(g: Tensor) -> None:
        raise ZeroDivisionError("in a hook")

    handle = y.register_hook(broken)
    with norch.set_grad_enabled(recording):
        with pytest.raises(ZeroDivisionError, match="in a hook"):
            norch.autograd.backward(y, norch.ones(2, dtype=norch.float64))
        assert norch.is_grad_enabled() is recording
    assert x.grad is None
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", [norch.bfloat16, norch.float64])
def test_a_given_gradient_is_cast_to_the_dtype_of_the_result(dtype):
    x, w = norch.ones(1, 2, 4, 4, dtype=dtype), norch.ones(3, 2, 3, 3, dtype=dtype, requires_grad=True)
    out = norch.ops.conv2d(x, w)
    out.backward(norch.ones(1, 3, 2, 2))
    assert w.grad.dtype is dtype
    assert w.grad.unique().tolist() == [4]


def test_zeros_for_gradients_that_are_not_there_can_be_differentiated():
    x, a = norch.tensor(0.5, requires_grad=True), norch.tensor(1.0, requires_grad=True)
    (first,) = norch.autograd.grad(x * a, x, create_graph=True)
    (second,) = norch.autograd.grad(first, x, create_graph=True, materialize_grads=True)
    assert (second.item(), second.requires_grad) == (0.0, True)
    assert norch.autograd.grad(second, x, materialize_grads=True)[0].item() == 0.0


class Unseen(Node):
    """A node whose edges nothing may ask for."""

    __slots__ = ()

    @property
    def edges(self) -> Any:
        raise AssertionError("a node that is older than every target was looked at")


def test_what_is_older_than_every_target_is_not_looked_at() -> None:
    old, target, between, root = Unseen(), Node(), Node(), Node()
    old.sequence_number, old.hooks = 1, None
    target.sequence_number, target.edges = 2, (old,)
    between.sequence_number, between.edges = 3, (target, old)
    root.sequence_number, root.edges = 4, (old, between, None)
    assert leading_to([root], {target: None}) == {target, between, root}
    assert leading_to([target, old], {between: None}) == set()
    assert leading_to([root], {}) == set()


def test_the_gradient_of_a_new_leaf_behind_a_long_graph() -> None:
    h = norch.ones(2, requires_grad=True)
    for _ in range(20):
        h = h * 1.5
        x = norch.zeros(2, requires_grad=True)
        y = ((h + x) ** 2).sum()
        (found,) = norch.autograd.grad(y, x, create_graph=True)
        h = h - 0.25 * found
    expected = (1.5 * 0.5) ** 20
    assert norch.allclose(h, norch.tensor(expected))
    (found,) = norch.autograd.grad(h.sum(), [x], allow_unused=True)
    assert found is None or found.shape == x.shape
