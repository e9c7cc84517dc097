"""`saved_tensors_hooks`: what ops and Functions save is packed, unpacked for the gradient, and nothing else changes."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np
import pytest

import norch
from norch import AutogradError
from norch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks


class Log:
    """Packs tensors as arrays, and counts."""

    def __init__(self) -> None:
        self.packed: list[tuple[int, ...]] = []
        self.unpacked = 0

    def pack(self, tensor: Any) -> Any:
        self.packed.append(tuple(tensor.shape))
        return tensor.dtype, tensor.device, tensor.detach().cpu().numpy().copy()

    def unpack(self, kept: Any) -> Any:
        self.unpacked += 1
        dtype, device, array = kept
        out = norch.empty(array.shape, dtype=dtype, device=device)
        return out.copy_(norch.from_numpy(array))  # written after it was saved: no change in place of what was saved

    def hooks(self) -> Any:
        return saved_tensors_hooks(self.pack, self.unpack)


def leaf(*shape: int) -> Any:
    values = np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape)
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


FUNCTIONS: dict[str, Any] = {
    "mul": lambda x: x * (x + 1),
    "exp": lambda x: x.exp(),
    "matmul": lambda x: x @ x.mT,
    "softmax": lambda x: x.softmax(-1).square(),
    "max": lambda x: x.max(-1)[0] ** 2,
    "view": lambda x: x[0].sin() * x.mT[:, 1],
    "in place": lambda x: (x * 2).exp_().mul_(x),
    "where": lambda x: norch.where(x > 1, x.log(), x.sqrt()),
    "layer_norm": lambda x: norch.layer_norm(x, (4,), x[0], x[1]),
    "cat": lambda x: norch.cat([x, x * x]).tanh(),
    "cholesky": lambda x: norch.linalg.cholesky(x @ x.mT + norch.eye(3, dtype=x.dtype, device=x.device)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_and_their_gradients_are_the_same(name: str) -> None:
    function, x, log = FUNCTIONS[name], leaf(3, 4), Log()
    plain = function(x)
    with log.hooks():
        hooked = function(x)
    assert log.packed
    assert log.unpacked == 0
    found = []
    for y in (plain, hooked):
        (first,) = norch.autograd.grad(y.square().sum(), x, create_graph=True)
        (second,) = norch.autograd.grad(first.sin().sum(), x)
        found.append((y, first, second))
    assert log.unpacked
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.detach().cpu().numpy(), b.detach().cpu().numpy())


def test_what_is_packed() -> None:
    x, log = leaf(3), Log()
    with log.hooks():
        y = (x * x).exp().sum()
    assert log.packed == [(3,), (3,), (3,)]
    assert (x + 1).exp().grad_fn is not None
    assert len(log.packed) == 3  # nothing after the context
    y.backward()
    assert log.unpacked == 3
    np.testing.assert_allclose(x.grad.cpu().numpy(), [2 * v * math.exp(v * v) for v in x.tolist()])
    with pytest.raises(AutogradError, match="is gone"):
        y.backward()


def test_memory_that_is_packed_is_not_held() -> None:
    log = Log()
    with log.hooks():
        x = leaf(3)
        inner = x * 2
        refs = sys.getrefcount(inner.buffer)
        y = inner.exp() * inner
    after = sys.getrefcount(inner.buffer)  # outside the assertion, which holds what it shows
    assert after == refs
    y.sum().backward()
    with saved_tensors_hooks(lambda t: t, lambda t: t):  # what a hook keeps, it may see again as it was
        kept: list[Any] = []
        with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            z = (x * 1).exp().sum()
    before = kept[0].tolist()
    z.backward()
    assert kept[0].tolist() == before


def test_retained_graphs_unpack_again() -> None:
    x, log = leaf(3), Log()
    with log.hooks():
        y = x.sin().sum()
    y.backward(retain_graph=True)
    y.backward()
    assert log.unpacked == 2
    np.testing.assert_allclose(x.grad.cpu().numpy(), [2 * math.cos(v) for v in x.tolist()])


class Cube(norch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, None)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, nothing = ctx.saved_tensors
        assert nothing is None
        return grad * 3 * x * x


def test_what_functions_save() -> None:
    x, log = leaf(3), Log()
    with log.hooks():
        y = Cube.apply(x)
    assert log.packed == [(3,)]
    (first,) = norch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = norch.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.cpu().numpy(), [6 * v for v in x.tolist()])
    assert log.unpacked == 1


def test_nested_contexts_the_innermost_counts() -> None:
    x, outer, inner = leaf(3), Log(), Log()
    with outer.hooks():
        with inner.hooks():
            x.exp()
        assert (len(outer.packed), len(inner.packed)) == (0, 1)
        x.exp()
    assert (len(outer.packed), len(inner.packed)) == (1, 1)


def test_other_threads_are_not_concerned() -> None:
    x, log = leaf(3), Log()
    grads: list[Any] = []

    def work() -> None:
        grads.extend(norch.autograd.grad(x.sin().sum(), x))

    with log.hooks():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not log.packed
    np.testing.assert_allclose(grads[0].cpu().numpy(), np.cos(x.tolist()))


def test_wrong_hooks() -> None:
    x = leaf(3)
    with saved_tensors_hooks(lambda t: t, lambda t: 3):  # type: ignore[arg-type, return-value]
        y = x.exp()
    with pytest.raises(TypeError, match="unpack must return a tensor, got int"):
        y.sum().backward()
    with saved_tensors_hooks(lambda t: t.add_(1), lambda t: t), pytest.raises(AutogradError, match="in place"):
        (x * 1).exp()
    assert type((x * 1).exp().grad_fn) is not type(y.grad_fn)


def test_disabled() -> None:
    with disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), Log().hooks():
            pass
    with Log().hooks(), pytest.raises(RuntimeError, match="nor here"), disable_saved_tensors_hooks("nor here"):
        pass
    with Log().hooks():
        pass


def test_save_on_cpu() -> None:
    x = leaf(3, 3)
    with save_on_cpu():
        y = ((x @ x).exp() * x).sum()
    plain = ((x @ x).exp() * x).sum()
    found = [norch.autograd.grad(v, x)[0].cpu().numpy() for v in (y, plain)]
    np.testing.assert_array_equal(*found)


def test_lines_of_nodes_are_noted_as_before() -> None:
    x = leaf(3)
    with norch.autograd.record_lines():
        with Log().hooks():
            y = x.exp()
        assert "test_saved_tensors_hooks" in str(y.grad_fn.line)
    with norch.autograd.record_lines(False), Log().hooks():
        assert x.exp().grad_fn.line is None
