"""Modes that are asked for ops by PyTorch's names: counters of operations, logs, and what changes results."""

from __future__ import annotations

import copy
import threading
from collections import Counter

import pytest

import norch
from norch import observing
from norch.compat.aten import aten
from norch.compat.dispatch_modes import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
)


class Log(TorchDispatchMode):
    def __init__(self):
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((str(func), [tuple(a.shape) for a in args if isinstance(a, norch.Tensor)]))
        return out

    @property
    def names(self):
        return [name.removeprefix("aten.") for name, _ in self.calls]


def test_ops_have_pytorchs_names():
    """These are the names that PyTorch 2.13 gives the same program, but for detach()."""
    with Log() as log:
        a = norch.zeros(2, 3)
        a += 1
        a.mul_(2)
        b = norch.cat([a, norch.ones(2, 3) * a])
        b[1:, 0]
        a.copy_(b[:2]).zero_()
        norch.full((2,), 3.0).softmax(-1)
        norch.randn(2, 2).exp().to(norch.float64).sum(0)
        assert a[0, 0].item() == 0
    assert (
        log.names
        == (
            "zeros.default add_.Tensor mul_.Tensor ones.default mul.Tensor cat.default slice.Tensor select.int "
            "slice.Tensor copy_.default zero_.default full.default _softmax.default randn.default exp.default "
            "_to_copy.default sum.dim_IntList select.int select.int _local_scalar_dense.default"
        ).split()
    )


@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (2, 3, 5)),
                                    ((2, 6, 4, 3), (6, 3, 5)), ((2, 4, 3), (3,)), ((3,), (3,))], ids=str)  # fmt: skip
def test_products_are_taken_apart(shapes):
    a, b = [norch.randn(shape).requires_grad_() for shape in shapes]
    expected = a @ b
    with Log() as log:
        found = a @ b
    norch.testing.assert_close(found, expected)
    products = [
        (name, given) for name, given in log.calls if name.endswith(("mm.default", "mv.default", "dot.default"))
    ]
    if len(shapes[1]) == 1:
        assert len(products) == (len(shapes[0]) == 1)
    else:
        name, (first, second) = products[0]
        assert len(products) == 1
        assert name == ("aten.bmm.default" if len(shapes[1]) > 2 else "aten.mm.default")
        assert norch.Size(first).numel() == max(a.numel(), norch.Size(expected.shape).numel() // 5 * 3)
        assert second[-2:] == (3, 5)
    grads = norch.autograd.grad(expected.sum(), (a, b)), norch.autograd.grad(found.sum(), (a, b))
    norch.testing.assert_close(*grads)


def test_a_linear_layer_and_its_backward_pass():
    x, w, bias = norch.randn(2, 3, 4), norch.randn(5, 4).requires_grad_(), norch.randn(5).requires_grad_()
    expected = norch.autograd.grad(norch.linear(x, w, bias).square().sum(), (w, bias))
    with Log() as log:
        found = norch.autograd.grad(norch.linear(x, w, bias).square().sum(), (w, bias))
    norch.testing.assert_close(found, expected)
    assert log.calls[1:3] == [("aten.t.default", [(5, 4)]), ("aten.addmm.default", [(5,), (6, 4), (4, 5)])]
    assert ("aten.mm.default", [(5, 6), (6, 4)]) in log.calls


def test_what_a_mode_gives_is_the_result():
    class Doubled(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is aten.sin.default else out

    class InFloat64(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is not aten.addmm.default:
                return func(*args, **(kwargs or {}))
            return func(*[a.double() for a in args]).float()

    x = norch.tensor([1.0], requires_grad=True)
    with Doubled():
        y = x.sin()
    y.backward()
    norch.testing.assert_close(y, 2 * x.sin())
    norch.testing.assert_close(x.grad, 2 * x.detach().cos())
    w = norch.randn(3, 1).requires_grad_()
    with InFloat64():
        norch.linear(x, w, norch.zeros(3)).sum().backward()
    assert w.grad.tolist() == [[1], [1], [1]]


def test_of_nested_modes_the_inner_one_is_asked_first():
    with Log() as outer, Log() as inner:
        norch.ones(2).exp()
        assert _get_current_dispatch_mode() is inner
        assert _get_current_dispatch_mode_stack() == [outer, inner]
        with _disable_current_modes():
            norch.ones(2).cos()
    assert inner.names == outer.names == ["ones.default", "exp.default"]
    assert _get_current_dispatch_mode() is None


def test_counters_know_ops_by_packets_and_by_names():
    class Counting(TorchDispatchMode):
        def __init__(self):
            self.counts = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.counts[func._overloadpacket] += 1
            self.counts[func._schema.name] += 1
            return func(*args, **(kwargs or {}))

    with Counting() as counting:
        norch.ones(2, 2) @ norch.ones(2, 2)
    known = copy.deepcopy({aten.mm: 1})
    assert known == {aten.mm: 1}
    assert counting.counts[aten.mm] == counting.counts["aten::mm"] == 1


def test_a_mode_is_of_its_thread_and_costs_nothing_outside():
    plain = norch.exp.__code__
    with Log() as log:
        other = threading.Thread(target=lambda: norch.ones(2).exp())
        other.start()
        other.join()
        assert norch.exp.__code__ is not plain
    assert log.names == []
    assert norch.exp.__code__ is plain


def test_observers_are_told_beside_modes():
    class Seen(observing.Observer):
        names = []

        def entered(self, what, args, kwargs):
            self.names.append(what.name)

    with observing.observed_by(Seen()), Log() as log:
        norch.ones(2).exp()
    assert (Seen.names, log.names) == (["fill", "exp"], ["ones.default", "exp.default"])


def test_a_mode_that_says_nothing_is_refused():
    class Silent(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with Silent(), pytest.raises(TypeError, match=r"Silent gives nothing for aten.ones.default"):
        norch.ones(2)
    with TorchDispatchMode(), pytest.raises(NotImplementedError):
        norch.ones(2)
    assert norch.ones(2).tolist() == [1, 1]
