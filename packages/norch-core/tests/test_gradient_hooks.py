"""Hooks of leaves, which run as soon as their gradient is there, and marks of changed memory."""

from __future__ import annotations

import copy
import gc
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch import AutogradError
from norch.autograd import graph
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


# --- As PyTorch -----------------------------------------------------------------------------------------------------


def random_program(lib: Any, seed: int) -> tuple[list[str], list[Any]]:
    """A graph of random ops that `lib` differentiates: the order in which its hooks ran, and the gradients."""
    draw = random.Random(seed)
    seen: list[str] = []
    leaves = [lib.full((2, 3), 0.1 * (i + 1), requires_grad=True) for i in range(draw.randint(1, 6))]
    for i, x in enumerate(leaves):
        if draw.random() < 0.8:
            x.register_post_accumulate_grad_hook(lambda p, i=i: seen.append(f"leaf {i}"))
    ops: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: a.sin(),
        lambda a, b: lib.cat([a, b])[:2],
        lambda a, b: a.t().t(),
        lambda a, b: (a - b).clone(),
        lambda a, b: a.unbind(0)[0].expand(2, 3) + b,
        lambda a, b: a.sort(0)[0] * b,
        lambda a, b: a @ b.t() @ a,
        lambda a, b: a.detach() * b,
        lambda a, b: lib.where(a > 0.2, a, b),
    ]
    values = list(leaves)
    for i in range(draw.randint(1, 25)):
        out = draw.choice(ops)(draw.choice(values[-6:] + leaves), draw.choice(values))
        if draw.random() < 0.4 and out.requires_grad:
            out.register_hook(lambda g, i=i: seen.append(f"op {i}"))
        values.append(out)
    ends = [x for x in draw.sample(values, min(len(values), draw.randint(1, 3))) if x.requires_grad]
    inputs = leaves if draw.random() < 0.3 else None
    lib.autograd.backward(ends, [lib.ones(2, 3) for _ in ends], inputs=inputs)
    return seen, [x.grad for x in leaves]


RECORDED = {
    0: ["op 12", "op 10", "leaf 0", "leaf 2", "op 1", "leaf 3", "leaf 1"],
    6: ["op 14", "leaf 2", "op 9", "leaf 1", "leaf 4", "op 0"],
    19: ["leaf 0", "op 3", "leaf 4", "leaf 2", "op 0", "leaf 3"],
    37: ["leaf 5", "op 3", "leaf 4", "leaf 0", "leaf 2"],
    58: ["op 9", "leaf 4", "op 2", "leaf 1", "leaf 3"],
    75: ["op 15", "op 12", "op 8", "op 6", "op 3", "leaf 0", "op 1", "leaf 1", "leaf 2"],
    88: ["op 17", "op 12", "leaf 2", "op 11", "op 5", "leaf 1", "leaf 3"],
    92: ["op 11", "leaf 2", "op 7", "leaf 3", "leaf 1"],
}


def test_the_order_of_a_random_program() -> None:
    """As PyTorch 2.13 has it."""
    assert [random_program(norch, seed)[0] for seed in RECORDED] == list(RECORDED.values())


def test_the_order_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for seed in range(300):
        (expected, theirs), (seen, ours) = random_program(torch, seed), random_program(norch, seed)
        assert seen == expected, seed
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None), seed
            assert a is None or np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5), seed


# --- Memory that something else changed -----------------------------------------------------------------------------


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
