"""The backward pass, and hooks."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch import AutogradError
from norch.autograd import grad

Tensor = norch.Tensor


def leaf(*values: float) -> Tensor:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


# --- backward() and grad() ------------------------------------------------------------------------------------------


def test_gradients_add_up() -> None:
    x = leaf(1, 2)
    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [5, 7]
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]
    x.zero_grad()
    assert x.grad is None


def test_accumulation_does_not_change_what_others_hold() -> None:
    x = leaf(1, 2)
    seed = norch.ones(2, dtype=norch.float64)
    (x * 1).backward(seed)
    first = x.grad
    held = first.clone()
    (x + 0).backward(seed)
    assert seed.tolist() == [1, 1]
    assert x.grad.tolist() == [2, 2]
    assert held.tolist() == [1, 1]
    y = leaf(1, 2)
    (y + y.detach()).backward(seed)
    y.grad.add_(5)
    assert seed.tolist() == [1, 1]


def test_two_leaves_do_not_share_a_gradient() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    (x + y).sum().backward()
    x.grad.mul_(10)
    assert y.grad.tolist() == [1, 1]


def test_broadcast_operands_get_summed_gradients() -> None:
    x, y = norch.ones(3, 1, requires_grad=True), norch.ones(4, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.tolist() == [[4], [4], [4]]
    assert y.grad.tolist() == [3, 3, 3, 3]


def test_gradients_have_the_dtype_of_their_tensor() -> None:
    x, y = norch.ones(2, requires_grad=True), leaf(1, 2)
    (x * y).sum().backward()
    assert x.grad.dtype is norch.float32
    assert y.grad.dtype is norch.float64


def test_retain_graph() -> None:
    x = leaf(2)
    y = (x**3).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [24]
    with pytest.raises(AutogradError, match="retain_graph=True"):
        y.backward()


def test_the_part_of_a_graph_that_was_freed() -> None:
    x = leaf(2)
    shared = x.exp()
    shared.sum().backward()
    with pytest.raises(AutogradError, match="exp"):
        (shared * 2).sum().backward()


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 2, lambda x: x + 1, lambda x: x.sum(0), lambda x: x.t(), lambda x: x[:1], lambda x: x.mean()]
    + [lambda x: x.reshape(-1), lambda x: x / 4, lambda x: norch.cat([x, x])],
)
def test_a_graph_that_saved_no_tensor_is_differentiated_any_number_of_times(function: Callable[[Any], Any]) -> None:
    x = leaf(1, 2)
    y = function(x)
    y.sum().backward()
    once = x.grad.tolist()
    y.sum().backward()
    assert x.grad.tolist() == [2 * v for v in once]


def test_grad_frees_nothing_above_its_inputs() -> None:
    x = leaf(1, 2)
    y = x.exp()
    (by_y,) = grad((y * y).sum(), y)
    y.backward(by_y)
    assert x.grad.tolist() == pytest.approx([2 * math.exp(2), 2 * math.exp(4)])


def test_what_grad_returns_can_be_changed_in_place() -> None:
    x = leaf(1, 2)
    (found,) = grad(x.mean(), x)
    found.mul_(norch.tensor([1.0, 2.0], dtype=norch.float64))
    assert found.tolist() == [0.5, 1]


def test_create_graph_and_higher_derivatives() -> None:
    x = leaf(2)
    y = (x**4).sum()
    expected = [32.0, 48.0, 48.0, 24.0]
    for value in expected:
        (y,) = grad(y, x, create_graph=True)
        assert y.tolist() == [value]
    x.sin().sum().backward(create_graph=True)
    assert x.grad.requires_grad
    (second,) = grad(x.grad.sum(), x)
    assert second.item() == pytest.approx(-norch.tensor(2.0, dtype=norch.float64).sin().item())
    assert not second.requires_grad


def test_grad_touches_no_leaf() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    a, b = grad((x * y).sum(), [x, y])
    assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])
    assert x.grad is None
    assert y.grad is None


def test_grad_of_several_outputs_with_weights() -> None:
    x = leaf(1, 2)
    (found,) = grad([x * 2, x * x], x, [norch.ones(2, dtype=norch.float64), leaf(1, 10).detach()])
    assert found.tolist() == [4, 42]


def test_grad_of_results_in_the_middle() -> None:
    x = leaf(3)
    y = x * 2
    z = y * y
    by_y, by_x = grad(z.sum(), [y, x])
    assert (by_y.item(), by_x.item()) == (12, 24)
    (own,) = grad(x, x, norch.ones(1, dtype=norch.float64))
    assert own.item() == 1


def test_unused_inputs() -> None:
    x, y = leaf(1), leaf(2, 3)
    with pytest.raises(AutogradError, match="input 1"):
        grad((x * 2).sum(), [x, y], retain_graph=True)
    assert grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
    assert grad((x * 2).sum(), [x, y], materialize_grads=True)[1].tolist() == [0, 0]


def test_checks_of_gradients_take_the_arguments_of_pytorch() -> None:
    x = norch.tensor([0.5, -2.0], dtype=norch.float64, requires_grad=True)
    assert norch.autograd.gradcheck(lambda x: x**3, x, nondet_tol=0.0, check_undefined_grad=False, masked=None)
    weights = norch.ones(2, dtype=norch.float64, requires_grad=True)
    assert norch.autograd.gradgradcheck(lambda x: x**3, x, weights, check_fwd_over_rev=True)


def test_gradients_that_change_from_pass_to_pass_are_found() -> None:
    class Jitter(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x, size):
            ctx.size = size
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * (1 + norch.rand_like(g) * ctx.size), None

    x = norch.ones(3, dtype=norch.float64, requires_grad=True)
    assert norch.autograd.gradcheck(lambda x: Jitter.apply(x, 0.0), x)
    assert norch.autograd.gradcheck(lambda x: Jitter.apply(x, 1e-6), x, nondet_tol=1e-5)
    with pytest.raises(AutogradError, match="Backward is not reentrant"):
        norch.autograd.gradcheck(lambda x: Jitter.apply(x, 1e-6), x)
    assert not norch.autograd.gradcheck(lambda x: Jitter.apply(x, 1e-6), x, raise_exception=False)


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda leaves: dict(enumerate(leaves)).values()])
def test_any_iterable_of_tensors(kind) -> None:
    a, b = norch.ones(2, requires_grad=True), norch.ones(2, requires_grad=True)
    found = norch.autograd.grad(kind([(a * 3).sum(), (b * 2 * a).sum()]), kind([a, b]), kind([norch.tensor(1.0)] * 2))
    assert [g.tolist() for g in found] == [[5.0, 5.0], [2.0, 2.0]]
    norch.autograd.backward(kind([(a * 3).sum(), (b * 2).sum()]), inputs=kind([b]))
    assert (a.grad, b.grad.tolist()) == (None, [2.0, 2.0])
    rows = norch.autograd.grad(kind([a * b]), kind([a, b]), kind([norch.eye(2)]), is_grads_batched=True)
    assert [g.tolist() for g in rows] == [norch.eye(2).tolist()] * 2


def test_backward_into_chosen_inputs() -> None:
    x, y = leaf(1), leaf(2)
    (x * y).sum().backward(inputs=[x])
    assert x.grad.item() == 2
    assert y.grad is None
    z = x * x
    (z * z).sum().backward(inputs=(z, y), create_graph=True, retain_graph=True)
    assert z.grad.item() == 2
    assert z.grad.requires_grad
    assert x.grad.item() == 2
    z.grad.sum().backward(inputs=x)
    assert x.grad.item() == 2 + 4
    assert y.grad is None


def test_backward_of_several_tensors() -> None:
    x = leaf(1, 2)
    norch.autograd.backward([(x * 2).sum(), (x * 3).sum()])
    assert x.grad.tolist() == [5, 5]


def test_leaves() -> None:
    x = leaf(1)
    y = x * 2
    assert x.is_leaf
    assert not y.is_leaf
    assert y.detach().is_leaf
    assert x.grad_fn is None
    assert y.grad_fn.name() == "mul_backward"
    assert y.grad_fn.next_functions[0][0].name() == "accumulate_grad"
    assert not norch.zeros(1).requires_grad
    z = norch.zeros(1, dtype=norch.float64)
    z.requires_grad = True
    assert (z + 1).requires_grad
    assert not z.requires_grad_(False).requires_grad
    assert not (x > 0).requires_grad
    assert not x.argmax().requires_grad


# --- Hooks ----------------------------------------------------------------------------------------------------------


def test_gradients_that_are_set_must_fit() -> None:
    x = leaf(1, 2)
    for wrong in (norch.ones(3, dtype=norch.float64), norch.ones(2), norch.ones(1, 2, dtype=norch.float64)):
        with pytest.raises(norch.ShapeError, match=r"grad: .*shape \(2,\), norch.float64"):
            x.grad = wrong
    with pytest.raises(norch.DTypeError, match="grad: expected a Tensor or None, got list"):
        x.grad = [1.0, 2.0]  # type: ignore[assignment]
    x.grad = norch.ones(2, dtype=norch.float64)
    del x.grad
    assert x.grad is None


def test_detach_in_place() -> None:
    x = leaf(1, 2)
    y = x * 2
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad
    view = (x * 2)[:1]
    with pytest.raises(AutogradError, match=r"detach_\(\): a view"):
        view.detach_()
    assert x.detach_().is_leaf
    assert not x.requires_grad


def test_hooks_see_and_replace_gradients() -> None:
    x = leaf(1, 2)
    seen: list[list[float]] = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    handle = y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    y.sum().backward(retain_graph=True)
    assert seen == [[1, 1]]
    assert x.grad.tolist() == [21, 21]
    handle.remove()
    handle.remove()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]
    with x.register_hook(lambda g: g * 0):
        (x * 1).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_hook_sees_the_whole_gradient_once() -> None:
    x = leaf(1)
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2 + x * 3 + x.sin() * 0).sum().backward()
    assert seen == [5]


def test_retain_grad() -> None:
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    (y * y).sum().backward()
    assert y.retains_grad
    assert y.grad.tolist() == [12, 24]
    assert (x * 2).grad is None


# --- Threads --------------------------------------------------------------------------------------------------------


def test_no_thread_loses_what_another_adds_to_the_gradient_of_one_leaf() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            x = norch.zeros(300_000, requires_grad=True)
            threads = [threading.Thread(target=lambda x=x: x.sum().backward()) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert bool((x.grad == 8).all())
    finally:
        sys.setswitchinterval(interval)


def test_backward_in_threads() -> None:
    x, results = leaf(*range(50)), []

    def work(factor: float) -> None:
        results.extend((factor, grad((x * factor).sin().sum(), x)[0].tolist()) for _ in range(20))

    threads = [threading.Thread(target=work, args=(f,)) for f in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    assert all(found == grad((x * f).sin().sum(), x)[0].tolist() for f, found in results)


def test_gradients_of_several_views_meet_in_one() -> None:
    x = norch.arange(24, dtype=norch.float64).reshape(4, 6).requires_grad_()
    y = x * 2
    a, b, c = y.split(2, 1)
    loss = (a * 1 + b * 2 + c * 3).sum() + (y[0] * 10).sum() + y.T[1].sum() + (y * y).sum() + y[::2, 1:3].sum()
    loss.backward()
    want = np.repeat([1.0, 2.0, 3.0], 2) + np.zeros((4, 1))
    want[0] += 10
    want[:, 1] += 1
    want[::2, 1:3] += 1
    want += 2 * 2 * np.arange(24).reshape(4, 6)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), want * 2)


def test_a_gradient_that_others_hold_is_not_changed() -> None:
    x = norch.ones(4, dtype=norch.float64, requires_grad=True)
    y = x * 1
    g = norch.ones(4, dtype=norch.float64)
    seen: list[Any] = []
    y.register_hook(seen.append)
    (second,) = norch.autograd.grad([y, y[1:3]], [x], [g, norch.ones(2, dtype=norch.float64)])
    assert second is not None
    assert second.tolist() == [1, 2, 2, 1]
    assert g.tolist() == [1, 1, 1, 1]
