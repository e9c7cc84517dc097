"""gradcheck: on any device, by few calls, of complex numbers and of float32; what passes refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch
from norch import AutogradError, Tensor
from norch.autograd import Function, gradcheck, gradgradcheck
from norch.autograd.graph import save_on_cpu
from norch.testing.strict import strict_device

RNG = np.random.default_rng(4)


def numbers(*shape: int) -> norch.Tensor:
    return norch.tensor(RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).requires_grad_()


def test_complex_numbers_are_checked_by_their_parts():
    a, x = numbers(3, 2), norch.tensor(RNG.standard_normal((2, 2))).requires_grad_()
    for function in (lambda a, x: (a @ x).exp(), lambda a, x: a.abs() + x[0], lambda a, x: (a.conj() * 2j, x)):
        assert gradcheck(function, (a, x))
        assert gradgradcheck(function, (a, x))
    assert gradcheck(lambda x: norch.polar(x.abs(), x), x)


def test_a_wrong_gradient_by_complex_numbers_is_found():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, z):
            return z * 2j

        @staticmethod
        def backward(ctx, g):
            return g * 2j  # not its conjugate

    with pytest.raises(norch.AutogradError, match="the gradient is"):
        gradcheck(Wrong.apply, numbers(2))


def test_float32_is_checked_with_a_warning():
    x = norch.rand(4, requires_grad=True)
    with pytest.warns(UserWarning, match="input 0 is .*float32.* use float64"):
        assert gradcheck(lambda x: x * x, x, eps=1e-2, atol=1e-2)
    with pytest.warns(UserWarning, match="float32"), pytest.raises(norch.AutogradError, match="the gradient is"):
        gradcheck(lambda x: x * x.detach(), x, eps=1e-2, atol=1e-2)


def test_passes_without_inputs_are_refused():
    x = norch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="inputs is empty"):
        x.sum().backward(inputs=[])
    with pytest.raises(RuntimeError, match="no inputs"):
        norch.autograd.grad(x.sum(), [])
    with pytest.raises(RuntimeError, match="allow_unused=False"):
        norch.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)


def test_what_lies_on_the_cpu_is_not_pinned():
    x = norch.ones(2, requires_grad=True)
    with save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 2]


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def leaf(*values: float) -> Tensor:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradients_are_checked_on_any_device(fast_mode: bool) -> None:
    device = strict_device()
    x = norch.tensor([0.3, -0.7], dtype=norch.float64, device=device, requires_grad=True)
    before = x.tolist()
    assert gradcheck(lambda x: (x.exp() * x).sum(), x, fast_mode=fast_mode)
    assert gradgradcheck(lambda x: (x.exp() * x).sum(), x, fast_mode=fast_mode)
    assert x.tolist() == before
    with pytest.raises(norch.AutogradError, match="input 0 at"):
        gradcheck(lambda x: (x * x.detach()).sum(), x, fast_mode=fast_mode)


def test_a_fast_check_takes_few_calls_and_names_the_one_element_that_is_wrong() -> None:
    calls = []

    class Nearly(Cube):
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            calls.append(g)
            off = norch.zeros_like(g)
            off[13] = wrong
            return Cube.backward(ctx, g) * (1 + off)

    def function(x: Tensor) -> Tensor:
        calls.append(x)
        return Nearly.apply(x)

    x = leaf(*[0.5 + i / 64 for i in range(64)])
    wrong = 0.0
    assert gradcheck(function, x, fast_mode=True)
    assert gradgradcheck(function, x, fast_mode=True)
    assert len(calls) < 20
    wrong = 2e-3
    assert not gradcheck(function, x, fast_mode=True, raise_exception=False)
    with pytest.raises(AutogradError, match="input 0 at .13,.: the gradient is"):
        gradcheck(function, x, fast_mode=True)
    beside_a_large_one = leaf(100.0, *[0.5 + i / 64 for i in range(63)])
    with pytest.raises(AutogradError, match="input 0 at .13,.: the gradient is"):
        gradcheck(function, beside_a_large_one, fast_mode=True)


@pytest.mark.parametrize(
    "slope",
    [lambda x: x.detach() ** 2, lambda x: x**2 * (2 if norch.is_grad_enabled() else 1)],
    ids=["a part without a graph", "other values where it is recorded"],
)
@pytest.mark.parametrize("fast_mode", [False, True])
def test_wrong_second_derivatives_are_found(slope: Any, fast_mode: bool) -> None:
    class Third(Cube):
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 3 * slope(*ctx.saved_tensors)

    assert gradcheck(Third.apply, leaf(0.5, 1.5))
    with pytest.raises(AutogradError, match="input 0 at"):
        gradgradcheck(Third.apply, leaf(0.5, 1.5), fast_mode=fast_mode)


def test_results_without_a_graph_may_not_change() -> None:
    x = norch.tensor([0.2, 0.7], dtype=norch.float64, requires_grad=True)
    assert gradcheck(lambda x: (x > 0.5).double(), x)
    with pytest.raises(norch.AutogradError, match="the gradient is 0, numerically"):
        gradcheck(lambda x: (x * 2).detach(), x)
    with pytest.raises(norch.AutogradError, match="no result requires grad"):
        gradcheck(lambda x: x > 0.5, x)
