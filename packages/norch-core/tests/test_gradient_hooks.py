"""Hooks of leaves, which run as soon as their gradient is there."""

from __future__ import annotations

import copy
import gc
import threading
from typing import Any

import numpy as np
import pytest

import norch
from norch.autograd.hooks import hooked

Tensor = norch.Tensor


def leaf(*values: float) -> Tensor:
    return norch.tensor(values or (1, 2), dtype=norch.float32, requires_grad=True)


def watch(seen: list[Any], **tensors: Tensor) -> None:
    """Notes in `seen` the name of each of these tensors when its gradient is there."""
    for name, x in tensors.items():
        if x.is_leaf:
            x.register_post_accumulate_grad_hook(lambda p, name=name: seen.append(name))
        else:
            x.register_hook(lambda g, name=name: seen.append(name))


class Split(norch.autograd.Function):
    """Two results, and a gradient for the first of two operands alone."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * 1, b * 1

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        return g + h, None


# --- When they run --------------------------------------------------------------------------------------------------


def test_a_leaf_has_its_turn_before_the_ops_below_its_last_use() -> None:
    w, v, x = leaf(), leaf(), leaf()
    a = x.exp()
    b = a * w
    c = b * v
    seen: list[Any] = []
    watch(seen, w=w, v=v, x=x, a=a, b=b, c=c)
    v.register_post_accumulate_grad_hook(lambda p: seen.append((p is v, p.grad.tolist(), w.grad)))
    c.sum().backward()
    assert seen == ["c", "v", (True, b.tolist(), None), "b", "w", "a", "x"]


def test_a_leaf_used_twice_has_its_turn_once() -> None:
    w, x = leaf(), leaf()
    first = x * w
    middle = first.exp()
    seen: list[Any] = []
    watch(seen, w=w, x=x, middle=middle, first=first)
    w.register_hook(lambda g: seen.append("whole"))
    (middle * w + w).sum().backward()
    assert seen == ["middle", "first", "x", "whole", "w"]
    assert np.allclose(w.grad.numpy(), (middle + first * middle + 1).detach().numpy())


def test_a_leaf_that_is_both_operands() -> None:
    x = leaf(3)
    seen: list[Any] = []
    watch(seen, x=x)
    (x * x).sum().backward()
    assert (seen, x.grad.tolist()) == (["x"], [6])


def test_leaves_of_one_op_follow_each_other() -> None:
    a, b, w, bias = leaf(), leaf(), norch.ones(3, 2, requires_grad=True), norch.ones(3, requires_grad=True)
    seen: list[Any] = []
    watch(seen, a=a, b=b, w=w, bias=bias)
    (a * b).sum().backward()
    norch.linear(norch.ones(4, 2), w, bias).sum().backward()
    assert seen == ["a", "b", "bias", "w"]


def test_views_and_ops_of_several_results() -> None:
    x, y = norch.ones(4, 2, requires_grad=True), norch.ones(4, 2, requires_grad=True)
    seen: list[Any] = []
    before = y.exp()
    first, second = x.sort(0)[0].chunk(2)
    watch(seen, x=x, y=y, before=before)
    (first * 2 + second + x[1:3] + before.t().reshape(4, 2)[:2]).sum().backward()
    assert seen == ["x", "before", "y"]
    assert x.grad.sum().item() == 16


def test_what_gets_no_gradient_is_done_too() -> None:
    a, b, c = leaf(), leaf(), leaf()
    seen: list[Any] = []
    below = c.exp()
    watch(seen, a=a, b=b, c=c)
    b.register_hook(lambda g: seen.append("never"))
    first, _ = Split.apply(a, b + c * below)
    (first * c).sum().backward()
    assert sorted(seen) == ["a", "b", "c"]
    assert b.grad is None
    assert c.grad.tolist() == [1, 2]


def test_a_leaf_to_start_from() -> None:
    x = leaf(1)
    seen: list[Any] = []
    watch(seen, x=x)
    x.backward()
    norch.autograd.backward([x, x * 2, x])
    assert (seen, x.grad.tolist()) == (["x", "x"], [5])


def test_only_of_the_inputs_asked_for() -> None:
    x, w, v = leaf(), leaf(), leaf()
    seen: list[Any] = []
    y = (x * w).exp()
    watch(seen, x=x, w=w, v=v, y=y)
    loss = (y * v * w).sum()
    loss.backward(inputs=[w, v], retain_graph=True)
    assert seen == ["v", "y", "w"]
    assert x.grad is None
    seen.clear()
    loss.backward(inputs=w, retain_graph=True)
    loss.backward(inputs=[v, v], retain_graph=True)
    assert seen == ["y", "w", "v"]
    assert v.grad.tolist() == (2 * y * w).tolist()
    seen.clear()
    (found,) = norch.autograd.grad(loss, w)
    assert seen == ["y"]
    assert np.allclose((2 * found).numpy(), w.grad.numpy())


def test_hooks_of_what_leads_to_no_input_stay_silent() -> None:
    x, w = leaf(), leaf()
    seen: list[Any] = []
    y, z = x * 2, w * 2
    watch(seen, y=y, z=z)
    norch.autograd.backward([y.sum(), z.sum()], inputs=[w])
    norch.autograd.backward([y, z], [norch.ones(2)] * 2, inputs=[w])
    assert seen == ["z", "z"]


def test_a_second_pass_and_a_recorded_one() -> None:
    x, w = leaf(), leaf()
    seen: list[Any] = []
    watch(seen, x=x, w=w)
    loss = (x.exp() * w * w).sum()
    loss.backward(retain_graph=True)
    loss.backward(create_graph=True)
    assert seen == ["w", "x", "w", "x"]
    seen.clear()
    x.grad.sum().backward(inputs=[x])
    assert seen == ["x"]


def test_a_pass_inside_of_a_pass() -> None:
    outer, inner = leaf(), leaf()
    seen: list[Any] = []
    watch(seen, outer=outer, inner=inner)

    class Again(norch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * inner

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            with norch.enable_grad():
                y = norch.ones(2, requires_grad=True)
                (y * inner).backward(g)
            seen.append("again")
            return y.grad

    (Again.apply(outer.exp()) * outer).sum().backward()
    assert seen == ["inner", "again", "outer"]


def test_an_exception_ends_the_pass_and_the_next_begins_anew() -> None:
    x, w = leaf(), leaf()

    def fail(p: Tensor) -> None:
        raise ZeroDivisionError("in a hook")

    handle = w.register_post_accumulate_grad_hook(fail)
    with pytest.raises(ZeroDivisionError, match="in a hook"):
        (x.exp() * w).sum().backward()
    assert (x.grad, w.grad is None) == (None, False)
    assert norch.is_grad_enabled()
    handle.remove()
    w.grad = None
    (x * w).sum().backward()
    assert w.grad.tolist() == x.tolist()


def test_threads_count_for_themselves() -> None:
    w = norch.zeros(2, requires_grad=True)
    seen: list[Any] = []
    watch(seen, w=w)

    def run() -> None:
        for _ in range(20):
            x = leaf()
            (x.exp() * w + w * 2).sum().backward()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80
    assert np.allclose(w.grad.numpy(), 80 * (np.exp([1, 2]) + 2), rtol=1e-5)


def test_a_hook_that_is_set_during_the_pass() -> None:
    x, w = leaf(), leaf()
    seen: list[Any] = []
    for known in ({}, {"x": x}):  # where leaves have no hooks yet, and where one has
        y = (x * w).exp()
        watch(seen, **known)
        handle = []
        y.register_hook(lambda g: handle.append(w.register_post_accumulate_grad_hook(lambda p: seen.append("w"))))  # noqa: B023
        w.grad = None
        (y * w).sum().backward()
        handle[0].remove()
        assert np.allclose(w.grad.numpy(), (y + x * w * y).detach().numpy())
    assert sorted(seen) == ["w", "w", "x"]


# --- What they cost -------------------------------------------------------------------------------------------------


def test_nothing_is_counted_where_no_leaf_has_hooks() -> None:
    gc.collect()
    before = len(hooked)
    x = leaf()
    handles = [x.register_hook(print), x.register_post_accumulate_grad_hook(print)]
    assert len(hooked) == before + 2
    for handle in handles:
        handle.remove()
        handle.remove()
    assert len(hooked) == before
    (x * 2).register_hook(print)
    assert len(hooked) == before
    x.register_hook(print)
    del x, handle, handles
    gc.collect()
    assert len(hooked) == before


def test_a_gradient_is_not_copied_for_hooks() -> None:
    x, seen = leaf(), []
    x.register_hook(lambda g: seen.append(g.data_ptr()))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.data_ptr()))
    x.exp().sum().backward()
    assert seen[0] == seen[1]


def test_a_long_chain() -> None:
    x, w = leaf(1), leaf(1)
    seen: list[Any] = []
    watch(seen, w=w, x=x)
    y = x
    for _ in range(5_000):
        y = y * w
    y.sum().backward()
    assert (seen, w.grad.tolist()) == (["x", "w"], [5_000])


# --- Whose they are -------------------------------------------------------------------------------------------------


def test_hooks_outlive_a_time_without_grad_but_are_not_copied() -> None:
    x = leaf()
    seen: list[Any] = []
    watch(seen, x=x)
    x.requires_grad_(False)
    duplicate = copy.deepcopy(x).requires_grad_()
    x.requires_grad_(True)
    (duplicate * copy.deepcopy(x)).sum().backward()
    assert seen == []
    x.sum().backward()
    assert seen == ["x"]


def test_hooks_of_the_node_that_accumulates() -> None:
    x, seen = leaf(), []
    node = x.expand_as(x).grad_fn.next_functions[0][0]
    assert node.variable is x
    node.register_hook(lambda into, out: seen.append(("hook", into, [g.tolist() for g in out])))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad.tolist())))
    handle = node.register_prehook(lambda out: (out[0] + 1,))
    x.register_hook(lambda g: g * 10)
    (x * 2).sum().backward()
    assert seen == [("after", [21, 21]), ("hook", (), [[21, 21]])]
    handle.remove()
    seen.clear()
    (x * 2).sum().backward()
    assert seen == [("after", [41, 41]), ("hook", (), [[20, 20]])]


def test_a_hook_on_several_gradients():
    from norch.autograd.graph import register_multi_grad_hook

    a, b, c = (norch.tensor([1.0], requires_grad=True) for _ in range(3))
    seen, first = [], []
    with register_multi_grad_hook((a, b, c), lambda grads: seen.append([g and g.item() for g in grads])):
        handle = register_multi_grad_hook([a, b], lambda grad: first.append(grad.item()), mode="any")
        (2 * a + 3 * b + 4 * c).sum().backward()
        (a * b).sum().backward()
    assert seen == [[2.0, 3.0, 4.0], [1.0, 1.0, None]]
    assert len(first) == 2
    handle.remove()
    (a * b).sum().backward()
    assert (len(seen), len(first)) == (2, 2)
    with pytest.raises(ValueError, match="mode"):
        register_multi_grad_hook((a,), print, mode="some")
    with pytest.raises(norch.AutogradError, match="require grad"):
        register_multi_grad_hook((norch.ones(1),), print)


def test_a_hook_on_several_gradients_after_a_pass_that_raised():
    from norch.autograd.graph import register_multi_grad_hook

    a, b = (norch.tensor([1.0], requires_grad=True) for _ in range(2))
    seen = []
    register_multi_grad_hook((a, b), seen.append)
    broken = b * 2
    handle = broken.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (a * 2 + broken).sum().backward()
    handle.remove()
    (a * 3 + b).sum().backward()
    assert [[g.item() for g in grads] for grads in seen] == [[3.0, 1.0]]
